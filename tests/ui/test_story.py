"""A complete story in a browser, by clicks and keys alone.

It leads from the login to a version that its user can justify.
"""

import io
import zipfile
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import FilePayload, Page, expect

from perennial import Perennial
from tests.ui.conftest import (
    BATCHES,
    PATIENCE_MS,
    Site,
    Watched,
    choose_files,
    record_problems,
    submit_chosen,
)
from tests.ui.files import make_payload

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LEARNS_MS = 180_000
FILES = [make_payload(f"{name}.zip", content) for name, content in BATCHES[:2]]


def make_photo_of_two() -> FilePayload:
    with zipfile.ZipFile(io.BytesIO(BATCHES[1][1])) as archive:
        name = next(one for one in archive.namelist() if "/2/" in one)
        return make_payload("two.png", archive.read(name), "image/png")


@pytest.mark.slow
def test_a_person_brings_a_model_through_a_bad_week_by_clicks_alone(
    site: Site, browser: "Browser"
) -> None:
    key = site.client.keys.create(
        "story", owner="story", scope="write"
    ).secret  # of an owner without models
    context = browser.new_context(base_url=site.url, viewport={"width": 1280, "height": 900})
    watched = Watched(context.new_page())
    record_problems(watched, site.url)
    page = watched.page
    page.set_default_timeout(PATIENCE_MS)
    log_in(page, key)
    home = create_model_with_strict_gate(page)
    send_first_batch(page)
    page.goto(home)
    expect(page.get_by_role("heading", name="Production is version 1")).to_be_visible(
        timeout=LEARNS_MS
    )
    send_batch_that_forgets(page)
    page.get_by_text("Decide what becomes of it").wait_for(timeout=LEARNS_MS)
    view_flips(page)
    retry_with_suggestion(page)
    page.get_by_text("It made version 3").wait_for(timeout=LEARNS_MS)
    page.get_by_role("link", name="weeks", exact=True).click()
    roll_production_back(page)
    promote_version(page)
    predict_photo(page, home)
    delete_task_images(page, home)
    assert watched.wrong == []
    context.close()
    with Perennial(key, base_url=site.url) as client:
        moves = [(one.cause, one.reason) for one in client.aliases.history("weeks") if one.reason]
    assert moves == [("rollback", "2 looks like 0"), ("set", "it does not, I looked")]


def log_in(page: Page, key: str) -> None:
    page.goto("/ui")
    page.get_by_label("Key").fill(key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Show it what to tell apart")).to_be_visible()


def create_model_with_strict_gate(page: Page) -> str:
    """Create a model whose gate is strict, and return its address."""
    page.get_by_role("link", name="Choose every setting yourself").click()
    page.get_by_label("Name", exact=True).fill("weeks")
    page.get_by_label("the small base").check()
    page.get_by_label("Forgetting, at most (percent)").fill("10")
    page.get_by_role("button", name="Create the model").click()
    expect(page.get_by_role("heading", name="Nothing learned yet")).to_be_visible()
    return page.url


def send_first_batch(page: Page) -> None:
    page.get_by_role("link", name="Send a batch").first.click()
    choose_files(page, *FILES[:1])
    page.get_by_text("Uploaded and looked at.").wait_for()
    submit_chosen(page)


def send_batch_that_forgets(page: Page) -> None:
    """Send a batch with a method that forgets earlier ones, so that its version will be held."""
    page.get_by_role("link", name="Send a batch").click()
    choose_files(page, *FILES[1:])
    page.get_by_label("Method or preset").select_option("method:finetune")
    expect(page.locator("#plan")).to_contain_text(
        "finetune is known to be weak in the class scenario"
    )
    page.get_by_text("Change its settings").click()
    page.locator("[name=epochs]").fill("3")
    page.get_by_text("Uploaded and looked at.").wait_for()
    submit_chosen(page)


def view_flips(page: Page) -> None:
    """View image by image what the held version would take from production.

    Then return to its model.
    """
    page.get_by_role("link", name="Decide what becomes of it").click()
    page.get_by_role("link", name="See what it flips").click()
    expect(page.get_by_role("heading", name="Version 2 beside version 1")).to_be_visible()
    expect(page.locator(".flipped img").first).to_be_visible()
    page.get_by_role("link", name="weeks", exact=True).click()


def retry_with_suggestion(page: Page) -> None:
    expect(page.get_by_role("heading", name="Version 2 is held")).to_be_visible()
    page.get_by_role("button", name="Learn task 2 again by the model’s own recipe").click()
    page.wait_for_url("**/ui/jobs/*")


def roll_production_back(page: Page) -> None:
    expect(page.get_by_role("heading", name="Production is version 3")).to_be_visible()
    page.get_by_text("Roll back…").click()
    page.get_by_label("Reason").locator("visible=true").fill("2 looks like 0")
    page.get_by_role("button", name="Roll back to the version before").click()
    expect(page.get_by_role("heading", name="Production is version 1")).to_be_visible()


def promote_version(page: Page) -> None:
    page.locator("tr", has=page.get_by_label("To version 3")).get_by_text("Promote…").click()
    page.get_by_label("Reason").locator("visible=true").fill("it does not, I looked")
    page.get_by_role("button", name="Put version 3 in production").locator("visible=true").click()
    expect(page.get_by_role("heading", name="Production is version 3")).to_be_visible()


def predict_photo(page: Page, home: str) -> None:
    page.goto(home)
    page.get_by_role("link", name="Predict photos").click()
    page.locator("input[type=file]").set_input_files([make_photo_of_two()])
    page.get_by_role("button", name="Predict").click()
    expect(page.locator(".answers li")).to_contain_text("two.png: 2")


def delete_task_images(page: Page, home: str) -> None:
    page.goto(home)
    page.get_by_role("link", name="task 1", exact=True).first.click()
    page.get_by_text("Delete its images…").click()
    page.get_by_label("Delete all images of task 1").check()
    page.get_by_role("button", name="Delete the images").click()
    expect(page.get_by_text("They were deleted")).to_be_visible()
