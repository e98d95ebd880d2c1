"""Verification by receivers, compared with the reference library; and the commands against a real
service.
"""

import datetime
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from core.webhooks import webhook_secret
from perennial.cli.main import run_command_line
from perennial.webhooks import NotVerified, verify
from tools import service

SECRET = webhook_secret.derive_webhook_secret(b"k" * 32, "whk_1", 1)
OTHER = webhook_secret.derive_webhook_secret(b"k" * 32, "whk_1", 2)
EVENT = {"type": "job.failed", "timestamp": "2026-11-24T08:00:00Z", "data": {"name": "Bär"}}
BODY = json.dumps(EVENT).encode()


def sign_request(secret: str, at: float, *more: str) -> dict[str, str]:
    """Return the headers of a request that the service sends."""
    now = int(at)
    signatures = [
        webhook_secret.sign_delivery_body(one, "dlv_1", now, BODY) for one in (secret, *more)
    ]
    return {
        "Webhook-Id": "dlv_1",
        "WEBHOOK-timestamp": str(now),
        "webhook-signature": " ".join(signatures),
    }


def test_a_signature_is_byte_for_byte_that_of_the_reference_library() -> None:
    at = datetime.datetime.fromtimestamp(1_800_000_000, datetime.UTC)
    ours = webhook_secret.sign_delivery_body(SECRET, "dlv_1", 1_800_000_000, BODY)
    assert ours == Webhook(SECRET).sign("dlv_1", at, BODY.decode())


CASES: dict[str, Callable[[float], tuple[dict[str, str], bytes]]] = {
    "as it was sent": lambda now: (sign_request(SECRET, now), BODY),
    "signed with the old secret too": lambda now: (sign_request(OTHER, now, SECRET), BODY),
    "another secret": lambda now: (sign_request(OTHER, now), BODY),
    "another body": lambda now: (sign_request(SECRET, now), BODY.replace(b"failed", b"failes")),
    "an hour old": lambda now: (sign_request(SECRET, now - 3600), BODY),
    "of the future": lambda now: (sign_request(SECRET, now + 3600), BODY),
    "another id": lambda now: ({**sign_request(SECRET, now), "Webhook-Id": "dlv_2"}, BODY),
    "another version": lambda now: (
        {**sign_request(SECRET, now), "webhook-signature": "v2,abc"},
        BODY,
    ),
    "no signature": lambda now: ({"webhook-id": "dlv_1", "webhook-timestamp": str(int(now))}, BODY),
    "an empty signature": lambda now: (
        {**sign_request(SECRET, now), "webhook-signature": ""},
        BODY,
    ),
    "a time that is none": lambda now: (
        {**sign_request(SECRET, now), "WEBHOOK-timestamp": "now"},
        BODY,
    ),
}
"""Name → headers and body at a time in seconds: a signature is good for five minutes."""


@pytest.mark.parametrize("name", CASES)
def test_a_request_is_verified_or_refused_as_by_the_reference_library(name: str) -> None:
    headers, body = CASES[name](time.time())
    try:
        wanted: Any = Webhook(SECRET).verify(
            body, {key.lower(): value for key, value in headers.items()}
        )
    except WebhookVerificationError:
        wanted = None
    assert (wanted is not None) == (name in ("as it was sent", "signed with the old secret too"))
    if wanted is None:
        with pytest.raises(NotVerified):
            verify(body, headers, SECRET)
    else:
        assert verify(body, headers, SECRET) == verify(body.decode(), headers, SECRET) == wanted


def test_a_secret_that_is_none_is_told() -> None:
    with pytest.raises(NotVerified, match="begins with whsec_"):
        verify(BODY, sign_request(SECRET, time.time()), "whsec_!")


def test_the_commands_make_show_and_remove_a_webhook(
    running: service.RunningService,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PERENNIAL_URL", running.url)
    monkeypatch.setenv("PERENNIAL_API_KEY", running.key)
    address = "https://93.184.215.14/hook"

    def run_webhooks_command(*arguments: str) -> Any:
        assert run_command_line(["webhooks", *arguments, "--json"]) == 0, capsys.readouterr()
        return json.loads(capsys.readouterr().out)

    assert (
        run_command_line(["webhooks", "create", address, "-e", "job.failed", "-e", "version.held"])
        == 0
    )
    out, told = capsys.readouterr()
    assert out.startswith("whsec_") and len(out.splitlines()) == 1 and "shown this once" in told
    (hook,) = run_webhooks_command("list")
    assert hook["events"] == ["job.failed", "version.held"] and "secret" not in hook
    assert run_webhooks_command("rotate", hook["id"])["secret"].startswith("whsec_")
    assert run_webhooks_command("disable", hook["id"])["state"] == "disabled"
    assert run_command_line(["webhooks", "test", hook["id"]]) == 1
    assert "is disabled" in capsys.readouterr().err
    assert run_webhooks_command("enable", hook["id"])["state"] == "enabled"
    for arguments in (["list"], ["show", hook["id"]], ["deliveries", hook["id"]]):
        assert run_command_line(["webhooks", *arguments]) == 0
        assert "\x1b" not in capsys.readouterr().out
    assert run_webhooks_command("deliveries", hook["id"]) == []
    assert run_command_line(["webhooks", "create", "https://127.0.0.1/"]) == 1
    assert "loopback address" in capsys.readouterr().err
    assert run_webhooks_command("rm", hook["id"]) == {"deleted": hook["id"]}
    assert run_command_line(["webhooks", "show", hook["id"]]) == 3
