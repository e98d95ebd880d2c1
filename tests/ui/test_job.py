"""The page of a job that learns: its best state is there before the job is over, and no longer."""

import json
import zipfile
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.ui.conftest import BATCHES, OpenPage, Site

pytestmark = pytest.mark.slow
LASTS = {
    "method": "finetune",
    "epochs": 10_000,
    "batch_size": 4,
    "optimizer": {
        "name": "sgd",
        "lr": 0.001,
    },  # with the default these few images end in a loss of NaN
    "validation": 0.2,
    "anytime": True,
}
"""Minutes: no test waits for its end."""


@pytest.fixture
def learning(site: Site) -> Iterator[str]:
    """A job that keeps its best state while it learns."""
    site.client.models.create("anytime", scenario="class", architecture="mlp", recipe=LASTS)
    name, batch = BATCHES[0]
    job = site.client.submit("anytime", batch, name=name).id
    yield job
    site.client.models.delete("anytime")


def test_the_best_state_of_a_job_is_downloaded_by_a_click_until_it_is_over(
    open_page: OpenPage, learning: str
) -> None:
    watched = open_page(f"/ui/jobs/{learning}")
    page = watched.page
    expect(page.locator("#best")).to_contain_text("of the validation images right", timeout=120_000)
    assert watched.faults() == []
    with page.expect_download() as begun:
        page.get_by_role("link", name="Download it").click()
    with zipfile.ZipFile(begun.value.path()) as archive:
        told = json.loads(archive.read("config.json"))
    assert told["anytime"]["job"] == learning
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("#job")).to_have_attribute("data-terminal", "yes")
    expect(page.get_by_text("Best state so far")).to_have_count(0)
