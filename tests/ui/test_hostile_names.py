"""Hostile names: every name that users can choose is only text on every page."""

import io
import zipfile
from typing import Any

import pytest

from perennial import Perennial
from perennial.errors import APIError
from tests.rest import Rest
from tests.ui.conftest import BATCHES, OpenPage, Site

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(1800)]
PAYLOADS = (
    "<img src=x onerror=alert(1)>",
    "\"><svg onload=alert(1)>",
    "' onmouseover='alert(1)' x='",
    "<script>alert(1)<script>",
    "{{7*7}}${7*7}#{7*7}",
    "javascript:alert(1)",
    "]]><!--<base href=evil.example>",
    "<iframe srcdoc=x>",
    "&lt;b&gt;&#x3c;",
    "`${alert(1)}`",
    "%3Cimg src=x%3E",
    "A" * 60,
    "名前 نام שם",
)  # fmt: skip
STRANGE = (
    "img[src=x], svg[onload], iframe, base, script:not([src], [type='application/json']), "
    "[onerror], [onload], [onmouseover], a[href^='javascript:' i], form[action^='http']"
)
"""Selectors of elements that occur on no page of the service."""


def build_batch_with_payloads() -> bytes:
    """Build a batch whose classes and files have these names."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(BATCHES[0][1])) as archive, zipfile.ZipFile(out, "w") as made:
        names = [name for name in archive.namelist() if name.endswith(".png")]
        for number, name in enumerate(names):
            part = name.split("/")[0]
            label = PAYLOADS[number % len(PAYLOADS)]
            made.writestr(f"{part}/{label}/{number} {label}.png", archive.read(name))
        made.writestr(f"notes {PAYLOADS[0]}.txt", PAYLOADS[1])
    return out.getvalue()


def is_accepted(call: Any) -> bool:
    """Return whether the service accepts the name; it may refuse one in a typed response."""
    try:
        call()
    except APIError as error:
        assert error.status == 422, error
        return False
    return True


@pytest.fixture(scope="module")
def paths(site: Site) -> list[str]:
    """Return the pages of all objects that have these names."""
    client, admin = site.client, Rest(site.url, site.key)
    recipe = {"epochs": 1, "seed": 0}
    model = client.models.create(
        "hostile", scenario="class", description=PAYLOADS[0], gate={"checks": "off"}, recipe=recipe
    )
    jobs = [client.submit("hostile", build_batch_with_payloads(), name=PAYLOADS[1])]
    for payload in PAYLOADS:
        assert is_accepted(
            lambda payload=payload: client.models.update("hostile", description=payload)
        )
        for given in ({"name": payload, "owner": "hostile"}, {"name": "k", "owner": payload}):
            key = {"scope": "read", **given}
            is_accepted(lambda key=key: admin.call("POST", "/v1/keys", json=key))
        is_accepted(
            lambda payload=payload: client.webhooks.create(f"https://127.0.0.1/?q={payload}")
        )
        is_accepted(lambda payload=payload: client.models.create(payload, scenario="class"))
        is_accepted(lambda payload=payload: client.aliases.set("hostile", payload, 0))
    is_accepted(lambda: jobs.append(client.submit("hostile", BATCHES[1][1], name=PAYLOADS[0])))
    for job in jobs:
        job.wait(800, check=False)
    client.aliases.rollback("hostile", reason=PAYLOADS[1])
    home = f"/ui/models/{model.id}"
    queries = [f"/ui?q={payload}" for payload in PAYLOADS[:4]]
    return [
        home, f"{home}?v=2&t=1", f"{home}/tasks/1", f"{home}/tasks/2", f"{home}/compare?a=1&b=2", f"{home}/submit",
        f"{home}/versions/production/predict", *(f"/ui/jobs/{job.id}" for job in jobs[:4]), "/ui", *queries,
        "/ui/webhooks", "/ui/admin/keys", "/ui/admin/audit", "/ui/admin/usage", "/ui/models/new",
        *(f"{home}?v={payload}" for payload in PAYLOADS[:3]), *(f"/ui/models/{payload}" for payload in PAYLOADS[:3]),
    ]  # fmt: skip


def test_what_somebody_named_does_nothing_on_any_page(
    site: Site, open_page: OpenPage, paths: list[str]
) -> None:
    shown = 0
    for path in paths:
        watched = open_page(path, refusals=True)
        page = watched.page
        page.evaluate(
            "for (const one of document.querySelectorAll('main details')) one.open = true"
        )
        assert page.locator(STRANGE).count() == 0, path
        assert page.evaluate(
            "[location.origin, document.baseURI].every(one => one.startsWith(location.origin))"
        )
        shown += sum(payload in page.locator("main").inner_text() for payload in PAYLOADS)
        assert "49" not in page.title()
    assert shown > len(PAYLOADS)
    assert isinstance(site.client, Perennial)
