"""Pictures of every page, of a model that was taught scikit-learn's digits: to look at, and for the
documents.

    python -m tests.ui.pictures --out DIR [--docs docs/pictures] [--stream BATCHES]
        [--only NAME ...]
    python -m tests.ui.pictures --docs docs/pictures --demo http://127.0.0.1:8000

DIR gets each page light and dark, at 360 and 1280 pixels and on a 4K screen; `--docs` the few that
documents show. NAME is that of a page, such as `model`: all by default. BATCHES is a folder of
archives: a model learns all of them in the order of their names, instead of the digits. With the
address of a running `perennial serve --demo`, only the held version of its model is taken, as
`held.png`.
"""

import argparse
import io
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image
from playwright.sync_api import sync_playwright

from core.packaged import sample_pictures
from core.packaged.packaged_base import PACKAGED
from perennial import JobEnded, Perennial
from tests.ui.files import make_payload
from tools import digits, service

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

SIZES = {"360": (360, 740, 2), "1280": (1280, 900, 1), "4k": (1920, 1080, 2)}
"""Name → width and height in CSS pixels, device pixels of each."""
SHOWN = {"models": 460, "model": 1290, "job": 900, "submit": 1150, "compare": 1100}
"""Pages that documents show, and how high each picture is, in pixels."""
MOST_BYTES = 150_000
MARGIN = 20
"""Pixels above and below what `held.png` shows."""
Batches = list[tuple[str, bytes]]
COLOURS = 256


def teach_digits(client: Perennial) -> dict[str, str]:
    """Teach a model the digits, with a rollback and a held version.
    Return its pages' paths by name.
    """
    gate = {"max_forgetting": 0.1}
    text = "Digits as they were written on forms."
    model = client.models.create(
        "digits",
        scenario="class",
        gate=gate,
        description=text,
        recipe={"seed": 0},
        base=PACKAGED,  # digits of 8 pixels gain nothing from the base for photos
    )
    client.models.create("birds", scenario="class", description="Nothing learned yet.")
    batches = digits.build_digit_archives()
    jobs = [client.submit("digits", batch, name=name) for name, batch in batches[:3]]
    for job in jobs:
        job.wait(600)
    client.aliases.rollback("digits", reason="worse on 4")
    client.aliases.follow("digits")
    held = client.submit(
        "digits", batches[3][1], name=batches[3][0], recipe={"method": "der++", "epochs": 1}
    )
    with suppress(JobEnded):
        held.wait(600)
    home = f"/ui/models/{model.id}"
    return {
        "models": "/ui",
        "new model": "/ui/models/new",
        "model": home,
        "nothing learned": f"/ui/models/{client.models.retrieve('birds').id}",
        "submit": f"{home}/submit",
        "task": f"{home}/tasks/2",
        "compare": f"{home}/compare?a=2&b=4",
        "webhooks": "/ui/webhooks",
        "job": f"/ui/jobs/{jobs[2].id}",
        "held job": f"/ui/jobs/{held.id}",
        "predict": f"{home}/versions/production/predict",
        "keys": "/ui/admin/keys",
        "audit": "/ui/admin/audit",
        "usage": "/ui/admin/usage",
        "not found": "/ui/models/nothing",
    }


def teach_stream(client: Perennial, batches: Batches) -> dict[str, str]:
    """Teach a model many batches by the defaults, and return its pages' paths by name."""
    model = client.models.create(
        "photos", scenario="class", gate={"max_forgetting": 0.1}, recipe={"seed": 0}
    )
    jobs = [client.submit("photos", batch, name=name) for name, batch in batches]
    for job in jobs:
        job.wait(3600)
    last = len(batches)
    client.aliases.rollback("photos", reason="too slow on the old cameras")
    home = f"/ui/models/{model.id}"
    return {
        "models": "/ui", "model": home, "a cell": f"{home}?v={last}&t={last // 2}",
        "submit": f"{home}/submit", "task": f"{home}/tasks/{last // 2}",
        "compare": f"{home}/compare?a={last // 2}&b={last}", "job": f"/ui/jobs/{jobs[-1].id}",
        "predict": f"{home}/versions/production/predict", "audit": "/ui/admin/audit",
        "usage": "/ui/admin/usage",
    }  # fmt: skip


@contextmanager
def log_in(
    browser: "Browser",
    running: service.RunningService,
    width: int,
    height: int,
    scale: int,
    scheme: Any,
) -> Iterator["BrowserContext"]:
    """Yield a browser context that is logged in."""
    options: dict[str, Any] = {"device_scale_factor": scale, "color_scheme": scheme}
    context = browser.new_context(
        base_url=running.url, viewport={"width": width, "height": height}, **options
    )
    page = context.new_page()
    page.goto("/ui")
    page.get_by_label("Key").fill(running.key)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/ui")
    page.close()
    yield context
    context.close()


def open_page(context: "BrowserContext", name: str, path: str, batches: Batches) -> "Page":
    """Open a page, and fill it as its picture shows it."""
    page = context.new_page()
    page.goto(path)
    fill_page(page, name, batches)
    load_all_images(page)
    return page


