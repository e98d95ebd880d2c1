"""Fetching a file: what is there of an earlier try goes on, the digest is verified, and the file appears
whole or not."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from perennial._async.http import Ask, AsyncHttp
from perennial._async.waiting import in_thread, sleep
from perennial.answers import Answer, Meter
from perennial.errors import APIError, BadAnswer, DigestMismatch, PerennialError, Unavailable, seconds_of
from perennial.guard import header_number
from perennial.transfer import MAX_DOWNLOAD_BYTES, Downloaded, Progress, digest_in, hash_file

NOT_READY = 202
PARTIAL = 206
USUAL_PAUSE_S, SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 0.5, 60.0
"""Between two looks at a file that the service still makes."""
LONGEST_MAKING_S = 6 * 3600.0
"""In which a file must have been made."""
SILENCE_S = 60.0


async def download(
    http: AsyncHttp,
    path: str,
    to: Path,
    params: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    max_bytes: int | None = None,
) -> Downloaded:
    """Fetch `path` of the service into the file `to`.

    Beside it, `<name>.<digest>.part` holds what has come until it is whole; a later call goes on with it.

    Args:
        max_bytes: that it may have; None: `MAX_DOWNLOAD_BYTES`.

    Raises:
        DigestMismatch: the bytes are not those that the service named; they are removed.
        BadAnswer: it is larger than that or than the service announced, or comes too slowly.
        APIError, ServiceUnreachable, OSError.
    """
    head = (await _ready(http, path, params)).headers
    size, most = header_number(head.get("Content-Length"), "Content-Length"), max_bytes or MAX_DOWNLOAD_BYTES
    if size > most:
        raise BadAnswer(
            f"{path} has {size:,} bytes; {most:,} are taken. Allow more with --max-size (max_bytes)."
        )
    wanted = digest_in(head.get("ETag"))
    etag = head["ETag"] if wanted is not None else ""
    part = to.with_name(f"{to.name}.{(wanted or 'unknown')[:12]}.part")
    await in_thread(lambda: _make_room(part, is_fresh=wanted is None))
    failures, retries = 0, http.retries.for_transfers()
    while True:
        before = _size(part)
        try:
            await _fetch(http, path, params, part, etag, size, progress)
            break
        except PerennialError as error:
            failures = 1 if _size(part) > before else failures + 1
            pause = retries.pause_s(error, failures, is_replayable=True)
            if pause is None:
                raise
            await sleep(pause)
    digest = (await in_thread(lambda: hash_file(part))).hexdigest()
    if wanted is not None and digest != wanted:
        await in_thread(part.unlink)
        raise DigestMismatch(f"{path}: {digest} came, {wanted} was announced. Nothing was kept: try again.")
    await in_thread(lambda: part.replace(to))
    return Downloaded(to, size, digest, is_verified=wanted is not None)


async def _ready(http: AsyncHttp, path: str, params: Mapping[str, Any] | None) -> Answer:
    """The head of the file; waits while the service still makes it. Where that has failed, the service says why."""
    waited_s = 0.0
    while waited_s < LONGEST_MAKING_S:
        try:
            head = await http.send(Ask("HEAD", path, params))
        except APIError:
            async with http.stream(Ask("GET", path, params)):  # the answer to a HEAD has no words
                raise
        if head.status_code != NOT_READY:
            return head
        asked_s = seconds_of(head.headers.get("Retry-After")) or USUAL_PAUSE_S
        pause_s = min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, asked_s))
        waited_s += pause_s
        await sleep(pause_s)
    raise Unavailable(503, {"detail": f"The service still makes {path} after {waited_s / 3600:.0f} hours."})


async def _fetch(
    http: AsyncHttp,
    path: str,
    params: Mapping[str, Any] | None,
    part: Path,
    etag: str,
    size: int,
    progress: Progress | None,
) -> None:
    """One request for what is missing, written behind what is there.

    Raises:
        Unavailable: fewer bytes came than were announced.
    """
    there = _size(part)
    if there == size > 0:
        return
    ranged = {"Range": f"bytes={there}-", "If-Range": etag} if 0 < there < size and etag else {}
    # identity: a proxy that compresses would change the bytes that are counted
    ask = Ask("GET", path, params, headers={"Accept-Encoding": "identity", **ranged})
    async with http.stream(ask) as answer:
        is_rest = answer.status_code == PARTIAL
        done = there if is_rest else 0
        if is_rest and not answer.headers.get("Content-Range", f"bytes {done}-").startswith(f"bytes {done}-"):
            raise BadAnswer(f"The service sends another part of {path} than was asked for.")
        meter = Meter(size - done, SILENCE_S)
        file = await in_thread(lambda: part.open("ab" if is_rest else "wb"))
        try:
            async for chunk in answer.aiter_bytes():
                meter.add(len(chunk), answer.num_bytes_downloaded)
                await in_thread(partial(file.write, chunk))
                done += len(chunk)
                if progress is not None:
                    progress(done, size)
            await in_thread(lambda: _sync_to_disk(file))
        finally:
            await in_thread(file.close)
    if done != size:
        raise Unavailable(503, {"detail": f"{path} ended after {done} of {size} bytes."})


def _make_room(part: Path, *, is_fresh: bool) -> None:
    part.parent.mkdir(parents=True, exist_ok=True)
    if is_fresh:
        part.unlink(missing_ok=True)


def _sync_to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
