"""Runs the process that downloads, tells how far it is, and ends it when the job is to stop or nothing comes
any more."""

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

from core import helper_process
from core.errors import WeightsUnavailable
from core.ingest.ingest import Stopped
from core.protocol.hub import DownloadAsked, DownloadBegun, Downloaded, DownloadFailed

TICK_S = 0.25
_KEPT = re.compile(
    r"HF_\w+|HUGGINGFACE_\w+|(?i:(https?|all|no)_proxy)|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE"
)
"""What the process reads of the worker's environment beside what every helper does."""
_Event = DownloadBegun | Downloaded | DownloadFailed
_EVENTS: dict[str, type[_Event]] = {
    "begun": DownloadBegun,
    "downloaded": Downloaded,
    "failed": DownloadFailed,
}


def download(
    asked: DownloadAsked,
    must_stop: Callable[[], bool],
    progress: Callable[[int, int], None],
    stall_s: float,
) -> Downloaded:
    """Download a file.

    Args:
        progress: told the bytes that are there, and those in all.
        stall_s: a download that does not grow for so many seconds is ended.

    Raises:
        WeightsUnavailable: it cannot be had.
        Stopped: `must_stop` said so.
        OSError: the disk is full.
    """
    hub = {name: value for name, value in os.environ.items() if _KEPT.fullmatch(name)}
    hub.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # it tells the Hub only what it asks for
    process = subprocess.Popen(
        [sys.executable, "-m", "core.work.hub.download"],
        cwd=helper_process.ROOT,
        env=helper_process.environment(**hub),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(asked.model_dump_json().encode() + b"\n")
        process.stdin.flush()
        return _watched(process, must_stop, progress, stall_s)
    finally:
        helper_process.end(process)


def _watched(
    process: "subprocess.Popen[bytes]",
    must_stop: Callable[[], bool],
    progress: Callable[[int, int], None],
    stall_s: float,
) -> Downloaded:
    begun: DownloadBegun | None = None
    have, grew_at = 0, time.monotonic()
    assert process.stdout is not None
    while True:
        if select.select([process.stdout], [], [], TICK_S)[0]:
            event = _read(process.stdout.readline())
            if not isinstance(event, DownloadBegun):
                return _ended(event)
            begun = event
        if must_stop():
            raise Stopped
        if begun is not None:
            before, have = have, _size(begun.path)
            grew_at = time.monotonic() if have != before else grew_at
            progress(have, begun.bytes)
        if time.monotonic() - grew_at > stall_s:
            raise WeightsUnavailable(f"Nothing came from the Hub for {stall_s:g} s")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0  # what came was wrong, and was removed


def _read(line: bytes) -> _Event:
    if not line:
        return DownloadFailed(kind="code", detail="the process ended without a word")
    told = json.loads(line)
    return _EVENTS[told["event"]].from_json(told)


def _ended(event: Downloaded | DownloadFailed) -> Downloaded:
    if isinstance(event, Downloaded):
        return event
    if event.kind == "disk":
        raise OSError(errno.ENOSPC, "no room for the download")
    raise WeightsUnavailable(
        event.detail if event.kind == "weights" else f"The download broke off ({event.detail})"
    )
