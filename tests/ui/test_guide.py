"""The guide in a browser whose user is logged in to the service."""

from collections.abc import Callable, Iterator

import pytest
from fastapi import FastAPI
from playwright.sync_api import Page, Route, expect
from starlette.testclient import TestClient

from api.description import guide
from tests.ui.conftest import CONTRAST, OpenPage, Site, Watched
from tools.guide.build import rebuild_guide_folder

pytestmark = pytest.mark.slow

OpenGuide = Callable[[str], Watched]


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """The routes of the guide alone, with the guide of these documents."""
    folder = tmp_path_factory.mktemp("guide") / "built"
    rebuild_guide_folder(folder)
    app = FastAPI()
    guide.add_guide_routes(app)
    with pytest.MonkeyPatch.context() as patch, TestClient(app) as client:
        patch.setattr(guide, "FOLDER", folder)
        yield client


@pytest.fixture
def open_guide(open_page: OpenPage, routes: TestClient) -> OpenGuide:
    """Opens a page of the guide at the address of the service, whose checkout may have none."""

    def fulfill_guide_route(route: Route) -> None:
        path = "/" + route.request.url.split("/", 3)[3]
        response = routes.get(path, headers={"Accept-Encoding": "identity"})
        route.fulfill(
            status=response.status_code, headers=dict(response.headers), body=response.content
        )

    def open_guide_page(name: str) -> Watched:
        watched = open_page("about:blank")
        watched.page.route("**/docs/guide/**", fulfill_guide_route)
        watched.page.goto(f"/docs/guide/{name}")
        return watched

    return open_guide_page


def test_a_word_is_found_and_its_section_opened_by_the_keyboard(open_guide: OpenGuide) -> None:
    page = open_guide("howto/install.html").page
    page.keyboard.press("/")
    page.keyboard.type("forgetting")
    first = page.locator("#results a").first
    expect(first.locator("mark").first).to_have_text("forgetting", ignore_case=True)
    target = first.get_attribute("href")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == target
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/docs/guide/{str(target).removeprefix('../')}")


def test_what_is_typed_never_becomes_html(open_guide: OpenGuide) -> None:
    page = open_guide("index.html").page
    page.locator("#query").fill("<img src=x onerror=alert(1)> forgetting")
    expect(page.locator("#results p")).to_have_text("No section has all these words.")
    expect(page.locator("#results img")).to_have_count(0)


def run_in_page(page: Page, code: str) -> object:
    """Run code in a page as its own script would, and return its value or the error's name."""
    return page.evaluate(f"(async () => {code})().catch(error => error.name)")


def test_a_page_of_the_guide_cannot_act_for_the_person_who_is_logged_in(
    site: Site, open_guide: OpenGuide
) -> None:
    watched = open_guide("index.html")
    page = watched.page
    assert page.evaluate("self.origin") == "null"
    assert run_in_page(page, "document.cookie") == "SecurityError"
    assert run_in_page(page, "localStorage.length") == "SecurityError"
    assert (
        run_in_page(page, f"fetch('{site.url}/v1/models', {{credentials: 'include'}})")
        == "TypeError"
    )
    # Without a window of the service, there is none whose page could be read or clicked.
    assert run_in_page(page, f"window.open('{site.url}{site.home}')") is None
    submitted = """{
        const form = document.createElement("form");
        Object.assign(form, {method: "post", action: "/ui/logout"});
        document.body.append(form);
        form.submit();
    }"""
    assert run_in_page(page, submitted) is None
    framed = """{
        const frame = document.createElement("iframe");
        frame.src = "/ui";
        document.body.append(frame);
        await new Promise(resolve => frame.addEventListener("load", resolve));
        return frame.contentDocument;
    }"""
    assert run_in_page(page, framed) is None
    assert page.url.endswith("/docs/guide/index.html")
    assert any("form-action" in said or "sandbox" in said for said in watched.wrong)
    watched.wrong.clear()  # the browser's messages about these attempts
    page.unroute_all()
    page.goto("/ui")
    expect(page.get_by_role("button", name="Log out")).to_be_visible()


@pytest.mark.parametrize(
    "name",
    [
        "reference/limits",
        # documents of the same kinds of blocks
        pytest.param("index", marks=pytest.mark.campaign),
        pytest.param("howto/send-a-batch", marks=pytest.mark.campaign),
        pytest.param("tutorial", marks=pytest.mark.campaign),
    ],
)
def test_a_page_fits_a_phone_and_breaks_no_rule_of_accessibility(
    open_guide: OpenGuide, name: str
) -> None:
    watched = open_guide(f"{name}.html")
    page = watched.page
    for scheme, width, rules in (("light", 390, {}), ("dark", 1280, {"runOnly": CONTRAST})):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # Preloading, axe would fetch the style sheets, which the policy forbids.
        assert watched.faults(preload=False, **rules) == []


def test_the_pages_of_the_service_lead_to_it(open_page: OpenPage) -> None:
    link = open_page("/ui").page.get_by_role("link", name="Guide")
    assert link.get_attribute("href") == "/docs/guide/"
