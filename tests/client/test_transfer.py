"""Batches and versions on their way, through connections that break."""

import hashlib
import io
import random
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fault_proxy import FaultProxy
from small_batches import SMALL, create_taught_model
from stub import Asked, Said, build_problem, run_stub_with_client
from tus_stub import Tus

from perennial import ConfigError, DigestMismatch, Invalid, Perennial, Retries
from perennial.transfer import (
    CHUNK_BYTES,
    WHOLE_BYTES,
    BytesSource,
    FileSource,
    open_batch_as_transfer_source,
)
from tools import service

PIECE = 1 << 20


def test_a_small_batch_goes_in_one_request_with_its_digest(tmp_path: Path) -> None:
    file, tus, seen = tmp_path / "batch.zip", Tus(), list[tuple[int, int]]()
    file.write_bytes(b"0123456789")
    with run_stub_with_client(tus) as (stub, client):
        told = {"name": "week 31", "recipe": {"epochs": 2}}
        client.submit("birds", file, **told, progress=lambda *at: seen.append(at))
    (sent,) = stub.asked
    assert sent.body == b"0123456789" and sent.headers["content-length"] == "10"
    assert sent.headers["content-digest"].startswith("sha-256=:hNiYd/DUBB77a")
    assert sent.headers["perennial-recipe"] == '{"epochs": 2}'
    assert parse_qs(urlsplit(sent.path).query) == {"name": ["week 31"]}
    assert seen[-1] == (10, 10)


def test_the_bounds_are_those_of_the_design() -> None:
    assert (CHUNK_BYTES, WHOLE_BYTES) == (8 << 20, 64 << 20)
    assert Retries() == Retries(attempts=5, first_s=0.5, longest_s=30.0)


@pytest.mark.parametrize("start", [0, 3, 10])
def test_a_source_can_be_read_from_any_byte_again_and_again(tmp_path: Path, start: int) -> None:
    file = tmp_path / "batch.tar"
    file.write_bytes(b"0123456789")
    for source in (FileSource.from_path(file), BytesSource(b"0123456789")):
        for _ in range(2):
            assert b"".join(source.read_chunks(start)) == b"0123456789"[start:]
        assert source.sha256() == hashlib.sha256(b"0123456789").hexdigest()


def test_a_file_that_is_not_there_is_told_before_anything_is_sent() -> None:
    with pytest.raises(ConfigError, match=r"no file or folder no\.zip"):
        open_batch_as_transfer_source("no.zip")


def _build_file_answer(content: bytes, cuts: list[int], etag: str | None = None) -> Any:
    tag = etag or f'"{hashlib.sha256(content).hexdigest()}"'

    def answer_file_request(asked: Asked) -> Said:
        headers = {"ETag": tag, "Content-Length": str(len(content))}
        start = asked.headers.get("range", "bytes=0-")[6:-1]
        if asked.method == "HEAD":
            return Said(200, b"", headers)
        rest = content[int(start) :]
        status = 206 if "range" in asked.headers and asked.headers["if-range"] == tag else 200
        sent = rest if status == 206 else content
        headers["Content-Length"] = str(len(sent))
        return Said(status, sent, headers, cuts.pop(0) if cuts else None)

    return answer_file_request


@pytest.mark.usefixtures("no_pauses")
def test_a_download_goes_on_through_twenty_cuts(tmp_path: Path) -> None:
    content = random.Random(2).randbytes(PIECE)
    cuts = [random.Random(3).randrange(1, 40_000) for _ in range(20)]
    with run_stub_with_client(_build_file_answer(content, cuts)) as (stub, client):
        found = client.download("birds", 3, tmp_path / "birds.zip")
    assert found.path.read_bytes() == content
    assert found.sha256 == hashlib.sha256(content).hexdigest()
    assert sorted(one.name for one in tmp_path.iterdir() if one.is_file()) == ["birds.zip"]
    assert len(stub.asked) >= 21


@pytest.mark.usefixtures("no_pauses")
def test_what_another_run_left_is_not_fetched_again(tmp_path: Path) -> None:
    content = random.Random(2).randbytes(PIECE)
    with run_stub_with_client(_build_file_answer(content, [1000] * 5), max_retries=0) as (
        _,
        client,
    ):
        with pytest.raises(Exception, match=r"broke|ended"):
            client.download("birds", 3, tmp_path / "birds.zip")
        left = next(tmp_path.glob("*.part")).stat().st_size
        assert left > 0 and not (tmp_path / "birds.zip").exists()
    with run_stub_with_client(_build_file_answer(content, [])) as (stub, client):
        client.download("birds", 3, tmp_path / "birds.zip")
        assert stub.asked[-1].headers["range"] == f"bytes={left}-"
    assert (tmp_path / "birds.zip").read_bytes() == content


def test_bytes_that_are_not_those_announced_are_not_kept(tmp_path: Path) -> None:
    wrong = f'"{"0" * 64}"'
    with (
        run_stub_with_client(_build_file_answer(b"abc", [], wrong)) as (_, client),
        pytest.raises(DigestMismatch),
    ):
        client.download("birds", 3, tmp_path / "birds.zip")
    assert [one for one in tmp_path.iterdir() if one.is_file()] == []


