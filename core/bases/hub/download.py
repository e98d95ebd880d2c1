"""Program that downloads one file from the Hugging Face Hub: `python -m core.bases.hub.download`.

It reads the request as a line of JSON, and writes events (`core.contract.jobs.hub`). It ends together
with its caller, whose pipe it reads. Addresses, token, proxies and offline mode are those of
huggingface_hub and its environment. The download of that library starts over after a kill and
follows every redirect of a hub. The bytes are therefore fetched here (`core.bases.hub.guarded_hub`),
by Range from the end of an earlier attempt. Names from a hub (a commit, a digest, a size) are
accepted only in their plain form. Messages contain no address and no token.
"""

import hashlib
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
from huggingface_hub import constants, get_token
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from core.bases.hub import unfinished
from core.bases.hub.guarded_hub import GuardedHubClient, HubResponseRefused, HubStatusError
from core.contract.document import Document
from core.contract.jobs.hub import (
    HubDownloadCompletedEvent,
    HubDownloadFailedEvent,
    HubDownloadRequest,
    HubDownloadStartedEvent,
)
from core.files import disk

CHUNK_BYTES = 64 << 10
TRIES = 5
"""Number of consecutive requests without new bytes after which the download fails."""
PAUSE_S = 1.0
_SHA256_DIGITS = 64
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SIZE = re.compile(r"[0-9]{1,15}")
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
_FILE = re.compile(r"[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


class HubDownloadError(Exception):
    """Pretrained weights that cannot be downloaded; the message says why, in a sentence without a
    full stop.
    """


def main() -> int:
    """Download the file that the first line of stdin requests, and return the exit status."""
    request = HubDownloadRequest.model_validate_json(sys.stdin.readline())
    # A killed worker closes the pipe, and nobody else would end this process.
    threading.Thread(target=_exit_when_parent_process_ends, daemon=True).start()
    try:
        _print_json_event(download_hub_file_printing_start_event(request))
    except HubDownloadError as error:
        _print_json_event(HubDownloadFailedEvent(kind="weights", detail=str(error)))
    except Exception as error:  # noqa: BLE001 - the caller must learn of every failure
        if disk.is_disk_full_error(error):
            _print_json_event(HubDownloadFailedEvent(kind="disk", detail="No space left"))
        else:
            # The type alone: a message may contain an address or a token.
            _print_json_event(HubDownloadFailedEvent(kind="code", detail=type(error).__name__))
    return 0


def download_hub_file_printing_start_event(
    request: HubDownloadRequest,
) -> HubDownloadCompletedEvent:
    """Download a file from the Hub, or its rest; check its digest, and print a start event.

    Raises:
        HubDownloadError: the file is not available.
    """
    if constants.is_offline_mode():
        raise HubDownloadError("HF_HUB_OFFLINE is set where the worker runs")
    if not _REPOSITORY.fullmatch(request.repository) or not _FILE.fullmatch(request.file):
        raise HubDownloadError(f"{request.repository!r} is no repository of the Hub")
    token = get_token()
    # The headers are sent wherever a redirect leads, so they are built without the token.
    with GuardedHubClient(constants.ENDPOINT, build_hf_headers(token=False), token) as hub:
        try:
            return _download_file_printing_start_event(hub, request)
        except (HubResponseRefused, HubStatusError) as error:
            raise HubDownloadError(str(error)) from None
        except httpx2.RequestError as error:
            raise _make_unreachable_error(error) from None


def _download_file_printing_start_event(
    hub: GuardedHubClient, request: HubDownloadRequest
) -> HubDownloadCompletedEvent:
    revision = _get_newest_hub_commit(hub, request)
    path_at_hub = f"/{request.repository}/resolve/{revision}/{quote(request.file)}"
    size, digest = _read_size_and_digest_headers(hub, path_at_hub, request.file)
    if size > request.max_bytes:
        raise HubDownloadError(
            f"{request.file} has {size} bytes; {request.max_bytes} are taken here "
            f"(PERENNIAL_MAX_FETCH_BYTES)"
        )
    folder = (
        unfinished.get_hub_repository_download_folder(request.folder, request.repository) / revision
    )
    path = folder / f"{request.file}{unfinished.SUFFIX}"
    with unfinished.open_and_lock_file_to_append(path) as fd:
        _print_json_event(HubDownloadStartedEvent(path=path, bytes=size))
        _download_with_resumption(hub, path_at_hub, fd, size)
        if _compute_hub_file_digest(path, size, len(digest)) != digest:
            # Otherwise, every further attempt would resume the wrong file.
            path.unlink()
            raise HubDownloadError(
                f"What came is not what the Hub names: the digest of {request.file} is another one"
            )
    return HubDownloadCompletedEvent(path=path, revision=revision)


def _get_newest_hub_commit(hub: GuardedHubClient, request: HubDownloadRequest) -> str:
    """Return the newest commit of the repository, which has the file.

    Raises:
        HubDownloadError: there is no such repository, commit or file.
    """
    try:
        info = hub.fetch_json_document(
            f"/api/models/{request.repository}", constants.HF_HUB_ETAG_TIMEOUT
        )
    except HubStatusError as error:
        if error.status == 401 or error.code in ("RepoNotFound", "GatedRepo"):
            raise HubDownloadError(
                f"The Hub has no repository {request.repository}, or shows it only with a token "
                f"(HF_TOKEN)"
            ) from None
        raise
    revision = _get_string_field_or_none(info, "sha") or ""
    siblings = info.get("siblings") if isinstance(info, dict) else None
    # The response is not trusted, and the commit becomes a part of the next path.
    if not _COMMIT.fullmatch(revision):
        raise HubDownloadError(f"The Hub names no commit of {request.repository}")
    names = (
        {_get_string_field_or_none(one, "rfilename") for one in siblings}
        if isinstance(siblings, list)
        else set()
    )
    if request.file not in names:
        raise HubDownloadError(
            f"The repository {request.repository} has no {request.file}, and nothing else is read"
        )
    return revision


def _get_string_field_or_none(document: Any, name: str) -> str | None:
    """Return a text field of an object, or None if it has no such text."""
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, str) else None


