"""The client of the page that submits: tus-js-client in Chromium sends a file through a connection
that is cut.
"""

import random
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fault_proxy import FaultProxy
from running_site import Site
from upload_sites import (
    MB,
    check_nothing_left,
    open_admin_client,
    read_admin_key,
    submit_upload,
    write_large_archive,
)

from core.uploads.uploads import LEAST_BYTES

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CLIENT = Path(__file__).parents[2] / "api" / "static" / "vendor" / "tus.min.js"
UPLOAD = """([key, chunk]) => new Promise((resolve, reject) => {
    const file = document.querySelector("input").files[0];
    const upload = new tus.Upload(file, {
        endpoint: "/v1/uploads",
        chunkSize: chunk,
        retryDelays: Array(50).fill(100),
        headers: {Authorization: `Bearer ${key}`},
        metadata: {filename: file.name},
        onError: (error) => reject(error),
        onSuccess: () => resolve(upload.url),
    });
    upload.start();
})"""


def check_upload_through_cuts(
    running: Site, browser: "Browser", file: Path, size: int, chunk: int, cuts: int
) -> None:
    digest, draw, form = write_large_archive(file, size), random.Random(size), "<input type=file>"
    with closing(FaultProxy(running.port)) as proxy, closing(browser.new_page()) as page:
        origin = f"http://127.0.0.1:{proxy.port}"
        page.set_default_timeout(900_000)
        page.route(
            f"{origin}/page", lambda route: route.fulfill(body=form, content_type="text/html")
        )
        page.goto(f"{origin}/page")  # of the service's origin, as its own pages are
        page.add_script_tag(path=CLIENT)
        page.set_input_files("input", file)
        # What came before a cut is kept: connections that carry so small a share need as many to
        # bring the file.
        proxy.fault("cut", [draw.randrange(size // (2 * cuts), size // cuts) for _ in range(cuts)])
        url = page.evaluate(UPLOAD, [read_admin_key(running), chunk])
        assert proxy.cuts >= cuts
    with open_admin_client(running) as client:
        where = f"/v1/uploads/{url.rpartition('/')[2]}"
        (listed,) = client.get("/v1/uploads").json()["items"]
        assert (listed["filename"], listed["offset"]) == (file.name, file.stat().st_size)
        submit_upload(client, where, digest)
    check_nothing_left(running)


# tests/ui/test_submit.py cuts an upload of the page, tests/faults/test_uploads.py one of tuspy
@pytest.mark.campaign
def test_a_browsers_client_gets_a_file_through_four_cuts(
    api: Site, browser: "Browser", tmp_path: Path
) -> None:
    check_upload_through_cuts(api, browser, tmp_path / "week.zip", 6 * MB, LEAST_BYTES, 4)


@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_a_browsers_client_gets_a_gigabyte_through_twenty_cuts(
    api: Site, browser: "Browser", tmp_path: Path
) -> None:
    check_upload_through_cuts(api, browser, tmp_path / "week.zip", 1024 * MB, 64 * MB, 20)
