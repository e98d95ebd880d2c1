"""Downloads one file of a repository of the Hugging Face Hub, and ends: `python -m core.work.hub.download`.

Reads what is asked as a line of JSON and writes what comes of it (`core.protocol.hub`). It ends with its
caller, whose pipe it reads. Addresses, token, proxies and offline mode are those of huggingface_hub and its
environment; that library's own download begins anew after a kill, so the bytes are fetched here, by Range
from where an earlier attempt ended. Nothing that is said has an address or a token in it.
"""

import hashlib
import os
import sys
import threading
import time
from pathlib import Path

import httpx2
from huggingface_hub import (
    HfApi,
    constants,
    get_hf_file_metadata,
    get_session,
    get_token,
    hf_hub_url,
    hf_raise_for_status,
)
from huggingface_hub.errors import (
    FileMetadataError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from core import disk
from core.protocol.document import Document
from core.protocol.hub import DownloadAsked, DownloadBegun, Downloaded, DownloadFailed
from core.work.hub import unfinished

CHUNK_BYTES = 64 << 10
TRIES = 5
"""Requests in a row that bring nothing, before the download fails."""
PAUSE_S = 1.0
_SHA256_DIGITS, _SHA1_DIGITS = 64, 40


class Failed(Exception):
    """The weights cannot be had; the text says why, in a sentence without an end mark."""


def main() -> int:
    """Do what the first line of stdin asks."""
    asked = DownloadAsked.model_validate_json(sys.stdin.readline())
    threading.Thread(target=_end_with_the_caller, daemon=True).start()
    try:
        _say(download(asked))
    except Failed as error:
        _say(DownloadFailed(kind="weights", detail=str(error)))
    except Exception as error:  # noqa: BLE001 - the caller is told of all
        if disk.is_full(error):
            _say(DownloadFailed(kind="disk", detail="No space left"))
        else:
            _say(DownloadFailed(kind="code", detail=type(error).__name__))
    return 0


def download(asked: DownloadAsked) -> Downloaded:
    """Fetch the file, or the rest of it, and compare its digest with the one that the Hub names.

    Raises:
        Failed: it cannot be had.
    """
    try:
        info = HfApi().model_info(asked.repository, timeout=constants.HF_HUB_ETAG_TIMEOUT)
        names = {sibling.rfilename for sibling in info.siblings or []}
        if asked.file not in names:
            raise Failed(f"The repository {asked.repository} has no {asked.file}, and nothing else is read")
        revision = str(info.sha)
        url = hf_hub_url(asked.repository, asked.file, revision=revision)
        told = get_hf_file_metadata(url, token=get_token(), retry_on_errors=True)
    except OfflineModeIsEnabled:
        raise Failed("HF_HUB_OFFLINE is set where the worker runs") from None
    except RepositoryNotFoundError:
        raise Failed(
            f"The Hub has no repository {asked.repository}, or shows it only with a token (HF_TOKEN)"
        ) from None
    except HfHubHTTPError as error:
        raise _refused(error) from None
    except (httpx2.TransportError, FileMetadataError) as error:
        raise _unreachable(error) from None
    size, digest = told.size, told.etag or ""
    if size is None or len(digest) not in (_SHA256_DIGITS, _SHA1_DIGITS):
        raise Failed(f"The Hub names neither bytes nor digest of {asked.file}")
    if size > asked.max_bytes:
        raise Failed(
            f"{asked.file} has {size} bytes; {asked.max_bytes} are taken here (PERENNIAL_MAX_FETCH_BYTES)"
        )
    folder = unfinished.folder_of(asked.folder, asked.repository) / revision
    path = folder / f"{asked.file}{unfinished.SUFFIX}"
    with unfinished.opened(path) as fd:
        _say(DownloadBegun(path=path, bytes=size))
        _fetch(url, fd, size)
        if _digest(path, size, len(digest)) != digest:
            path.unlink()
            raise Failed(f"What came is not what the Hub names: the digest of {asked.file} is another one")
    return Downloaded(path=path, revision=revision)


def _fetch(url: str, fd: int, size: int) -> None:
    """Append until the file has `size` bytes."""
    idle = 0
    while (have := os.fstat(fd).st_size) != size:
        if have > size:
            os.ftruncate(fd, 0)
            continue
        try:
            _append(url, fd, have, size)
        except HfHubHTTPError as error:
            if error.response.status_code < 500 or idle == TRIES:
                raise _refused(error) from None
        except httpx2.TransportError as error:
            if idle == TRIES:
                raise _unreachable(error) from None
        if os.fstat(fd).st_size == have:
            if idle == TRIES:
                raise Failed("The Hub sends nothing")
            idle += 1
            time.sleep(PAUSE_S)
        else:
            idle = 0


def _append(url: str, fd: int, have: int, size: int) -> None:
    """One request for the bytes from `have` on; a server that begins at another byte is taken from the
    beginning."""
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with get_session().stream("GET", url, headers=headers, timeout=timeout) as response:
        hf_raise_for_status(response)
        begins = response.headers.get("Content-Range", "")
        if have and not (response.status_code == 206 and begins.startswith(f"bytes {have}-")):
            os.ftruncate(fd, 0)
            if response.status_code == 206:
                return
        for chunk in response.iter_bytes(CHUNK_BYTES):
            os.write(fd, chunk)
            if os.fstat(fd).st_size > size:
                raise Failed(f"The Hub sends more than the {size} bytes that it named")


def _digest(path: Path, size: int, digits: int) -> str:
    """The sha256 of a large file, or the sha1 by which git names a small one."""
    if digits == _SHA256_DIGITS:
        digest = hashlib.sha256()
    else:
        digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _refused(error: HfHubHTTPError) -> Failed:
    return Failed(f"The Hub answered with status {error.response.status_code}")


def _unreachable(error: Exception) -> Failed:
    return Failed(f"The Hub cannot be reached ({type(error).__name__})")


def _say(told: Document) -> None:
    print(told.model_dump_json(), flush=True)


def _end_with_the_caller() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