def _read_size_and_digest_headers(
    hub: GuardedHubClient, path_at_hub: str, file: str
) -> tuple[int, str]:
    """Return a file's size in bytes and its digest, as the headers of the hub's response name them.

    Raises:
        HubDownloadError: the hub names none, or in another form.
    """
    timeout_s = constants.HF_HUB_ETAG_TIMEOUT
    # Large files are stored elsewhere, and only the hub's own response has the digest of the file.
    with hub.open_response("HEAD", path_at_hub, {}, timeout_s, is_followed=False) as response:
        headers = response.headers
        own_size = None if response.is_redirect else headers.get("Content-Length")
        size = headers.get("X-Linked-Size") or own_size or ""
        digest = (
            (headers.get("X-Linked-Etag") or headers.get("ETag") or "")
            .removeprefix("W/")
            .strip('"')
        )
    # Both come from the hub, and the digest is what the bytes are trusted by.
    if not _SIZE.fullmatch(size) or not _DIGEST.fullmatch(digest):
        raise HubDownloadError(f"The Hub names neither bytes nor digest of {file}")
    return int(size), digest


def _download_with_resumption(hub: GuardedHubClient, path_at_hub: str, fd: int, size: int) -> None:
    """Download the rest of a file, resuming after interruptions, until it has `size` bytes."""
    idle = 0
    while (received := os.fstat(fd).st_size) != size:
        if received > size:
            # Longer than announced, so it cannot be the right file: start over.
            os.ftruncate(fd, 0)
            continue
        try:
            _download_from_offset(hub, path_at_hub, fd, received, size)
        except HubStatusError as error:
            # A status below 500 would come again at each try.
            if error.status < 500 or idle == TRIES:
                raise
        except httpx2.TransportError:
            if idle == TRIES:
                raise
        if os.fstat(fd).st_size == received:
            if idle == TRIES:
                raise HubDownloadError("The Hub sends nothing")
            idle += 1
            time.sleep(PAUSE_S)
        else:
            idle = 0


def _download_from_offset(
    hub: GuardedHubClient, path_at_hub: str, fd: int, have: int, size: int
) -> None:
    """Request a file's bytes from offset `have` on; if the server sends another range, start the
    download over.
    """
    headers = {"Range": f"bytes={have}-"} if have else {}
    with hub.open_response(
        "GET", path_at_hub, headers, constants.HF_HUB_DOWNLOAD_TIMEOUT
    ) as response:
        begins = response.headers.get("Content-Range", "")
        # Bytes of another place would be appended to what is there.
        if have and not (response.status_code == 206 and begins.startswith(f"bytes {have}-")):
            os.ftruncate(fd, 0)
            # Another range than asked for is of no use, but any other response is the whole file.
            if response.status_code == 206:
                return
        for chunk in response.iter_bytes(CHUNK_BYTES):
            os.write(fd, chunk)
            # Checked at each piece: a server could otherwise fill the disk.
            if os.fstat(fd).st_size > size:
                raise HubDownloadError(f"The Hub sends more than the {size} bytes that it named")


def _compute_hub_file_digest(path: Path, size: int, digits: int) -> str:
    """Return the digest of a downloaded file: SHA-256 for a large one, git's SHA-1 for a small one."""
    if digits == _SHA256_DIGITS:
        digest = hashlib.sha256()
    else:
        digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _make_unreachable_error(error: Exception) -> HubDownloadError:
    return HubDownloadError(f"The Hub cannot be reached ({type(error).__name__})")


def _print_json_event(event: Document) -> None:
    print(event.model_dump_json(), flush=True)


def _exit_when_parent_process_ends() -> None:
    """End this process when its parent closes the pipe or dies."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
