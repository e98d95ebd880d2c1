"""Real pages in a real Chromium.

All tests of a process share one service with one learned model, and one browser.
"""

import io
import re
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import chromium
import pytest
import receiver as receivers
from playwright.sync_api import Browser, Page, Request, ViewportSize, expect
from receiver import Receiver

from perennial import JobEnded, Perennial
from tests.client.small_batches import reduce_batch
from tools import digits, service

PAGES_PORT = service.find_free_port()
"""Port of the origin whose pages may request predictions."""
SETTINGS = {
    "PERENNIAL_THREADS": "1",
    "PERENNIAL_ANYTIME_S": "0.5",
    "PERENNIAL_WEBHOOK_ALLOW": "127.0.0.0/8",
    "PERENNIAL_PREDICT_ORIGINS": f"http://127.0.0.1:{PAGES_PORT}",
}
PATIENCE_MS = 60_000
"""Time limit on a busy machine; the default is 5 s."""
expect.set_options(timeout=PATIENCE_MS)
WIDE: ViewportSize = {"width": 1280, "height": 900}
BATCHES = [
    (name, reduce_batch(batch, test=10, train=12)) for name, batch in digits.build_digit_archives()
]
"""Names and archives of five batches of two digits each.

Each has 24 training images and 20 test images, so that accuracies are whole percents.
"""
HOSTILE = "<img src=x onerror=alert(1)>"
"""A hostile name that a user chose."""
CONTRAST = ["color-contrast", "link-in-text-block"]
"""The axe rules that depend on colours."""
AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()


@dataclass
class Watched:
    """A page, and errors that must not occur on it.

    These are console messages, errors, and requests to other hosts.
    """

    page: Page
    wrong: list[str] = field(default_factory=list)
    refusals: bool = False

    def pardons(self, said: str) -> bool:
        return self.refusals and said.startswith("console: Failed to load resource: ")

    def faults(self, **options: object) -> list[str]:
        """Run axe, and return the rules that the page breaks.

        Each has axe's own description, and the first place where it is broken.
        """
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE)
        # Of what is right axe would describe every place too, which takes longer than to look.
        options["resultTypes"] = ["violations"]
        found = self.page.evaluate("options => axe.run(options)", options)
        return [
            f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}"
            for one in found["violations"]
        ]


OpenPage = Callable[..., Watched]


class _OneBrowser:
    """A browser for all tests of this folder.

    While it is open, playwright's event loop runs in the process.

    Attributes:
        left: pages that no test uses, by the options of their contexts: opening a new one takes
            longer than most tests.
    """

    def __init__(self) -> None:
        self._stack, self._browser = ExitStack(), None
        self.left: dict[str, list[Watched]] = {}

    def open(self) -> Browser:
        if self._browser is None:
            self._browser = self._stack.enter_context(chromium.launch_browser())
        return self._browser

    def close(self) -> None:
        self._stack.close()
        self._browser, self.left = None, {}


_ONE = _OneBrowser()


@pytest.hookimpl(trylast=True)  # after the fixtures of the test
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Close the browser before a test of another folder, which may run its own event loop."""
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        _ONE.close()


@pytest.fixture
def browser() -> Browser:
    return _ONE.open()


@dataclass
class Site:
    """A service with a model that learned two batches.

    It was rolled back once, and rejected a third batch.

    Attributes:
        samples: values of the parameters in the paths of pages.
        states: paths of pages in a special state, by name.
    """

    url: str
    key: str
    client: Perennial
    model: str
    job: str
    rejected: str
    samples: dict[str, str]
    states: dict[str, str]

    @property
    def home(self) -> str:
        """Return the path of the model's page."""
        return f"/ui/models/{self.model}"

    def path_of(self, page: str) -> str:
        """Return the path of a state by its name, or of one of `find_pages` with its samples."""
        if page in self.states:
            return self.states[page]
        missing = set(re.findall(r"{(\w+)}", page)) - self.samples.keys()
        if missing:
            pytest.fail(
                f"The page {page} has no sample for {', '.join(sorted(missing))}. Add one to "
                "`samples` in `_made` of tests/ui/conftest.py."
            )
        return page.format(**self.samples)