def test_a_file_that_is_still_being_made_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = list[float]()
    monkeypatch.setattr("perennial._sync.download.sleep_seconds", waited.append)
    first, ready = iter([Said(202, b"", {"Retry-After": "3"})]), _build_file_answer(b"abc", [])
    with run_stub_with_client(lambda asked: next(first, None) or ready(asked)) as (stub, client):
        client.download("birds", 3, tmp_path / "birds.zip", format="onnx")
    assert waited == [3.0]
    assert stub.asked[0].path.endswith("?format=onnx")


def test_a_file_that_cannot_be_made_is_refused_in_the_services_words(tmp_path: Path) -> None:
    said = build_problem(422, "export-unavailable", "No worker here can export to ONNX.")
    told = r"No worker here can export to ONNX\."
    with (
        run_stub_with_client(lambda _: said) as (_, client),
        pytest.raises(Invalid, match=told) as refused,
    ):
        client.download("birds", 3, tmp_path / "birds.zip", format="onnx")
    assert refused.value.code == "export-unavailable"


@pytest.fixture
def trained(client: Perennial, archives: list[bytes]) -> str:
    """A model with a version of a batch."""
    return create_taught_model(client, "transfers", archives[0])


@contextmanager
def connect_through_cuts(
    running: service.RunningService, cuts: list[int], max_retries: int
) -> Iterator[Perennial]:
    """Yield a client behind a proxy that cuts its connections after so many bytes."""
    proxy = FaultProxy(int(running.url.rpartition(":")[2]))
    try:
        proxy.fault("cut", cuts)
        url = f"http://127.0.0.1:{proxy.port}"
        with Perennial(running.key, base_url=url, max_retries=max_retries) as client:
            yield client
    finally:
        proxy.close()


@pytest.mark.slow
@pytest.mark.usefixtures("no_pauses")
def test_a_version_comes_whole_through_a_proxy_that_cuts(
    running: service.RunningService, trained: str, tmp_path: Path
) -> None:
    cuts = [random.Random(4).randrange(20_000, 200_000) for _ in range(20)]
    with connect_through_cuts(running, cuts, max_retries=40) as client:
        found = client.download(trained, 1, tmp_path / "model.zip")
    with zipfile.ZipFile(found.path) as archive:
        assert archive.testzip() is None
        assert "model.safetensors" in archive.namelist()


@pytest.mark.usefixtures("no_pauses")
def test_a_batch_that_is_cut_on_its_way_becomes_one_task(
    running: service.RunningService, client: Perennial, archives: list[bytes]
) -> None:
    client.models.create("cut", **SMALL)
    size = len(archives[0])
    # In the body, and in the answer: the task is made, but nobody hears of it.
    cuts = [size // 2, size + 800, size + 1_000, 10 * size]
    with connect_through_cuts(running, cuts, max_retries=10) as cut:
        handle = cut.submit("cut", archives[0], name="once")
    assert [task.name for task in client.tasks.list("cut")] == ["once"]
    assert client.job(handle.id).wait(120).outcome == "published"


def test_a_large_batch_goes_to_the_real_service_in_pieces(
    client: Perennial, archives: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.models.create("pieces", **SMALL)
    monkeypatch.setattr("perennial._sync.upload.send_batch.__defaults__", (PIECE,))
    file = tmp_path / "batch.zip"
    file.write_bytes(_pad_archive(archives[0], 12 << 20))
    seen = list[int]()
    handle = client.submit("pieces", file, progress=lambda done, _: seen.append(done))
    assert seen == [8 << 20, file.stat().st_size]
    assert (
        handle.task is not None
        and handle.task.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    )
    assert handle.wait(120).outcome == "published"


def _pad_archive(archive: bytes, size: int) -> bytes:
    """Add a file to a batch that is ignored there."""
    out = io.BytesIO(archive)
    with zipfile.ZipFile(out, "a") as to:
        to.writestr("README.txt", random.Random(5).randbytes(size - len(archive)))
    return out.getvalue()


class _Opened:
    """A batch as `perennial.pack.open_batch` gives it."""

    def __init__(self, content: bytes, wrong: str = "") -> None:
        self.size, self._content, self._wrong = len(content), content, wrong

    def read_chunks(self, start: int = 0) -> Any:
        yield self._content[start:]
        if self._wrong:
            raise ValueError(self._wrong)

    def sha256(self) -> str:
        return hashlib.sha256(self._content).hexdigest()


def test_a_batch_that_was_opened_before_is_sent_as_it_is() -> None:
    with run_stub_with_client(Tus()) as (stub, client):
        client.submit("birds", _Opened(b"tar"))
        assert stub.asked[-1].body == b"tar"


def test_a_folder_that_changes_while_it_is_sent_is_an_error_of_the_client() -> None:
    batch = _Opened(b"tar", "cat.png is not what it was: open the batch again.")
    with run_stub_with_client(Tus()) as (_, client), pytest.raises(ConfigError, match="not what"):
        client.submit("birds", batch)
