"""Webhooks over HTTP: creation, changes, test deliveries and isolation between owners.

The secret is shown only once, at creation.
"""

from collections.abc import Callable
from typing import Any

import pytest
from receiver import Receiver
from starlette.testclient import TestClient

from core.settings import Settings
from core.webhooks.deliver import WebhookDeliverer
from tests.api.conftest import KeyOf
from tests.security import addresses

HOOKS = "/v1/webhooks"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"webhook_allow": "127.0.0.0/8", "max_webhooks": 3})


@pytest.fixture
def empty(client: TestClient, settings: Settings) -> Callable[[], None]:
    """Return a function that delivers what is due."""
    sender = WebhookDeliverer(client.app.state.database, settings)  # type: ignore[attr-defined]

    def deliver_due_webhooks() -> None:
        while sender.start_due_webhook_deliveries() or sender._serving:
            pass

    return deliver_due_webhooks


def create_webhook(client: TestClient, url: str, **more: Any) -> dict[str, Any]:
    answer = client.post(HOOKS, json={"url": url, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()  # type: ignore[no-any-return]


def test_a_secret_is_shown_when_it_is_made_and_never_again(client: TestClient, model: str) -> None:
    body = {"url": "http://127.0.0.1:9/hook", "events": ["job.failed"], "model": model}
    answer = client.post(HOOKS, json=body)
    assert answer.status_code == 201 and answer.headers["cache-control"] == "no-store"
    hook = answer.json()
    assert answer.headers["location"] == f"{HOOKS}/{hook['id']}"
    assert hook["secret"].startswith("whsec_")
    assert (hook["model_name"], hook["state"]) == ("birds", "enabled")
    assert client.get(f"{HOOKS}/{hook['id']}").json() == {
        k: v for k, v in hook.items() if k != "secret"
    }
    again = client.post(f"{HOOKS}/{hook['id']}/rotate").json()
    assert again["secret"] != hook["secret"] and again["old_secret_until"] is not None
    for path in (HOOKS, f"{HOOKS}/{hook['id']}", "/v1/audit"):
        assert (
            hook["secret"] not in client.get(path).text
            and again["secret"] not in client.get(path).text
        )


def test_a_test_is_delivered_and_its_outcome_can_be_read(
    client: TestClient, receiver: Receiver, empty: Callable[[], None]
) -> None:
    hook = create_webhook(client, f"{receiver.url}/")
    sent = client.post(f"{HOOKS}/{hook['id']}/test")
    assert sent.status_code == 202
    empty()
    found = client.get(sent.headers["location"]).json()
    assert (found["state"], found["attempts"], found["status"]) == ("delivered", 1, 204)
    assert found["payload"]["type"] == "webhook.test"
    assert receiver.seen[0].verified(hook["secret"]) == found["payload"]
    listed = client.get(HOOKS).json()["items"]
    assert listed[0]["last"]["id"] == found["id"] and listed[0]["pending"] == 0
    assert client.post(f"{sent.headers['location']}/redeliver").status_code == 202
    empty()
    assert [one.headers["webhook-id"] for one in receiver.seen] == [found["id"]] * 2


def test_a_webhook_has_a_format_which_can_be_changed(client: TestClient) -> None:
    plain, chat = (
        create_webhook(client, "http://127.0.0.1:9/"),
        create_webhook(client, "http://127.0.0.1:9/", format="slack"),
    )
    assert (plain["format"], chat["format"]) == ("standard", "slack")
    where = f"{HOOKS}/{chat['id']}"
    assert client.patch(where, json={"format": "teams"}).json()["format"] == "teams"
    assert client.patch(where, json={"enabled": True}).json()["format"] == "teams"
    assert client.patch(where, json={"format": "irc"}).status_code == 422


def test_changes_of_a_model_are_told(
    client: TestClient, receiver: Receiver, empty: Callable[[], None], model: str
) -> None:
    hook = create_webhook(client, f"{receiver.url}/", events=["alias.moved"], model=model)
    assert client.put(f"/v1/models/{model}/aliases/mine", json={"version": 0}).status_code == 200
    assert client.delete(f"/v1/models/{model}/aliases/mine").status_code == 204
    empty()
    told = [one.verified(hook["secret"])["data"] for one in receiver.seen]
    moves = [(one["alias"], one["version"], one["previous"]) for one in told]
    assert moves == [("mine", 0, None), ("mine", None, 0)]
    pages = client.get(f"{HOOKS}/{hook['id']}/deliveries?limit=1&state=delivered").json()
    assert len(pages["items"]) == 1 and pages["next_cursor"] is not None


def test_a_webhook_is_changed_disabled_enabled_and_deleted(client: TestClient, model: str) -> None:
    place = f"{HOOKS}/{create_webhook(client, 'http://127.0.0.1:9/', model=model)['id']}"
    patch = {
        "url": "http://127.0.0.1:10/b",
        "events": ["version.held", "job.failed"],
        "model": None,
    }
    found = client.patch(place, json=patch).json()
    assert found["url"] == patch["url"] and found["model"] is None
    assert found["events"] == ["job.failed", "version.held"], "in their usual order"
    assert client.patch(place, json={"enabled": False}).json()["state"] == "disabled"
    refused = client.post(f"{place}/test")
    assert refused.status_code == 409 and "enabled" in refused.json()["detail"]
    assert client.patch(place, json={"enabled": True}).json()["state"] == "enabled"
    assert client.delete(place).status_code == 204
    assert client.get(place).status_code == client.delete(place).status_code == 404


INSIDE = ("10.0.0.1", "169.254.169.254", "192.168.1.1", "[::1]", "[64:ff9b::169.254.169.254]", "[::ffff:10.0.0.1]",
          "[2002:a9fe:a9fe::1]")  # fmt: skip


@pytest.mark.parametrize(
    "url", [*addresses.SPELLINGS[::9], *(f"https://{host}/" for host in INSIDE)]
)
def test_an_address_that_may_not_be_reached_is_refused_with_its_reason(
    client: TestClient, url: str
) -> None:
    answer = client.post(HOOKS, json={"url": url})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"].endswith("url")


def test_a_change_to_an_address_inside_is_refused(client: TestClient) -> None:
    place = f"{HOOKS}/{create_webhook(client, 'http://127.0.0.1:9/')['id']}"
    answer = client.patch(place, json={"url": "https://169.254.169.254/latest"})
    assert answer.status_code == 422 and "link-local" in answer.json()["detail"]
    assert client.get(place).json()["url"] == "http://127.0.0.1:9/"


@pytest.mark.parametrize(
    "body",
    [
        {"events": []},
        {"events": ["job.exploded"]},
        {"events": "job.failed"},
        {"model": "nobody"},
        {"secret": "x"},
    ],
)
def test_what_is_no_webhook_is_refused(client: TestClient, body: dict[str, Any]) -> None:
    answer = client.post(HOOKS, json={"url": "http://127.0.0.1:9/", **body})
    assert answer.status_code == (404 if "model" in body else 422), answer.text


def test_an_owner_has_a_bounded_number_of_them(client: TestClient) -> None:
    for _ in range(3):
        create_webhook(client, "http://127.0.0.1:9/")
    refused = client.post(HOOKS, json={"url": "http://127.0.0.1:9/"})
    assert refused.status_code == 429 and "3 webhooks" in refused.json()["detail"]
    assert len(client.get(HOOKS).json()["items"]) == 3


def test_another_owner_sees_nothing_of_them(client: TestClient, key_of: KeyOf, model: str) -> None:
    hook = create_webhook(client, "http://127.0.0.1:9/")["id"]
    delivery = client.post(f"{HOOKS}/{hook}/test").json()["id"]
    other = key_of("other", "write")
    assert client.get(HOOKS, headers=other).json()["items"] == []
    one = f"{HOOKS}/{hook}/deliveries/{delivery}"
    for method, path in (
        ("GET", f"{HOOKS}/{hook}"), ("DELETE", f"{HOOKS}/{hook}"), ("POST", f"{HOOKS}/{hook}/test"),
        ("POST", f"{HOOKS}/{hook}/rotate"), ("GET", f"{HOOKS}/{hook}/deliveries"), ("GET", one),
        ("POST", f"{one}/redeliver"),
    ):  # fmt: skip
        assert client.request(method, path, headers=other).status_code == 404, path
    changed = client.patch(f"{HOOKS}/{hook}", json={"enabled": False}, headers=other)
    stolen = client.post(HOOKS, json={"url": "http://127.0.0.1:9/", "model": model}, headers=other)
    assert changed.status_code == stolen.status_code == 404
    own = client.post(HOOKS, json={"url": "http://127.0.0.1:9/"}, headers=other).json()["id"]
    assert (
        client.post(f"{HOOKS}/{own}/deliveries/{delivery}/redeliver", headers=other).status_code
        == 404
    )


def test_a_key_that_reads_changes_nothing(client: TestClient, key_of: KeyOf) -> None:
    hook = create_webhook(client, "http://127.0.0.1:9/")["id"]
    reader = key_of("admin", "read")
    assert client.get(f"{HOOKS}/{hook}", headers=reader).status_code == 200
    for verb in ("test", "rotate"):
        assert client.post(f"{HOOKS}/{hook}/{verb}", headers=reader).status_code == 403


def test_several_machines_without_a_key_in_common_have_no_webhooks(
    client: TestClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = settings.model_copy(update={"broker_url": "redis://127.0.0.1:1/0"})
    client.app.state.settings = large  # type: ignore[attr-defined]
    answer = client.post(HOOKS, json={"url": "http://127.0.0.1:9/"})
    assert answer.status_code == 422 and answer.json()["type"] == "/problems/webhooks-unavailable"
    assert "PERENNIAL_WEBHOOK_KEY_FILE" in answer.json()["detail"]
    file = settings.data_dir / "key"
    file.write_text("short")
    client.app.state.settings = large.model_copy(update={"webhook_key_file": file})  # type: ignore[attr-defined]
    assert "too short" in client.post(HOOKS, json={"url": "http://127.0.0.1:9/"}).json()["detail"]
    file.write_text("0123456789abcdef" * 4)
    assert client.post(HOOKS, json={"url": "http://127.0.0.1:9/"}).status_code == 201
