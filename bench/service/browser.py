"""A Chromium for benchmarks of pages, logged in to a service."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, sync_playwright

from tools.service import RunningService

_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
]


@contextmanager
def open_logged_in_page(running: RunningService) -> Iterator[Page]:
    """Open a page in Chromium that is logged in to the service."""
    executable = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if executable is None:
        raise SystemExit(
            "There is no chromium on the path: install it, or set CHROMIUM to where it is."
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=_ARGUMENTS)
        page = browser.new_page(base_url=running.url)
        page.goto("/ui/login")
        page.get_by_label("Key").fill(running.key)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/ui")
        yield page
        browser.close()
