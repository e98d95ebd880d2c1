"""Chromium for tests that need a browser: the one that CHROMIUM names, else that of the path,
driven by playwright.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from processes import ServiceMissing

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ADVICE = (
    "Install it (apt-get install --no-install-recommends chromium), or set CHROMIUM to where it is."
)
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


def missing() -> str | None:
    """Why there is no Chromium, or None."""
    return None if _executable().is_file() else f"there is no {_executable()}"


@contextmanager
def launched() -> "Iterator[Browser]":
    """A browser for as long as the block lasts.

    Raises:
        ServiceMissing: there is none.
    """
    reason = missing()
    if reason is not None:
        raise ServiceMissing(f"Chromium is missing: {reason}. {ADVICE}")
    from playwright.sync_api import sync_playwright  # 0.2 s, which only tests in a browser pay

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(_executable()), args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


def _executable() -> Path:
    return Path(os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium")
