"""The first page of an installation, from a click or a dropped folder to the first result."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect

from perennial import Perennial
from tests.ui.conftest import BATCHES, PATIENCE_MS, Site, Watched, record_problems
from tests.ui.files import drop_files, unpack_zip
from tests.ui.test_pages import find_faults

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

LEARNS_MS = 180_000
WELCOME = "Show it what to tell apart"
OpenFirst = Callable[[], Watched]


@pytest.fixture
def open_first(site: Site, browser: "Browser") -> Iterator[OpenFirst]:
    """Yield a function that opens the first page for a user without a model.

    Nothing may go wrong on the page.
    """
    owner = f"first-{os.urandom(4).hex()}"
    key = site.client.keys.create(owner, owner=owner, scope="write").secret
    context = browser.new_context(base_url=site.url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    watched = Watched(context.new_page())
    record_problems(watched, site.url)

    def log_in_and_open_welcome() -> Watched:
        page = watched.page
        page.goto("/ui")
        page.get_by_label("Key").fill(key)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name=WELCOME)).to_be_visible()
        return watched

    yield log_in_and_open_welcome
    context.close()
    with Perennial(key, base_url=site.url) as client:
        for model in client.models.list():
            client.models.delete(model.id)
    assert watched.wrong == []


def wait_for_result(page: Page, kinds: int) -> None:
    page.wait_for_url("**/first")
    expect(page.get_by_role("heading", name=f"It knows {kinds} kinds of things")).to_be_visible(
        timeout=LEARNS_MS
    )


def test_a_dropped_folder_is_learned_and_its_result_shown(
    open_first: OpenFirst, tmp_path: Path
) -> None:
    watched = open_first()
    page = watched.page
    loose = tmp_path / "photo.png"
    loose.write_bytes(b"an image")
    drop_files(page, "#own", loose)
    expect(page.locator("#own [role=alert]")).to_contain_text("These files are in no folder")
    assert find_faults(watched) == {}
    folder = tmp_path / ("Zahlen, die von Hand geschrieben wurden " * 3) / "Ziffern"
    unpack_zip(BATCHES[0][1], folder)
    drop_files(page, "#own", folder.parent)
    wait_for_result(page, 2)
    assert find_faults(watched) == {}
    expect(page.locator("main")).to_contain_text("20 pictures that it had not learned from")
    page.get_by_role("link", name="Show it a photo").click()
    expect(page.locator("input[type=file]")).to_be_visible()


@pytest.mark.campaign  # a dropped folder is learned in the same way
def test_a_chosen_folder_is_learned(open_first: OpenFirst, tmp_path: Path) -> None:
    page = open_first().page
    unpack_zip(BATCHES[0][1], tmp_path / "digits")
    page.locator("#folder").set_input_files(tmp_path / "digits")
    page.wait_for_url("**/first")
    expect(page).to_have_title("First result of digits · Perennial")


def test_the_commands_are_copied(open_first: OpenFirst) -> None:
    page = open_first().page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.splitlines()[1:] == [
        "perennial models create birds",
        "perennial submit birds FOLDER",
    ]


@pytest.mark.campaign
def test_the_sample_pictures_are_learned_by_one_click(open_first: OpenFirst) -> None:
    watched = open_first()
    watched.page.get_by_role("button", name="Learn the sample pictures").click()
    wait_for_result(watched.page, 12)
    assert find_faults(watched) == {}
    watched.page.get_by_role("link", name="See everything about it").click()
    expect(watched.page.get_by_role("heading", name="Production is version 4")).to_be_visible()
