"""A head that answers worse than its features could: the warning leads to the model that it
advises.
"""

import pytest
from playwright.sync_api import expect

from tests.ui.conftest import BATCHES, OpenPage, Site

pytestmark = pytest.mark.slow


@pytest.mark.campaign  # tests/api/pages/test_new_model.py follows such a link
def test_a_warning_that_advises_a_new_model_leads_to_its_form_filled_in(
    site: Site, open_page: OpenPage
) -> None:
    client = site.client
    recipe = {"method": "finetune", "seed": 0}
    client.models.create(
        "biased", scenario="class", architecture="mlp", recipe=recipe, gate={"checks": "off"}
    )
    jobs = [client.submit("biased", batch, name=name) for name, batch in BATCHES[:3]]
    assert jobs[2].wait(240).version == 3
    watched = open_page(f"/ui/jobs/{jobs[2].id}")
    page = watched.page
    assert watched.faults() == []
    page.get_by_role("link", name="Create that model…").click()
    expect(page.get_by_label("Name", exact=True)).to_have_value("biased-analytic")
    expect(page.get_by_label("a version of another model")).to_be_checked()
    page.get_by_role("button", name="Create the model").click()
    expect(page.get_by_role("heading", name="Nothing learned yet")).to_be_visible()
    made = client.models.retrieve("biased-analytic")
    assert made.recipe.method is not None and made.recipe.method.name == "analytic"
    assert not isinstance(made.base, str) and made.base.version == 3
