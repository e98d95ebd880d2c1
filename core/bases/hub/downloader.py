"""Supervision of the downloading process: report progress, and end it if it must stop."""

import errno
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from core.contract.jobs.hub import (
    HubDownloadCompletedEvent,
    HubDownloadFailedEvent,
    HubDownloadRequest,
    HubDownloadStartedEvent,
)
from core.errors import PretrainedWeightsUnavailable
from core.ingest.ingest import IngestStopped
from core.processes import helper_process

TICK_S = 0.25
_KEPT = re.compile(
    r"HF_\w+|HUGGINGFACE_\w+|(?i:(https?|all|no)_proxy)|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE"
)
"""Environment variables that the process gets besides those of every helper."""
_JobEvent = HubDownloadStartedEvent | HubDownloadCompletedEvent | HubDownloadFailedEvent
_EVENTS: dict[str, type[_JobEvent]] = {
    "begun": HubDownloadStartedEvent,
    "downloaded": HubDownloadCompletedEvent,
    "failed": HubDownloadFailedEvent,
}


def download_hub_file_in_separate_process(
    request: HubDownloadRequest,
    must_stop: Callable[[], bool],
    progress: Callable[[int, int], None],
    stall_s: float,
) -> HubDownloadCompletedEvent:
    """Download a file of the Hugging Face Hub in a process of its own.

    Args:
        must_stop: function that returns True when the download must stop.
        progress: called with the received bytes and the total.
        stall_s: seconds without new bytes after which the download is ended.

    Raises:
        PretrainedWeightsUnavailable: the file is not available.
        IngestStopped: `must_stop` returned True.
        OSError: the disk is full.
    """
    hub = {name: value for name, value in os.environ.items() if _KEPT.fullmatch(name)}
    # without it, the library would tell the Hub more than the request
    hub.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    process = subprocess.Popen(
        [sys.executable, "-m", "core.bases.hub.download"],
        cwd=helper_process.ROOT,
        env=helper_process.build_helper_environment(**hub),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # What libraries print may contain addresses and tokens.
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(request.model_dump_json().encode() + b"\n")
        process.stdin.flush()
        return _watch_download_process(process, must_stop, progress, stall_s)
    finally:
        helper_process.kill_helper_process(process)


def _watch_download_process(
    process: "subprocess.Popen[bytes]",
    must_stop: Callable[[], bool],
    progress: Callable[[int, int], None],
    stall_s: float,
) -> HubDownloadCompletedEvent:
    """Wait until the download process ends, and report its progress meanwhile."""
    started_event: HubDownloadStartedEvent | None = None
    size, grew_at = 0, time.monotonic()
    assert process.stdout is not None
    while True:
        if select.select([process.stdout], [], [], TICK_S)[0]:
            event = _parse_download_event_line(process.stdout.readline())
            if not isinstance(event, HubDownloadStartedEvent):
                return _require_successful_download(event)
            started_event = event
        if must_stop():
            raise IngestStopped
        if started_event is not None:
            # Measured on the file, since the process reports only its beginning and its end.
            previous_size, size = size, _get_downloaded_file_size(started_event.path)
            grew_at = time.monotonic() if size != previous_size else grew_at
            progress(size, started_event.bytes)
        if time.monotonic() - grew_at > stall_s:
            raise PretrainedWeightsUnavailable(f"Nothing came from the Hub for {stall_s:g} s")


def _get_downloaded_file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0  # the content was wrong, and the file was removed


def _parse_download_event_line(line: bytes) -> _JobEvent:
    """Parse a line of the download process as an event; an empty line means that the process has
    ended.
    """
    if not line:
        return HubDownloadFailedEvent(kind="code", detail="the process ended without a word")
    document = json.loads(line)
    return _EVENTS[document["event"]].from_json(document)


def _require_successful_download(
    event: HubDownloadCompletedEvent | HubDownloadFailedEvent,
) -> HubDownloadCompletedEvent:
    """Return the finished download, or raise the error of a failed one."""
    if isinstance(event, HubDownloadCompletedEvent):
        return event
    if event.kind == "disk":
        raise OSError(errno.ENOSPC, "no room for the download")
    raise PretrainedWeightsUnavailable(
        event.detail if event.kind == "weights" else f"The download broke off ({event.detail})"
    )
