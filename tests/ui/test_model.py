"""Deletion of a model on its page, confirmed by typing its name."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from playwright.sync_api import expect

from perennial import NotFound
from tests.ui.conftest import OpenPage, Site

pytestmark = pytest.mark.slow


@pytest.fixture
def unwanted(site: Site) -> Iterator[str]:
    """Create a model that a test may delete, and yield its id."""
    made = site.client.models.create("un.wanted", scenario="class", architecture="mlp").id
    yield made
    with suppress(NotFound):
        site.client.models.delete(made)


def test_without_javascript_a_model_is_deleted_by_typing_its_name(
    site: Site, open_page: OpenPage, unwanted: str
) -> None:
    page = open_page(f"/ui/models/{unwanted}", java_script_enabled=False).page
    page.get_by_text("Delete the model…").click()
    page.get_by_label("Type its name").fill("un.wanted")
    page.get_by_role("button", name="Delete the model").click()
    expect(page.get_by_role("heading", name="Models")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("The model un.wanted is deleted.")
    expect(page.get_by_role("link", name="un.wanted", exact=True)).to_have_count(0)
    [left] = site.client.audit.list(action="model.delete", model=unwanted)
    assert left.data.name == "un.wanted"


@pytest.mark.campaign  # tests/api/pages/test_forms.py shows it
def test_a_model_whose_name_is_mistyped_stays(
    site: Site, open_page: OpenPage, unwanted: str
) -> None:
    watched = open_page(f"/ui/models/{unwanted}")
    page = watched.page
    page.get_by_text("Delete the model…").click()
    page.get_by_label("Type its name").fill("un-wanted")
    page.get_by_role("button", name="Delete the model").click()
    expect(page.locator("[name=name]:invalid")).to_be_focused()
    assert watched.faults() == []
    assert site.client.models.retrieve(unwanted).name == "un.wanted"
