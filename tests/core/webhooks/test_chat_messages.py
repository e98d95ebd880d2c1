"""Webhook messages written for people."""

import json
from typing import Any

import pytest

from core.contract.webhook import EVENTS, TEST
from core.webhooks import chat_messages

GATE = {
    "passed": False,
    "checks": [
        {
            "name": "forgotten",
            "limit": 0.02,
            "value": 0.31,
            "passed": False,
            "detail": "9 of 29 images turned wrong.",
        },
        {"name": "min_acc", "limit": 0.9, "value": 0.61234, "passed": False},
        {"name": "max_forgetting", "limit": 0.5, "value": 0.1, "passed": True},
    ],
}
PASSED = {"passed": True, "checks": []}
OF_MODEL = {"model": "mdl_1", "name": "birds"}
DATA: dict[str, dict[str, Any]] = {
    "job.succeeded": {"job": "job_1", "kind": "learn", "task": 2, "version": 3, "outcome": "published"},
    "job.failed": {"job": "job_1", "kind": "learn", "task": 2, "version": None, "error": "out-of-memory"},
    "job.rejected": {"job": "job_1", "kind": "learn", "task": 2, "version": None, "error": "rejected"},
    "job.cancelled": {"job": "job_1", "kind": "learn", "task": 2, "version": None},
    "version.published": {"version": 3, "task": 2, "job": "job_1", "status": "published", "gate": PASSED},
    "version.held": {"version": 4, "task": 3, "job": "job_2", "status": "held", "gate": GATE},
    "alias.moved": {"alias": "production", "version": 3, "previous": 2, "cause": "publish"},
    "task.data_deleted": {"task": 2},
    "export.ready": {"job": "job_3", "version": 3, "format": "onnx"},
}  # fmt: skip
SAYS = {
    "job.succeeded": "birds: a job (learn) is done.",
    "job.failed": "birds: a job (learn) has failed.",
    "job.rejected": "birds: a job (learn) has rejected its batch.",
    "job.cancelled": "birds: a job (learn) was cancelled.",
    "version.published": "birds: version 3 is published.",
    "version.held": "birds: version 4 is held by its gate; production stays where it is.",
    "alias.moved": "birds: production is version 3 now, from version 2.",
    "task.data_deleted": "birds: the images of task 2 are deleted.",
    "export.ready": "birds: version 3 can be downloaded as onnx.",
}
COMMANDS = {
    "job.failed": "perennial jobs show job_1",
    "job.rejected": "perennial jobs show job_1",
    "version.held": "perennial models show birds",
    "export.ready": "perennial download birds 3 --format onnx",
}
HOSTILE = "<!channel> <https://evil.example|here> & [a](https://evil.example) <at>everyone</at>"
URL = "https://perennial.example.org"


def make_payload(type: str, **more: Any) -> Any:
    return {
        "type": type,
        "timestamp": "2026-11-28T08:00:00Z",
        "data": {**OF_MODEL, **DATA.get(type, {}), **more},
    }


def build_chat_message(format: str, of: Any, url: str = URL) -> Any:
    return json.loads(chat_messages.build_chat_body(format, of, url))


def read_slack_text(message: Any) -> str:
    [block] = message["blocks"]
    assert (
        block["type"] == "section"
        and block["text"]["type"] == "mrkdwn"
        and block["text"]["verbatim"] is True
    )
    return str(block["text"]["text"])


def read_teams_lines(message: Any) -> list[str]:
    [attachment] = message["attachments"]
    assert message["type"] == "message"
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    runs = [run for block in card["body"] for run in block["inlines"]]
    assert {run["type"] for run in runs} == {"TextRun"}
    return [run["text"] for run in runs]


def test_every_event_has_its_sentence() -> None:
    assert set(SAYS) == set(EVENTS)
    for event, said in SAYS.items():
        assert build_chat_message("slack", make_payload(event))["text"] == said
        assert read_teams_lines(build_chat_message("teams", make_payload(event)))[0] == said


