"""A model moves to another base in a browser: its pages are well made, and a form moves
production.
"""

import pytest
from playwright.sync_api import expect

from tests.ui.conftest import BATCHES, OpenPage, Site
from tests.ui.test_pages import find_faults

pytestmark = pytest.mark.slow


@pytest.mark.campaign  # tests/api/pages/test_rebase.py shows it
def test_both_models_are_compared_on_a_page_that_moves_production(
    site: Site, open_page: OpenPage
) -> None:
    client = site.client
    old = client.models.create("moving", scenario="class", recipe={"seed": 0})
    client.submit("moving", BATCHES[0][1], name="first").wait(240)
    begun = client.models.rebase("moving", {"model": "bare", "version": 0})
    assert [one.arrival for one in begun.tasks] == ["relearned"]
    (job,) = client.jobs.list(model=begun.new.id)
    client.job(job.id).wait(240)
    for path in (f"/ui/models/{old.id}", f"/ui/models/{begun.new.id}/rebase"):
        assert find_faults(open_page(path)) == {}, path
    page = open_page(f"/ui/models/{old.id}").page
    page.get_by_role("link", name="Compare both image by image").click()
    expect(page.get_by_text("Of 20 held-out images moving (version 1) gets")).to_be_visible()
    page.get_by_text("Move production…", exact=True).click()
    page.get_by_role("button", name="Call the new model moving").click()
    expect(page.get_by_role("heading", name="Replaced moving-before-rebase")).to_be_visible()
    assert client.models.retrieve("moving").id == begun.new.id
