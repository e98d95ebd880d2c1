"""Whoever awaits: what reads disks or hashes is done in threads, so that the event loop goes on."""

import asyncio
import hashlib
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stub import Asked, Said, run_stub
from tus_stub import Tus

from perennial import AsyncPerennial

PIECE = 1 << 20
SIZE = 3 * PIECE + 5


class Watched:
    """A batch that notes in which threads it is read."""

    def __init__(self, size: int) -> None:
        self._content, self.threads = bytes(size), set[int]()

    @property
    def size(self) -> int:
        self._record_run_duration()
        return len(self._content)

    def read_chunks(self, start: int = 0) -> Iterator[bytes]:
        for at in range(start, len(self._content), PIECE // 4):
            self._record_run_duration()
            yield self._content[at : at + PIECE // 4]

    def sha256(self) -> str:
        self._record_run_duration()
        return hashlib.sha256(self._content).hexdigest()

    def _record_run_duration(self) -> None:
        self.threads.add(threading.get_ident())


@pytest.mark.parametrize(
    ("whole_bytes", "longest_body"),
    [(PIECE, PIECE), (SIZE, PIECE), (SIZE + 1, SIZE)],
    ids=["in pieces", "in pieces from the limit on", "in one request"],
)
def test_a_batch_is_read_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, whole_bytes: int, longest_body: int
) -> None:
    monkeypatch.setattr("perennial._async.upload.CHUNK_BYTES", PIECE)
    monkeypatch.setattr("perennial._async.upload.send_batch.__defaults__", (whole_bytes,))
    batch, tus = Watched(SIZE), Tus()

    async def submit_batch(url: str) -> None:
        async with AsyncPerennial("k", base_url=url) as client:
            await client.submit("birds", batch)

    with run_stub(tus) as stub:
        asyncio.run(submit_batch(stub.url))
    assert max(len(asked.body) for asked in stub.asked) == longest_body
    assert batch.threads and threading.get_ident() not in batch.threads


def test_pieces_are_hashed_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    from perennial import transfer

    threads = set[int]()

    def hash_and_record_thread(chunk: bytes) -> str:
        threads.add(threading.get_ident())
        return transfer.compute_tus_checksum_header(chunk)

    monkeypatch.setattr(
        "perennial._async.upload.compute_tus_checksum_header", hash_and_record_thread
    )
    monkeypatch.setattr("perennial._async.upload.send_batch.__defaults__", (PIECE,))

    async def submit_two_pieces(url: str) -> None:
        async with AsyncPerennial("k", base_url=url) as client:
            await client.submit("birds", bytes(2 * PIECE))

    with run_stub(Tus()) as stub:
        asyncio.run(submit_two_pieces(stub.url))
    assert threads and threading.get_ident() not in threads


def test_a_download_is_written_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, threads = os.urandom(PIECE), set[int]()

    class File(io.FileIO):
        def write(self, data: Any) -> int:
            threads.add(threading.get_ident())
            return super().write(data)

        def close(self) -> None:
            threads.add(threading.get_ident())
            super().close()

    def answer_download(asked: Asked) -> Said:
        tag = f'"{hashlib.sha256(content).hexdigest()}"'
        headers = {"ETag": tag, "Content-Length": str(PIECE)}
        return Said(200, b"" if asked.method == "HEAD" else content, headers)

    async def download_version(url: str) -> Path:
        async with AsyncPerennial("k", base_url=url) as client:
            return (await client.download("birds", 3, tmp_path / "birds.zip")).path

    with run_stub(answer_download) as stub, monkeypatch.context() as patched:
        patched.setattr(Path, "open", lambda path, mode="r": File(path, mode.replace("b", "")))
        found = asyncio.run(download_version(stub.url))
    assert found.read_bytes() == content
    assert threads and threading.get_ident() not in threads
