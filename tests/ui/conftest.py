"""Real pages in a real Chromium: one service with one learned model, and one browser, for all tests of a run."""

import io
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import receiver as receivers
from playwright.sync_api import Browser, BrowserContext, Page, expect
from receiver import Receiver

from perennial import JobEnded, Perennial
from tools import digits, service

SETTINGS = {
    "PERENNIAL_THREADS": "1",
    "PERENNIAL_ANYTIME_S": "0.5",
    "PERENNIAL_WEBHOOK_ALLOW": "127.0.0.0/8",
}
expect.set_options(timeout=30_000)  # of a busy machine; the default is 5 s
HOSTILE = "<img src=x onerror=alert(1)>"
"""A name that somebody chose."""


@dataclass
class Site:
    """A service with a model that was taught two batches, rolled back once, and rejected a third batch."""

    url: str
    key: str
    client: Perennial
    model: str
    job: str
    rejected: str
    paths: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The service, its model and the paths of its pages, by name."""
    folder = tmp_path_factory.mktemp("site")
    with (
        service.running(folder, SETTINGS) as running,
        receivers.running() as receiver,
        Perennial(running.key, base_url=running.url) as client,
    ):
        yield _made(running, client, receiver)


def _made(running: service.Service, client: Perennial, receiver: Receiver) -> Site:
    model = client.models.create("digits", scenario="class", recipe={"seed": 0}, description=f"Ten {HOSTILE}")
    client.models.create("bare", scenario="class")
    jobs = [client.submit("digits", batch, name=name) for name, batch in digits.archives()[:2]]
    for job in jobs:
        job.wait(120)
    client.aliases.rollback("digits", reason=f"worse {HOSTILE}")
    bad = client.submit("digits", spoiled(), name="scans")
    with pytest.raises(JobEnded):
        bad.wait(60)
    home = f"/ui/models/{model.id}"
    paths = {
        "models": "/ui",
        "model": home,
        "a cell": f"{home}?v=2&t=1",
        "a model without a version": f"/ui/models/{client.models.retrieve('bare').id}",
        "task": f"{home}/tasks/2",
        "compare": f"{home}/compare?a=1&b=2",
        "compare nothing": f"{home}/compare",
        "compare without a common task": f"{home}/compare?a=0&b=2",
        "job": f"/ui/jobs/{jobs[1].id}",
        "rejected job": f"/ui/jobs/{bad.id}",
        "no model of that name": "/ui?q=nothing",
        "webhooks": "/ui/webhooks",
        "webhook": f"/ui/webhooks/{_webhooks(client, receiver)}",
        "new model": "/ui/models/new",
        "submit": f"{home}/submit",
        "submit with settings": f"{home}/submit?choice=method:dlcft",
        "predict": f"{home}/versions/production/predict",
        "keys": "/ui/admin/keys",
        "audit": "/ui/admin/audit",
        "usage": "/ui/admin/usage",
    }
    return Site(running.url, running.key, client, model.id, jobs[1].id, bad.id, paths)


def _webhooks(client: Perennial, receiver: Receiver) -> str:
    """Three: one that was told, one whose last attempt failed, one that is disabled; the id of the second."""
    receiver.status = lambda path, number: 500 if path == "/failing" and number else 204
    hooks = [client.webhooks.create(f"{receiver.url}/{name}").id for name in ("told", "failing", "over")]
    for hook in (*hooks, hooks[1]):
        sent = client.webhooks.test(hook)
        for _ in range(100):
            if client.webhooks.retrieve_delivery(hook, sent.id).attempts:
                break
            time.sleep(0.1)
    client.webhooks.update(hooks[2], enabled=False)
    return hooks[1]


def spoiled() -> bytes:
    """A batch of which one class has no image that can be decoded, with a name that is no good either."""
    out = io.BytesIO(digits.archives()[0][1])
    with zipfile.ZipFile(out, "a") as archive:
        for index in range(30):
            archive.writestr(f"a{HOSTILE}/{index}.png", b"\x89PNG\r\n\x1a\nno image")
    return out.getvalue()


@pytest.fixture(scope="module")
def session(site: Site, browser: Browser) -> Iterator[Any]:
    """The cookies of somebody who has logged in on the login page."""
    context = browser.new_context(base_url=site.url)
    page = context.new_page()
    page.goto("/ui/models/digits")
    page.get_by_label("Key").fill(site.key)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/ui/models/digits")
    yield context.storage_state()
    context.close()


@dataclass
class Watched:
    """A page, and what a person should never see: messages of the console, errors, requests to other hosts."""

    page: Page
    wrong: list[str] = field(default_factory=list)


@pytest.fixture
def open_page(site: Site, browser: Browser, session: Any) -> Iterator[Callable[..., Watched]]:
    """Opens a path for somebody who has logged in; other arguments are those of a browser's context."""
    contexts: list[BrowserContext] = []

    def opened(path: str, **options: Any) -> Watched:
        context = browser.new_context(base_url=site.url, storage_state=session, **options)
        contexts.append(context)
        watched = Watched(context.new_page())
        watch(watched, site.url)
        watched.page.goto(path)
        return watched

    yield opened
    for context in contexts:
        context.close()


def watch(watched: Watched, url: str) -> None:
    """Write down what goes wrong on a page."""
    page, wrong = watched.page, watched.wrong
    page.on("console", lambda said: wrong.append(f"console: {said.text}"))
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    page.on(
        "request",
        lambda sent: (
            wrong.append(f"request: {sent.url}") if not sent.url.startswith((url, "data:", "blob:")) else None
        ),
    )
