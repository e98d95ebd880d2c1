"""Every page as people meet it: light and dark, wide and narrow, by keyboard, without JavaScript,
on no other host.
"""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from tests.ui.conftest import (
    BATCHES,
    CONTRAST,
    HOSTILE,
    OpenPage,
    Site,
    Watched,
    find_pages,
)

pytestmark = pytest.mark.slow

ELSEWHERE = {
    "/ui/login": "test_the_login_is_well_made",
    "/ui/models/{model}/rebase": "test_both_models_are_compared_on_a_page_that_moves_production",
}
"""Pages that need another state of the service, and the tests that look at them."""
STATES = (
    *("a model without a version", "two versions", "a rejected job", "settings of a method"),
    "a plan that cannot be undone",
)
IN_CAMPAIGN = ("a cell", "two versions without a common task", "no model of that name")
"""States of which those above show all that can be wrong."""


@pytest.mark.parametrize(
    "page",
    [
        *(page for page in find_pages() if page not in ELSEWHERE),
        *STATES,
        *(pytest.param(state, marks=pytest.mark.campaign) for state in IN_CAMPAIGN),
    ],
)
def test_a_page_is_well_made_light_and_dark_wide_and_narrow(
    site: Site, open_page: OpenPage, page: str
) -> None:
    assert find_faults(open_page(site.path_of(page))) == {}


def test_every_page_that_is_looked_at_elsewhere_is_there_with_its_test() -> None:
    assert ELSEWHERE.keys() <= set(find_pages())
    folder = Path(__file__).parent
    sources = "".join(file.read_text() for file in folder.glob("test_*.py"))
    assert [name for name in ELSEWHERE.values() if f"def {name}(" not in sources] == []


def test_every_state_is_looked_at(site: Site) -> None:
    assert sorted((*STATES, *IN_CAMPAIGN)) == sorted(site.states)


def find_faults(watched: Watched) -> dict[str, list[str]]:
    """Return what is wrong on a page, by how it was looked at.
    All parts that can be unfolded are open.
    """
    page = watched.page
    page.evaluate("for (const one of document.querySelectorAll('main details')) one.open = true")
    wrong = {"light": watched.faults()}
    page.emulate_media(color_scheme="dark")
    wrong["dark"] = watched.faults(runOnly=CONTRAST)
    page.set_viewport_size({"width": 360, "height": 740})
    if (width := page.evaluate("document.documentElement.scrollWidth")) > 360:
        wrong["narrow"] = [f"it is {width} pixels wide on a screen of 360"]
    return {kind: found for kind, found in wrong.items() if found}


def test_the_login_is_well_made(site: Site, browser: Any) -> None:
    context = browser.new_context(base_url=site.url)
    watched = Watched(context.new_page())
    watched.page.goto("/ui")
    assert watched.page.url.endswith("/ui/login?next=/ui")
    watched.page.get_by_label("Key").fill("pk_wrong")
    watched.page.keyboard.press("Enter")
    expect(watched.page.get_by_role("alert")).to_contain_text("This is no Perennial key")
    assert watched.faults() == []
    context.close()


def test_the_page_of_the_api_shows_routes_without_a_network(open_page: OpenPage) -> None:
    page = open_page("about:blank").page

    def answer_short_document(route: Route) -> None:
        """Answer a document of one route: to write and draw all of them takes seconds."""
        read = {"get": {"summary": "Read metrics", "responses": {"200": {"description": "They"}}}}
        about = {"openapi": "3.1.0", "info": {"title": "Perennial", "version": "1"}}
        route.fulfill(json={**about, "paths": {"/v1/models/{model}/metrics": read}})

    page.route("**/openapi.json", answer_short_document)
    page.goto("/docs")
    page.get_by_text("/v1/models/{model}/metrics").wait_for()


def test_what_somebody_named_is_text_and_nothing_else(site: Site, open_page: OpenPage) -> None:
    page = open_page(site.home).page
    expect(page.locator("main")).to_contain_text(HOSTILE)
    page.get_by_text("How production moved", exact=True).click()
    expect(page.locator("main")).to_contain_text(f"worse {HOSTILE}")
    page.goto(site.path_of("a rejected job"))
    expect(page.locator("#log")).to_contain_text(HOSTILE)
    expect(page.locator("img[src=x]")).to_have_count(0)


def test_the_matrix_is_walked_by_arrows_and_a_cell_opened_by_enter(
    site: Site, open_page: OpenPage
) -> None:
    page = open_page(site.home).page
    expect(page.locator("#r tbody a[tabindex='0']")).to_have_count(1)
    page.locator("#r tbody a[tabindex='0']").focus()
    where = "document.activeElement.getAttribute('aria-label')"
    assert page.evaluate(where).startswith("Version 2, task 1:")
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowDown"):
        page.keyboard.press(key)
    assert page.evaluate(where).startswith("Version 1, task 1:")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Version 1 on task 1").wait_for()
    assert "v=1&t=1" in page.url