def fill_page(page: "Page", name: str, batches: Batches) -> None:
    """Fill a page's form before its picture is taken; `batches`: names and archives."""
    if name == "submit":
        page.locator("#file").set_input_files(
            [make_payload(f"{label}.zip", batch) for label, batch in batches[-2:]]
        )
        page.get_by_text("Uploaded and looked at.").nth(1).wait_for()
        page.locator("#choice").select_option("method:der++")
        page.get_by_text("The same from a terminal").click()
        page.get_by_text("--recipe").wait_for()
    if name == "predict":
        _, batch = batches[1]
        with zipfile.ZipFile(io.BytesIO(batch)) as archive:
            names = archive.namelist()[:60:20]
            photos = [
                make_payload(name.replace("/", "-"), archive.read(name), "image/png")
                for name in names
            ]
        page.locator("input[type=file]").set_input_files(photos)
        page.get_by_role("button", name="Predict").click()
        page.locator(".answers").wait_for()


def load_all_images(page: "Page") -> None:
    """Scroll through a page, so that it loads all its images, and back to the top."""
    page.evaluate(
        """async () => {
            for (let y = 0; y < document.body.scrollHeight; y += innerHeight) {
                scrollTo(0, y);
                await new Promise((done) => setTimeout(done, 50));
            }
            await Promise.all([...document.images].map((one) => one.decode().catch(() => {})));
            scrollTo(0, 0);
        }"""
    )
    page.wait_for_timeout(300)


def take_pictures(
    browser: "Browser",
    running: service.RunningService,
    paths: dict[str, str],
    out: Path,
    batches: Batches,
) -> None:
    """Take pictures of pages in all sizes, light and dark."""
    out.mkdir(parents=True, exist_ok=True)
    for size, (width, height, scale) in SIZES.items():
        for scheme in ("light", "dark"):
            with log_in(browser, running, width, height, scale, scheme) as context:
                for name, path in paths.items():
                    page = open_page(context, name, path, batches)
                    file = out / f"{name.replace(' ', '-')}-{size}-{scheme}.png"
                    page.screenshot(path=file, full_page=True)
                    page.close()


def take_document_pictures(
    browser: "Browser", running: service.RunningService, paths: dict[str, str], folder: Path
) -> None:
    """Take the pictures for documents, small enough for a repository."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, height in SHOWN.items():
        with log_in(browser, running, 1280, height, 1, "light") as context:
            page = open_page(context, name, paths[name], digits.build_digit_archives())
            save_small_picture(page.screenshot(), folder / f"{name}.png")


def take_held_version(browser: "Browser", url: str, folder: Path) -> None:
    """Take a picture of the demo's held version and the actions that it offers."""
    page = browser.new_page(viewport={"width": 1280, "height": 1800})
    page.goto(f"{url}/ui")
    page.get_by_role("link", name=sample_pictures.MODEL).first.click()
    page.locator(".attention").wait_for()
    load_all_images(page)
    top = page.locator(".head").bounding_box()
    asks = page.locator(".attention").bounding_box()
    assert top is not None and asks is not None, "both were waited for"
    height = asks["y"] + asks["height"] - top["y"] + 2 * MARGIN
    clip: Any = {"x": 0, "y": top["y"] - MARGIN, "width": 1280, "height": height}
    save_small_picture(page.screenshot(clip=clip), folder / "held.png")


def save_small_picture(picture: bytes, path: Path) -> None:
    """Save a picture with few colours.

    Raises:
        SystemExit: the file has more than `MOST_BYTES`.
    """
    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    if path.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{path} has {path.stat().st_size} bytes; {MOST_BYTES} are allowed.")


def main() -> None:
    """Start a service, teach it, and take the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="folder for all pages in all sizes")
    parser.add_argument("--docs", type=Path, help="folder for the few that documents show")
    parser.add_argument(
        "--stream", type=Path, help="folder of archives to teach in place of the digits"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="pages of --out: all by default")
    parser.add_argument("--demo", help="address of a running demo, whose held version is taken")
    given = parser.parse_args()
    chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    if given.demo is not None:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium)
            take_held_version(browser, given.demo, given.docs)
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        service.run_temporary_service(Path(folder)) as running,
        Perennial(running.key, base_url=running.url) as client,
        sync_playwright() as playwright,
    ):
        batches = digits.build_digit_archives()
        if given.stream is not None:
            batches = [
                (file.stem, file.read_bytes()) for file in sorted(given.stream.glob("*.zip"))
            ]
        paths = teach_digits(client) if given.stream is None else teach_stream(client, batches)
        if unknown := sorted(set(given.only or ()) - set(paths)):
            parser.error(f"no page {unknown[0]!r}; pages: {', '.join(paths)}")
        browser = playwright.chromium.launch(executable_path=chromium)
        if given.out is not None:
            pictured = {name: paths[name] for name in given.only or paths}
            take_pictures(browser, running, pictured, given.out, batches)
        if given.docs is not None:
            take_document_pictures(browser, running, paths, given.docs)
        browser.close()


if __name__ == "__main__":
    main()
