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


def explain_absence() -> str | None:
    """Return why there is no Chromium, or None."""
    return None if _find_executable().is_file() else f"there is no {_find_executable()}"


@contextmanager
def launch_browser() -> "Iterator[Browser]":
    """Run a browser for as long as the block lasts.

    Raises:
        ServiceMissing: there is none.
    """
    reason = explain_absence()
    if reason is not None:
        raise ServiceMissing(f"Chromium is missing: {reason}. {ADVICE}")
    from playwright.sync_api import sync_playwright  # 0.2 s, which only tests in a browser pay

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(_find_executable()), args=_ARGUMENTS
        )
        try:
            yield browser
        finally:
            browser.close()


def _find_executable() -> Path:
    return Path(os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium")