@pytest.mark.parametrize("event", EVENTS)
def test_a_message_has_the_next_command_and_the_page(event: str) -> None:
    page = f"{URL}/ui/jobs/job_1" if event.startswith("job.") else f"{URL}/ui/models/mdl_1"
    text, card = (
        read_slack_text(build_chat_message("slack", make_payload(event))),
        build_chat_message("teams", make_payload(event)),
    )
    assert f"<{page}|Open the page>" in text
    assert card["attachments"][0]["content"]["actions"] == [
        {"type": "Action.OpenUrl", "title": "Open the page", "url": page}
    ]
    command = COMMANDS.get(event)
    assert (f"`{command}`" in text) if command else ("`" not in text)
    assert command is None or command in read_teams_lines(card)


def test_a_held_version_says_verdict_and_reasons() -> None:
    lines = read_teams_lines(build_chat_message("teams", make_payload("version.held")))
    assert "Gate: failed" in lines and "Version: 4" in lines and "Model: birds" in lines
    assert "• forgotten: 9 of 29 images turned wrong." in lines
    assert "• min_acc: 0.6123, the limit is 0.9" in lines
    assert not any("max_forgetting" in line for line in lines)
    assert read_slack_text(build_chat_message("slack", make_payload("version.held"))).splitlines()[1:] == [
        "Model: birds", "Version: 4", "Task: 3", "Status: held", "Gate: failed",
        "• forgotten: 9 of 29 images turned wrong.", "• min_acc: 0.6123, the limit is 0.9",
        "`perennial models show birds`", f"<{URL}/ui/models/mdl_1|Open the page>",
    ]  # fmt: skip


def test_an_alias_may_be_new_or_deleted() -> None:
    for data, said in (
        ({"version": 3, "previous": None}, "birds: production is version 3 now."),
        ({"version": None, "previous": 3}, "birds: the alias production is deleted."),
    ):
        assert build_chat_message("slack", make_payload("alias.moved", **data))["text"] == said


@pytest.mark.parametrize("format", ["slack", "teams"])
def test_without_a_public_address_there_is_no_link(format: str) -> None:
    for event in EVENTS:
        said = chat_messages.build_chat_body(format, make_payload(event), "").decode()
        assert "Open the page" not in said and "/ui/" not in said


def test_what_somebody_named_is_no_markup_in_slack() -> None:
    for event in EVENTS:
        hostile = make_payload(event, name=HOSTILE, alias=HOSTILE, model=HOSTILE, error=HOSTILE)
        message = build_chat_message("slack", hostile)
        for text in (message["text"], read_slack_text(message)):
            bare = text.replace("|Open the page>", "").replace(f"<{URL}", "")
            assert "<" not in bare and ">" not in bare
            assert "&" not in bare.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "")


def test_what_somebody_named_is_no_markup_in_teams() -> None:
    for event in EVENTS:
        hostile = make_payload(event, name=HOSTILE, alias=HOSTILE, model=HOSTILE, error=HOSTILE)
        message = build_chat_message("teams", hostile)
        assert any(HOSTILE in line for line in read_teams_lines(message))
        [action] = message["attachments"][0]["content"]["actions"]
        assert (
            action["url"].startswith(f"{URL}/ui/")
            and " " not in action["url"]
            and "<" not in action["url"]
        )


def test_a_message_is_never_too_long_for_its_reader() -> None:
    checks = [
        {"name": "&" * 900, "limit": 1, "value": 0, "passed": False, "detail": "<" * 9000}
    ] * 90
    long = make_payload("version.held", name="&" * 5000, gate={"passed": False, "checks": checks})
    message = build_chat_message("slack", long)
    assert (
        len(read_slack_text(message)) <= 3000
        and len(message["text"]) <= 5 * chat_messages.MOST_CHARS
    )
    assert len(chat_messages.build_chat_body("teams", long)) < 28_000
    assert "• and 85 more checks" in read_teams_lines(build_chat_message("teams", long))


@pytest.mark.parametrize("format", ["slack", "teams"])
def test_a_test_says_that_the_webhook_works(format: str) -> None:
    said = {"type": TEST, "timestamp": "2026-11-28T08:00:00Z", "data": {"webhook": "whk_1"}}
    message = chat_messages.build_chat_body(format, said, URL).decode()
    assert "this webhook works" in message and f"{URL}/ui/webhooks/whk_1" in message