def test_without_javascript_lists_matrix_and_forms_work(site: Site, open_page: OpenPage) -> None:
    page = open_page("/ui", java_script_enabled=False).page
    page.get_by_role("link", name="digits", exact=True).click()
    page.get_by_role("link", name="Version 2, task 1:").click()
    expect(page.get_by_role("heading", name="Version 2 on task 1")).to_be_visible()
    expect(page.get_by_role("heading", name="Accuracy from version to version")).to_have_count(0)
    page.goto(site.home)
    page.get_by_role("button", name="Let production follow later versions").click()
    expect(page.locator("main")).not_to_contain_text("does not replace it")
    page.get_by_text("Put version 2 back in production…").click()
    page.get_by_label("Reason").locator("visible=true").fill("by hand, without a script")
    page.get_by_role("button", name="Put version 2 back in production").click()
    expect(page.get_by_role("heading", name="Production is version 2")).to_be_visible()
    expect(page.get_by_role("heading", name="1 thing waits for you")).to_be_visible()
    moves = list(site.client.aliases.history("digits"))
    assert moves[-1].reason == "by hand, without a script"


def test_without_javascript_a_webhook_is_made_tried_out_and_deleted(
    site: Site, open_page: OpenPage
) -> None:
    page = open_page("/ui/webhooks", refusals=True, java_script_enabled=False).page
    page.get_by_label("Address").fill("https://169.254.169.254/")
    page.get_by_label("alias.moved").uncheck()
    page.get_by_role("button", name="Make the webhook").click()
    expect(page.get_by_role("alert")).to_contain_text("is a link-local address")
    expect(page.get_by_label("alias.moved")).not_to_be_checked()
    page.get_by_label("Address").fill("https://93.184.215.14/by-hand")
    page.get_by_role("button", name="Make the webhook").click()
    expect(page.get_by_role("status")).to_contain_text("whsec_")
    page.get_by_role("button", name="Disable").click()
    expect(page.locator("main")).to_contain_text("A person disabled it.")
    page.get_by_role("button", name="Enable").click()
    page.get_by_text("Delete…").click()
    page.get_by_label("Delete this webhook").check()
    page.get_by_role("button", name="Delete the webhook").click()
    expect(page.get_by_role("heading", name="Webhooks")).to_be_visible()
    assert "by-hand" not in page.content()


def test_a_test_of_a_webhook_is_followed_until_it_is_delivered(
    site: Site, open_page: OpenPage
) -> None:
    page = open_page("/ui/webhooks").page
    page.get_by_role("link", name="/told").click()
    page.get_by_role("button", name="Send a test").wait_for()
    rows = page.locator("#deliveries tbody tr")
    before = rows.count()  # other tests move aliases, which it is told too
    page.get_by_role("button", name="Send a test").click()
    expect(rows).to_have_count(before + 1)
    expect(page.locator("#deliveries .state.delivered")).to_have_count(before + 1, timeout=120_000)


def test_the_curves_are_drawn_and_what_filters_is_typed(site: Site, open_page: OpenPage) -> None:
    page = open_page(site.home).page
    expect(page.locator("#curves canvas")).to_be_visible()
    page.goto("/ui")
    page.get_by_label("Name").fill("bar")
    page.get_by_role("link", name="digits", exact=True).wait_for(state="detached")
    expect(page.get_by_role("link", name="bare", exact=True)).to_be_visible()


def test_a_job_and_its_model_are_followed_until_it_is_over(site: Site, open_page: OpenPage) -> None:
    name, batch = BATCHES[0]
    client = site.client
    client.models.create("live", scenario="class", architecture="mlp", recipe={"epochs": 3})
    listed = open_page("/ui")
    job = client.submit("live", batch, name=name)
    page = open_page(f"/ui/jobs/{job.id}").page
    page.get_by_text("It made").wait_for(timeout=120_000)
    expect(page.locator("#loss canvas")).to_be_visible()
    assert page.locator("#log li").count() > 3
    expect(page.locator("#job")).to_have_attribute("data-terminal", "yes")
    row = listed.page.get_by_role("row").filter(has_text="live")
    row.get_by_text("version 1", exact=True).wait_for()


def test_two_versions_are_chosen_and_compared_without_javascript(
    site: Site, open_page: OpenPage
) -> None:
    page = open_page(site.home, java_script_enabled=False).page
    page.get_by_role("radio", name="From version 1").check()
    page.get_by_role("radio", name="To version 2").check()
    page.get_by_role("button", name="Compare the two").click()
    expect(page.get_by_role("heading", name="Version 2 beside version 1")).to_be_visible()
    told = site.client.versions.compare("digits", 1, 2)
    worse = page.locator(".tiles div", has_text="Got worse").locator("dd").first
    expect(worse).to_have_text(str(told.totals.negative))
    page.get_by_role("link", name="task 1", exact=True).first.click()
    assert "task=1" in page.url


def test_flipped_images_are_shown_with_both_answers(site: Site, open_page: OpenPage) -> None:
    told = site.client.versions.compare("digits", 1, 2).totals
    kind = max(("negative", "positive", "both_wrong"), key=lambda name: getattr(told, name))
    page = open_page(f"{site.path_of('two versions')}&flips={kind}").page
    shown = page.locator(".flipped img")
    expect(shown).to_have_count(min(48, getattr(told, kind)))
    if getattr(told, kind):
        shown.first.scroll_into_view_if_needed()
        width = "async image => { await image.decode(); return image.naturalWidth }"
        assert shown.first.evaluate(width) > 0