def find_pages() -> list[str]:
    """Return the paths of all pages with their parameters, such as `/ui/jobs/{job}`."""
    root = Path(__file__).parents[2]
    files = sorted((root / "api" / "pages").rglob("*.py"))
    # By name: what an import names makes `make test-changed` look at all pages after any change.
    modules = (
        import_module(".".join(file.relative_to(root).with_suffix("").parts)) for file in files
    )
    routers = (module.router for module in modules if hasattr(module, "router"))
    return [route.path for router in routers for route in router.routes if "GET" in route.methods]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Return the service, its model and the paths of its pages, by name."""
    folder = tmp_path_factory.mktemp("site")
    with (
        service.run_temporary_service(folder, SETTINGS) as running,
        receivers.run_receiver() as receiver,
        Perennial(running.key, base_url=running.url) as client,
    ):
        yield _build_site(running, client, receiver)


def _build_site(running: service.RunningService, client: Perennial, receiver: Receiver) -> Site:
    model = client.models.create(
        "digits", scenario="class", recipe={"seed": 0}, description=f"Ten {HOSTILE}"
    )
    client.models.create("bare", scenario="class")
    jobs = [client.submit("digits", batch, name=name) for name, batch in BATCHES[:2]]
    for job in jobs:
        job.wait(240)
    client.aliases.rollback("digits", reason=f"worse {HOSTILE}")
    bad = client.submit("digits", build_spoiled_batch(), name="scans")
    with pytest.raises(JobEnded):
        bad.wait(240)
    home = f"/ui/models/{model.id}"
    samples = {
        "model": model.id,
        "version": "production",
        "n": "2",
        "job": jobs[1].id,
        "webhook": _create_webhooks(client, receiver),
    }
    states = {
        "a cell": f"{home}?v=2&t=1",
        "a model without a version": f"/ui/models/{client.models.retrieve('bare').id}",
        "two versions": f"{home}/compare?a=1&b=2",
        "two versions without a common task": f"{home}/compare?a=0&b=2",
        "a rejected job": f"/ui/jobs/{bad.id}",
        "no model of that name": "/ui?q=nothing",
        "a plan that cannot be undone": f"{home}/edits/plan?what=remove&task=1&images=0,1",
        "settings of a method": f"{home}/submit?choice=method:dlcft",
    }
    return Site(running.url, running.key, client, model.id, jobs[1].id, bad.id, samples, states)


def _create_webhooks(client: Perennial, receiver: Receiver) -> str:
    """Create three webhooks: one with a delivery, one whose last attempt failed, and one disabled.

    Return the id of the second.
    """
    receiver.status = lambda path, number: 500 if path == "/failing" and number else 204
    hooks = [
        client.webhooks.create(f"{receiver.url}/{name}").id for name in ("told", "failing", "over")
    ]
    _send_tests(client, hooks)
    _send_tests(client, hooks[1:2])
    client.webhooks.update(hooks[2], enabled=False)
    return hooks[1]


def _send_tests(client: Perennial, hooks: Sequence[str]) -> None:
    """Send a test to each webhook, and wait until all were tried."""
    sent = {hook: client.webhooks.test(hook).id for hook in hooks}
    deadline = time.monotonic() + 60
    while not all(client.webhooks.retrieve_delivery(*one).attempts for one in sent.items()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def build_spoiled_batch() -> bytes:
    """Build a batch that has a class without any decodable image.

    The name of this class is invalid, too.
    """
    out = io.BytesIO(BATCHES[0][1])
    with zipfile.ZipFile(out, "a") as archive:
        for index in range(30):
            archive.writestr(f"train/a{HOSTILE}/{index}.png", b"\x89PNG\r\n\x1a\nno image")
    return out.getvalue()


@pytest.fixture(scope="session")
def session(site: Site) -> Any:
    """Return the cookies of a user who has logged in on the login page."""
    context = _ONE.open().new_context(base_url=site.url)
    page = context.new_page()
    page.goto("/ui/models/digits")
    page.get_by_label("Key").fill(site.key)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/ui/models/digits")
    cookies = context.storage_state()
    context.close()
    return cookies


@pytest.fixture
def open_page(site: Site, browser: Browser, session: Any) -> Iterator[OpenPage]:
    """Yield a function that opens a path for a logged-in user.

    Nothing may go wrong on the page until the test is over.

    Args:
        refusals: whether some of the page's requests are to fail.
        options: options of the browser's context.
    """
    taken: list[tuple[str, Watched]] = []

    def open_path(path: str, refusals: bool = False, **options: Any) -> Watched:
        kind = repr(options)
        watched = _ONE.left[kind].pop() if _ONE.left.get(kind) else create_watched_page(options)
        watched.refusals = refusals
        taken.append((kind, watched))
        watched.page.goto(path)
        return watched

    def create_watched_page(options: dict[str, Any]) -> Watched:
        context = browser.new_context(
            base_url=site.url, storage_state=session, viewport=WIDE, **options
        )
        context.set_default_timeout(PATIENCE_MS)
        watched = Watched(context.new_page())
        record_problems(watched, site.url)
        return watched

    yield open_path
    wrong = [said for _, watched in taken for said in watched.wrong if not watched.pardons(said)]
    for kind, watched in taken:
        watched.page.unroute_all()
        watched.page.emulate_media(color_scheme="null")  # the browser's own
        watched.page.set_viewport_size(WIDE)
        # A page of the guide has an origin of its own, which has no storage.
        watched.page.evaluate("self.origin === 'null' || localStorage.clear()")
        watched.page.goto(
            "about:blank"
        )  # a page that is followed would ask the service again and again
        watched.wrong.clear()
        _ONE.left.setdefault(kind, []).append(watched)
    assert wrong == []


def choose_files(page: Page, *files: Any) -> None:
    """Choose files on the submit page, once its script has started: it allows several."""
    expect(page.get_by_text("Or drop a folder here")).to_be_visible()
    page.locator("#file").set_input_files(files)


def submit_chosen(page: Page, then: str = "**/ui/jobs/*") -> None:
    """Submit the chosen files, and wait for the page that follows."""
    page.get_by_role("button", name="Send", exact=True).click()
    page.wait_for_url(then)


def record_problems(watched: Watched, url: str) -> None:
    """Record all problems on a page."""
    page, wrong = watched.page, watched.wrong
    page.on("console", lambda said: wrong.append(f"console: {said.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))

    def record_foreign_request(sent: Request) -> None:
        if not sent.url.startswith((url, "data:", "blob:")):
            wrong.append(f"request: {sent.url}")

    page.on("request", record_foreign_request)
