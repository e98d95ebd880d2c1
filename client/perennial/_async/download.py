"""File downloads: resumed after an interruption, verified by digest, and complete or absent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from perennial._async.http import ApiRequest, AsyncHttp
from perennial._async.waiting import run_in_thread, sleep_seconds
from perennial.errors import (
    APIError,
    BadAnswer,
    DigestMismatch,
    PerennialError,
    Unavailable,
    parse_retry_after,
)
from perennial.guard import require_number_in_response_header
from perennial.responses import ApiResponse, ResponseBodyLimitMeter
from perennial.transfer import (
    MAX_DOWNLOAD_BYTES,
    Downloaded,
    Progress,
    hash_file_content,
    parse_etag_digest,
)

NOT_READY = 202
PARTIAL = 206
USUAL_PAUSE_S, SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 0.5, 60.0
"""Seconds between two checks of a file that the service is still building."""
LONGEST_MAKING_S = 6 * 3600.0
"""Maximum seconds to wait for the service to build a file."""
SILENCE_S = 60.0


@dataclass(frozen=True)
class _RemoteFileMetadata:
    """Size and ETag of a file to download, as the response to a HEAD request announced them.

    Attributes:
        path, params: URL path and query.
        etag: names the bytes; empty: a part file cannot be resumed.
        size: number of bytes.
    """

    path: str
    params: Mapping[str, Any] | None
    etag: str
    size: int


async def download_url_path_to_file(
    http: AsyncHttp,
    path: str,
    to: Path,
    params: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    max_bytes: int | None = None,
) -> Downloaded:
    """Download a URL path of the service into the file `to`, resuming an interrupted download.

    Until the file is complete, `<name>.<digest>.part` beside it holds the received bytes. A later
    call resumes from it.

    Args:
        max_bytes: maximum size in bytes; None: `MAX_DOWNLOAD_BYTES`.

    Raises:
        DigestMismatch: the bytes do not match the announced digest; they are removed.
        BadAnswer: the file is larger than allowed or announced, or arrives too slowly.
        APIError, ServiceUnreachable, OSError: the request or writing the file failed.
    """
    # HEAD first: the size is checked, and the part file named, before a byte is fetched.
    head = (await _wait_until_download_is_built(http, path, params)).headers
    size, allowed = (
        require_number_in_response_header(head.get("Content-Length"), "Content-Length"),
        max_bytes or MAX_DOWNLOAD_BYTES,
    )
    if size > allowed:
        raise BadAnswer(
            f"{path} has {size:,} bytes; {allowed:,} are taken. Allow more with --max-size "
            f"(max_bytes)."
        )
    expected_digest = parse_etag_digest(head.get("ETag"))
    source = _RemoteFileMetadata(
        path, params, head["ETag"] if expected_digest is not None else "", size
    )
    # The digest is part of the name, so that the bytes of another version are never resumed.
    part = to.with_name(f"{to.name}.{(expected_digest or 'unknown')[:12]}.part")
    # Without a digest, nothing shows that an older part file has bytes of the same file.
    await run_in_thread(
        lambda: _make_folder_and_discard_part_if_fresh(part, is_fresh=expected_digest is None)
    )
    failures, retries = 0, http.retries.copy_with_more_attempts()
    while True:
        size_before = _get_file_size(part)
        try:
            await _fetch_missing_bytes(http, source, part, progress)
            break
        except PerennialError as error:
            # Progress resets the count, so that a long download survives many interruptions.
            failures = 1 if _get_file_size(part) > size_before else failures + 1
            pause = retries.compute_pause_seconds(error, failures, is_replayable=True)
            if pause is None:
                raise
            await sleep_seconds(pause)
    # The whole file is read again, because an earlier run may have written its beginning.
    digest = (await run_in_thread(lambda: hash_file_content(part))).hexdigest()
    if expected_digest is not None and digest != expected_digest:
        await run_in_thread(part.unlink)
        raise DigestMismatch(
            f"{path}: {digest} came, {expected_digest} was announced. Nothing was kept: try again."
        )
    # Renamed last, so that `to` is complete or absent.
    await run_in_thread(lambda: part.replace(to))
    return Downloaded(to, size, digest, is_verified=expected_digest is not None)


async def _wait_until_download_is_built(
    http: AsyncHttp, path: str, params: Mapping[str, Any] | None
) -> ApiResponse:
    """Return the HEAD response of a download, waiting while the service builds the file.

    Raises the service's error if building has failed.
    """
    waited_s = 0.0
    while waited_s < LONGEST_MAKING_S:
        try:
            head = await http.send(ApiRequest("HEAD", path, params))
        except APIError:
            # A response to HEAD has no body: GET raises the error with its message.
            async with http.stream(ApiRequest("GET", path, params)):
                raise
        if head.status_code != NOT_READY:
            return head
        asked_s = parse_retry_after(head.headers.get("Retry-After")) or USUAL_PAUSE_S
        # Bounded on both sides, whatever the service asks for: no busy loop, and no silence of
        # hours.
        pause_s = min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, asked_s))
        waited_s += pause_s
        await sleep_seconds(pause_s)
    raise Unavailable(
        503, {"detail": f"The service still makes {path} after {waited_s / 3600:.0f} hours."}
    )


async def _fetch_missing_bytes(
    http: AsyncHttp, source: _RemoteFileMetadata, part: Path, progress: Progress | None
) -> None:
    """Request the bytes of a download that its part file lacks, and append them to it.

    Raises:
        Unavailable: fewer bytes arrived than announced.
    """
    received, size = _get_file_size(part), source.size
    # A complete part file needs no request. An empty file needs one, which creates the part file.
    if received == size > 0:
        return
    ranged = (
        {"Range": f"bytes={received}-", "If-Range": source.etag}
        if 0 < received < size and source.etag
        else {}
    )
    # identity: a proxy that compresses would change the bytes that are counted.
    headers = {"Accept-Encoding": "identity", **ranged}
    ask = ApiRequest("GET", source.path, source.params, headers=headers)
    async with http.stream(ask) as response:
        is_partial = response.status_code == PARTIAL
        # By If-Range, the service sends the whole file (200) if its bytes have changed: begin
        # again.
        received_so_far = received if is_partial else 0
        if is_partial and not response.headers.get(
            "Content-Range", f"bytes {received_so_far}-"
        ).startswith(f"bytes {received_so_far}-"):
            raise BadAnswer(f"The service sends another part of {source.path} than was asked for.")
        meter = ResponseBodyLimitMeter(size - received_so_far, SILENCE_S)
        file = await run_in_thread(lambda: part.open("ab" if is_partial else "wb"))
        try:
            async for chunk in response.aiter_bytes():
                meter.count_received_bytes(len(chunk), response.num_bytes_downloaded)
                await run_in_thread(partial(file.write, chunk))
                received_so_far += len(chunk)
                if progress is not None:
                    progress(received_so_far, size)
            # Written through before the file is renamed, so that a power cut leaves no gaps in it.
            await run_in_thread(lambda: _sync_file_to_disk(file))
        finally:
            await run_in_thread(file.close)
    if received_so_far != size:
        raise Unavailable(
            503, {"detail": f"{source.path} ended after {received_so_far} of {size} bytes."}
        )


def _make_folder_and_discard_part_if_fresh(part: Path, *, is_fresh: bool) -> None:
    part.parent.mkdir(parents=True, exist_ok=True)
    if is_fresh:
        part.unlink(missing_ok=True)


def _sync_file_to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _get_file_size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
