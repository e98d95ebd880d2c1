"""A wrong label in a browser, by clicks alone: seen, corrected, learned, compared, undone."""

import io
import zipfile

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.client.small_batches import SMALL
from tests.ui.conftest import BATCHES, OpenPage, Site
from tests.ui.test_pages import find_faults

pytestmark = pytest.mark.slow
LEARNS_MS = 180_000


def mislabel_image() -> bytes:
    """Return the first batch with a wrong label: one image of a 0 among those of 1.
    It has a name of its own.
    """
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(BATCHES[0][1])) as source, zipfile.ZipFile(out, "w") as target:
        names = source.namelist()
        moved = next(name for name in names if name.startswith("train/0/"))
        for name in names:
            target.writestr("train/1/odd.png" if name == moved else name, source.read(name))
    return out.getvalue()


def test_a_wrong_label_is_seen_corrected_learned_compared_and_undone(
    site: Site, open_page: OpenPage
) -> None:
    client = site.client
    model = client.models.create("odd", **SMALL)
    client.submit("odd", mislabel_image()).wait(240)
    watched = open_page(f"/ui/models/{model.id}/tasks/1")
    page = watched.page
    correct_image_label(page)
    page.get_by_role("button", name="Change the label…").click()
    expect(page.get_by_role("heading", name="Change the label of 1 image")).to_be_visible()
    expect(page.get_by_text("It can be undone later")).to_be_visible()
    page.get_by_label("Reason").fill("it is a 0")
    page.get_by_role("button", name="Change the label").click()
    page.get_by_text("It made version 2").wait_for(timeout=LEARNS_MS)
    assert count_zero_images(site) == 12
    page.get_by_role("link", name="Compare or undo it").click()
    edits = page.url
    page.get_by_role("link", name="Version 2 beside version 1").click()
    expect(page.get_by_role("heading", name="Version 2 beside version 1")).to_be_visible()
    assert find_faults(open_page(edits)) == {}
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(edits)
    undo = page.get_by_text("Undo…")
    assert is_in_sight(undo), "on a phone, nobody scrolls a table to look for it"
    undo.click()
    assert is_in_sight(page.get_by_role("button", name="Undo edit 1"))
    assert is_in_sight(page.get_by_label("Reason"))
    page.get_by_role("button", name="Undo edit 1").click()
    expect(page.get_by_role("heading", name="Production is version 1")).to_be_visible()
    assert count_zero_images(site) == 11


def is_in_sight(place: Locator) -> bool:
    """Return True if a place lies within the width of the window, without scrolling."""
    box, size = place.bounding_box(), place.page.viewport_size
    assert box is not None and size is not None
    return box["x"] >= 0 and box["x"] + box["width"] <= size["width"]


def correct_image_label(page: Page) -> None:
    """Tick the image from the page of its task, and give its right label."""
    page.get_by_role("link", name="All training images").click()
    page.get_by_label("Class").select_option("1")
    page.get_by_role("button", name="Show").click()
    page.get_by_label("odd.png").check()
    page.get_by_label("Right label").fill("0")


def count_zero_images(site: Site) -> int:
    return len(list(site.client.tasks.images("odd", 1, split="train", label="0")))


def test_classes_are_merged_after_a_plan_by_the_page(site: Site, open_page: OpenPage) -> None:
    page = open_page(f"{site.home}/classes").page
    page.get_by_label("Merge 0").check()
    page.get_by_label("Merge 1").check()
    page.get_by_label("Name of the class").fill("digit")
    page.get_by_role("button", name="Show what it changes").locator("visible=true").click()
    expect(page.get_by_role("heading", name="Merge 2 classes")).to_be_visible()
    expect(page.get_by_text("0, 1 → digit")).to_be_visible()
