"""The pages of webhooks: a secret shown once, buttons that do what the API's requests do, and clear
refusals.
"""

import re
from collections.abc import Callable
from typing import Any

from starlette.testclient import TestClient

from tests.api.conftest import KeyOf

HOOK = {"url": "https://93.184.215.14/hook", "event.job.failed": "on", "event.version.held": "on"}


def get_newest_audit_action(browser: TestClient) -> str:
    """Return the action of the newest row of the audit trail."""
    return browser.get("/v1/audit?order=desc&limit=1").json()["items"][0]["action"]  # type: ignore[no-any-return]


def create_webhook(browser: TestClient, **more: str) -> str:
    answer = browser.post("/ui/webhooks", data={**HOOK, **more})
    assert answer.status_code == 200, answer.text
    assert re.search(r"whsec_[A-Za-z0-9+/]{43}=", answer.text)
    assert answer.headers["cache-control"] == "no-store"
    return browser.get("/v1/webhooks").json()["items"][-1]["id"]  # type: ignore[no-any-return]


def test_a_webhook_is_made_by_a_form_and_its_secret_shown_once(
    logged_in: TestClient, model: str
) -> None:
    hook = create_webhook(logged_in, model="birds")
    found = logged_in.get(f"/v1/webhooks/{hook}").json()
    assert found["events"] == ["job.failed", "version.held"] and found["model_name"] == "birds"
    for path in ("/ui/webhooks", f"/ui/webhooks/{hook}"):
        page = logged_in.get(path)
        assert page.status_code == 200 and "whsec_" not in page.text and HOOK["url"] in page.text


def test_a_form_says_who_reads_what_is_sent(
    logged_in: TestClient, text: Callable[[str], str]
) -> None:
    for given, kept, said in (
        ({}, "standard", "signed payloads"),
        ({"format": "slack"}, "slack", "messages for Slack"),
        ({"format": "teams"}, "teams", "messages for Teams"),
        ({"format": "no such"}, "standard", "signed payloads"),
    ):
        hook = create_webhook(logged_in, **given)
        assert logged_in.get(f"/v1/webhooks/{hook}").json()["format"] == kept
        assert said in text(logged_in.get(f"/ui/webhooks/{hook}").text)


def test_what_is_wrong_is_said_beside_the_form_which_keeps_what_was_filled_in(
    logged_in: TestClient, text: Callable[[str], str]
) -> None:
    for wrong, said in (
        ({"url": "https://169.254.169.254/meta"}, "169.254.169.254 is a link-local address"),
        ({"url": "ftp://example.org/"}, "is no URL of a webhook"),
        ({"model": "nobody"}, "no model 'nobody'"),
        ({"event.job.failed": "", "event.version.held": ""}, "needs an event"),
    ):
        answer = logged_in.post("/ui/webhooks", data={**HOOK, **wrong})
        assert answer.status_code in (404, 422)
        assert said in text(answer.text).replace("&#39;", "'"), text(answer.text)
        assert f'value="{(HOOK | wrong)["url"]}"' in answer.text
    assert logged_in.get("/v1/webhooks").json()["items"] == []


def test_each_button_does_what_it_says(logged_in: TestClient) -> None:
    hook = create_webhook(logged_in)
    here = f"/ui/webhooks/{hook}"

    def press_button(verb: str, **fields: str) -> Any:
        return logged_in.post(f"{here}/{verb}", data=fields)

    assert (
        press_button("test").headers["location"] == here
        and get_newest_audit_action(logged_in) == "webhook.test"
    )
    delivery = logged_in.get(f"/v1/webhooks/{hook}/deliveries").json()["items"][0]["id"]
    assert press_button(f"deliveries/{delivery}/redeliver").status_code == 303
    assert get_newest_audit_action(logged_in) == "webhook.redeliver"
    rotated = press_button("rotate")
    assert rotated.status_code == 200
    assert "whsec_" in rotated.text and "The old secret signs too" in rotated.text
    assert press_button("disable").status_code == 303
    assert (
        "Enable" in logged_in.get(here).text and "A person disabled it." in logged_in.get(here).text
    )
    assert (
        press_button("enable").status_code == 303
        and get_newest_audit_action(logged_in) == "webhook.change"
    )
    assert press_button("explode").status_code == 422
    assert press_button("delete").status_code == 422
    assert press_button("delete", sure="yes").headers["location"] == "/ui/webhooks"
    assert (
        logged_in.get(here).status_code == 404
        and get_newest_audit_action(logged_in) == "webhook.delete"
    )


def test_a_key_that_reads_sees_no_button(logged_in: TestClient, key_of: KeyOf) -> None:
    hook = create_webhook(logged_in)
    assert logged_in.post(f"/ui/webhooks/{hook}/test").status_code == 303
    key = key_of("admin", "read")["Authorization"].removeprefix("Bearer ")
    assert logged_in.post("/ui/login", data={"key": key}).status_code == 303
    for path in ("/ui/webhooks", f"/ui/webhooks/{hook}"):
        forms = re.findall(r'method="post" action="([^"]+)"', logged_in.get(path).text)
        assert forms == ["/ui/logout"], path
    assert logged_in.post(f"/ui/webhooks/{hook}/test").status_code == 403
