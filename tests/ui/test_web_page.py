"""The page and the commands of `docs/howto/predict-from-a-web-page.md`: from other origins in
Chromium, and by curl.
"""

import json
import re
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, FilePayload, Page, expect

from tests.ui.conftest import BATCHES, PAGES_PORT, PATIENCE_MS, Site
from tools import service

pytestmark = pytest.mark.slow

HOWTO: str = (
    Path(__file__).parents[2] / "docs" / "howto" / "predict-from-a-web-page.md"
).read_text()
PAGE: str = re.findall(r"```html\n(.*?)```", HOWTO, re.DOTALL)[0]
ADDRESS = "https://perennial.example.org/v1/models/shop/versions/production/predict"
PHOTO = next(
    archive.read(name)
    for archive in [zipfile.ZipFile(BytesIO(BATCHES[0][1]))]
    for name in archive.namelist()
    if name.startswith("test/")
)


@pytest.fixture(scope="module")
def key(site: Site) -> str:
    """A key that may stand in a page."""
    ends = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    made = site.client.keys.create(
        "page",
        scope="predict",
        model="digits",
        alias="production",
        expires_at=ends,
        requests_per_s=100,
    )
    return made.secret


@contextmanager
def serve_page(port: int, text: str) -> Iterator[str]:
    """Serve a page at every path, from an origin of its own, and give its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.shutdown()


def fill_in_page(site: Site, key: str) -> str:
    """Return the page of the how-to, with this service's address and a key."""
    assert ADDRESS in PAGE and '"pk_…"' in PAGE
    return PAGE.replace(ADDRESS, make_predict_url(site)).replace("pk_…", key)


def make_predict_url(site: Site) -> str:
    return f"{site.url}/v1/models/digits/versions/production/predict"


@contextmanager
def open_page(browser: Browser, address: str) -> Iterator[Page]:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(address)
    yield page
    context.close()


def choose_photo(page: Page, photo: bytes = PHOTO) -> Any:
    page.locator("#photo").set_input_files(
        FilePayload(name="a.png", mimeType="image/png", buffer=photo)
    )
    return page.locator("#answer")


def test_the_page_of_the_how_to_is_answered_from_an_origin_that_is_allowed(
    site: Site, browser: Browser, key: str
) -> None:
    with (
        serve_page(PAGES_PORT, fill_in_page(site, key)) as address,
        open_page(browser, address) as page,
    ):
        expect(choose_photo(page)).to_have_text(re.compile(r"\w+, \d+ %"))
        expect(choose_photo(page, b"no image")).to_contain_text("The image cannot be used")
        expect(choose_photo(page)).to_have_text(re.compile(r"\w+, \d+ %"))
        for wrong in ("staging", "1"):
            refused = page.evaluate(
                "async url => (await fetch(url, {method: 'POST', headers: {Authorization: `Bearer "
                "${KEY}`}})).status",
                make_predict_url(site).replace("production", wrong),
            )
            assert refused == 403
        several = page.evaluate(
            """async () => {
                const form = new FormData();
                for (let n = 0; n < 2; n++) form.append("image", document.querySelector("#photo").files[0]);
                const headers = {Authorization: `Bearer ${KEY}`, "X-Request-Id": "page-7"};
                const answer = await fetch(PREDICT, {method: "POST", headers, body: form});
                return [answer.status, answer.headers.get("X-Request-Id")];
            }"""
        )
        assert several == [200, "page-7"]


@pytest.mark.parametrize(
    "origin",
    ["another port", pytest.param("localhost", marks=pytest.mark.campaign), "a sandboxed frame"],
)
def test_a_page_of_another_origin_cannot_ask(
    site: Site, browser: Browser, key: str, origin: str
) -> None:
    text, port = fill_in_page(site, key), PAGES_PORT
    if origin == "another port":
        port = service.find_free_port()
    with serve_page(port, text) as address:
        if origin == "localhost":
            address = address.replace("127.0.0.1", "localhost")
        with open_page(browser, address) as page:
            if origin == "a sandboxed frame":
                page.set_content(f'<iframe sandbox="allow-scripts" src="{address}"></iframe>')
                frame = page.frames[1]
                frame.wait_for_load_state()
                seen = frame.evaluate(
                    "ask(new Blob(['x'], {type: 'image/png'})).then(String, error => error.message)"
                )
                assert seen == "Failed to fetch"
            else:
                expect(choose_photo(page)).to_have_text("Failed to fetch")


def test_who_has_logged_in_is_nobody_to_an_allowed_page(
    site: Site, browser: Browser, session: Any
) -> None:
    ask = """async ([url, credentials, method]) => {
        try { return (await fetch(url, {method, credentials})).status; } catch (error) { return error.message; }
    }"""
    context = browser.new_context(storage_state=session)
    page = context.new_page()
    with serve_page(PAGES_PORT, "<title>A page</title>") as address:
        page.goto(address)
        predict, models = make_predict_url(site), f"{site.url}/v1/models"
        assert page.evaluate(ask, [predict, "omit", "POST"]) == 401
        for url, method in ((predict, "POST"), (models, "GET"), (f"{site.url}/v1/me", "GET")):
            assert page.evaluate(ask, [url, "include", method]) == "Failed to fetch", url
        assert page.evaluate(ask, [models, "omit", "GET"]) == "Failed to fetch"
    context.close()


def test_curl_sends_each_kind_of_body_and_is_answered_the_same(
    site: Site, key: str, tmp_path: Path
) -> None:
    (tmp_path / "bird.png").write_bytes(PHOTO)
    (tmp_path / "owl.jpg").write_bytes(PHOTO)
    (curl,) = [
        block for block in re.findall(r"```sh\n(.*?)```", HOWTO, re.DOTALL) if "curl" in block
    ]
    script = curl.replace("$PERENNIAL_URL/v1/models/shop", f"{site.url}/v1/models/digits")
    script = script.replace("curl -sS", "curl -sS -w '\\n'")
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PAGE_KEY": key},
        capture_output=True,
    )
    raw, form, instances = (json.loads(line) for line in done.stdout.splitlines())
    assert raw == instances and len(raw["predictions"]) == 1 and len(form["predictions"]) == 2
    for one in form["predictions"]:
        assert one.pop("name") in ("bird.png", "owl.jpg")
        assert {"name": None, **one} == raw["predictions"][0]
