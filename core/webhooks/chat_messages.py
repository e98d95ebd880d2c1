"""Webhook payloads as messages that people read in Slack or Teams.

Slack's incoming webhooks take `text` and `blocks` (Block Kit), where `&`, `<` and `>` are markup
and must be escaped. Teams' workflows take a message with an Adaptive Card, whose texts are runs
without markup. Names may contain any text: neither form lets a name mention people, link or format.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote

from core.contract.webhook import TEST, WebhookData, WebhookPayload

MOST_CHARS = 300
"""Maximum number of characters of one line."""
MOST_REASONS = 5
SECTION_CHARS = 3000
"""Maximum number of characters of a section; Slack refuses longer ones."""
CARD = "application/vnd.microsoft.card.adaptive"


@dataclass
class WebhookChatNotification:
    """A chat message about a webhook event.

    Attributes:
        title: a sentence.
        facts: names and values.
        reasons: sentences with the reasons.
        command: command to type next.
        link: page that shows the event.
    """

    title: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    command: str | None = None
    link: str | None = None


def build_chat_body(format: str, payload: WebhookPayload, public_url: str = "") -> bytes:
    """Build the body of a POST that sends an event to a chat service.

    Args:
        format: slack or teams.
        payload: the event.
        public_url: address at which people reach the service; if empty, messages have no links.

    Raises:
        KeyError: there is no such format.
    """
    message = _WRITERS[format](build_chat_message_of_event(payload, public_url))
    # Names may contain lone surrogates, which UTF-8 cannot encode.
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def build_chat_message_of_event(
    payload: WebhookPayload, public_url: str = ""
) -> WebhookChatNotification:
    """Build a chat message in words from a webhook event."""
    data, name = payload["data"], payload["data"].get("name", "")
    if payload["type"] == TEST:
        return WebhookChatNotification(
            "Perennial: this webhook works.",
            link=_build_service_page_url(public_url, f"webhooks/{data.get('webhook', '')}"),
        )
    noun = payload["type"].partition(".")[0]
    message = _DESCRIBED.get(noun, _build_other_event_message)(payload["type"], name, data)
    facts = {
        "Model": name,
        "Version": data.get("version"),
        "Task": data.get("task"),
        "Status": data.get("status"),
        "Gate": _read_gate_verdict_from_webhook_data(data),
        "Cause": data.get("cause"),
    }
    # Compared and not tested for truth, since version 0 is a fact too.
    message.facts = [(key, str(value)) for key, value in facts.items() if value not in (None, "")]
    job_id, model_id = data.get("job"), data.get("model")
    of_job = noun == "job" and job_id is not None
    message.link = _build_service_page_url(
        public_url,
        f"jobs/{quote(job_id or '', safe='')}"
        if of_job
        else f"models/{quote(model_id or '', safe='')}",
    )
    return message


def _build_job_event_message(type: str, name: str, data: WebhookData) -> WebhookChatNotification:
    """Describe a job event as a chat message."""
    state, kind, job = type.partition(".")[2], data.get("kind", "job"), data.get("job") or ""
    message = WebhookChatNotification(f"{name}: a job ({kind}) {_STATES.get(state, state)}.")
    if (error := data.get("error")) is not None:
        message.reasons = [f"Kind of error: {error}"]
    if state in ("failed", "rejected"):
        # Quoted, since people paste it into a shell.
        message.command = f"perennial jobs show {shlex.quote(job)}"
    return message


def _build_version_event_message(
    type: str, name: str, data: WebhookData
) -> WebhookChatNotification:
    """Describe a version event as a chat message, with the checks that failed."""
    number = data.get("version")
    if type == "version.held":
        message = WebhookChatNotification(
            f"{name}: version {number} is held by its gate; production stays where it is."
        )
        message.command = f"perennial models show {shlex.quote(name)}"
    else:
        message = WebhookChatNotification(f"{name}: version {number} is published.")
    checks = data["gate"]["checks"] if "gate" in data else []
    failed = [check for check in checks if not check["passed"]]
    message.reasons = [
        _describe_failed_check(cast(Mapping[str, Any], check)) for check in failed[:MOST_REASONS]
    ]
    if len(failed) > MOST_REASONS:
        message.reasons.append(f"and {len(failed) - MOST_REASONS} more checks")
    return message


def _describe_failed_check(check: Mapping[str, Any]) -> str:
    """Describe a failed gate check for a chat message."""
    if check.get("detail"):
        return f"{check['name']}: {check['detail']}"
    value, limit = check.get("value"), check.get("limit")
    measured = "undefined" if value is None else f"{value:.4g}"
    return f"{check['name']}: {measured}" + ("" if limit is None else f", the limit is {limit:.4g}")


def _build_alias_move_message(type: str, name: str, data: WebhookData) -> WebhookChatNotification:
    """Describe the move of a model alias as a chat message."""
    alias, version, previous = data.get("alias", ""), data.get("version"), data.get("previous")
    if version is None:
        return WebhookChatNotification(f"{name}: the alias {alias} is deleted.")
    came = "" if previous is None else f", from version {previous}"
    return WebhookChatNotification(f"{name}: {alias} is version {version} now{came}.")


def _build_data_deletion_message(
    type: str, name: str, data: WebhookData
) -> WebhookChatNotification:
    """Describe the deletion of a task's images as a chat message."""
    return WebhookChatNotification(f"{name}: the images of task {data.get('task')} are deleted.")


def _build_finished_export_message(
    type: str, name: str, data: WebhookData
) -> WebhookChatNotification:
    """Describe a finished export as a chat message."""
    version, format = data.get("version"), data.get("format", "")
    message = WebhookChatNotification(f"{name}: version {version} can be downloaded as {format}.")
    message.command = (
        f"perennial download {shlex.quote(name)} {version} --format {shlex.quote(format)}"
    )
    return message


def _build_other_event_message(type: str, name: str, data: WebhookData) -> WebhookChatNotification:
    """Describe an event of any other type as a chat message."""
    return WebhookChatNotification(f"{name}: {type}")


def _read_gate_verdict_from_webhook_data(data: WebhookData) -> str | None:
    if "gate" not in data:
        return None
    return "passed" if data["gate"]["passed"] else "failed"


def _build_service_page_url(public_url: str, path: str) -> str | None:
    """Build the URL of a page of the service, or None without a public URL."""
    return f"{public_url.rstrip('/')}/ui/{path}" if public_url else None


def _format_slack_message(message: WebhookChatNotification) -> dict[str, Any]:
    """Format a chat message as a Slack payload."""
    paragraphs = [f"*{_shorten_and_escape_slack_line(message.title)}*"]
    paragraphs += [
        f"{name}: {_shorten_and_escape_slack_line(value)}" for name, value in message.facts
    ]
    paragraphs += [f"• {_shorten_and_escape_slack_line(reason)}" for reason in message.reasons]
    if message.command is not None:
        paragraphs.append(f"`{_shorten_and_escape_slack_line(message.command)}`")
    if message.link is not None:
        # A bar or an angle bracket in the address would end Slack's link.
        link = quote(message.link, safe=_OF_URLS).replace("&", "&amp;")
        paragraphs.append(f"<{link}|Open the page>")
    # Verbatim: Slack would turn names that look like channels or addresses into links.
    text = {"type": "mrkdwn", "text": _join_lines_that_fit(paragraphs), "verbatim": True}
    # Notifications show `text`, since they cannot show blocks.
    return {
        "text": _shorten_and_escape_slack_line(message.title),
        "blocks": [{"type": "section", "text": text}],
    }


def _shorten_and_escape_slack_line(text: str) -> str:
    """Escape text for Slack's markup, and cut it to one line."""
    return _shorten_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _join_lines_that_fit(paragraphs: list[str]) -> str:
    """Join as many whole lines as fit into a section of a Slack message."""
    text = ""
    for paragraph in paragraphs:
        joined = f"{text}\n{paragraph}" if text else paragraph
        # Goes on after a line that is too long: the command and the link are short and come last.
        if len(joined) <= SECTION_CHARS:
            text = joined
    return text


def _format_teams_message(message: WebhookChatNotification) -> dict[str, Any]:
    """Format a chat message as a Microsoft Teams payload."""
    body = [_build_teams_message_paragraph(message.title, weight="Bolder", size="Medium")]
    body += [_build_teams_message_paragraph(f"{name}: {value}") for name, value in message.facts]
    body += [_build_teams_message_paragraph(f"• {reason}") for reason in message.reasons]
    if message.command is not None:
        body.append(_build_teams_message_paragraph(message.command, fontType="Monospace"))
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "fallbackText": _shorten_line(message.title),
        "body": body,
    }
    if message.link is not None:
        card["actions"] = [
            {"type": "Action.OpenUrl", "title": "Open the page", "url": message.link}
        ]
    return {
        "type": "message",
        "attachments": [{"contentType": CARD, "contentUrl": None, "content": card}],
    }


def _build_teams_message_paragraph(text: str, **style: str) -> dict[str, Any]:
    """Build a paragraph of plain text for Teams; a TextBlock would interpret Markdown."""
    return {
        "type": "RichTextBlock",
        "inlines": [{"type": "TextRun", "text": _shorten_line(text), **style}],
    }


def _shorten_line(text: str) -> str:
    """Shorten a text to one line of a maximum length."""
    cut = " ".join(text.split())
    return cut if len(cut) <= MOST_CHARS else f"{cut[: MOST_CHARS - 1]}…"


_OF_URLS = "/:?#[]@!$&'()*+,;=%-._~"
_STATES = {
    "succeeded": "is done",
    "failed": "has failed",
    "rejected": "has rejected its batch",
    "cancelled": "was cancelled",
}
_DESCRIBED: dict[str, Callable[[str, str, WebhookData], WebhookChatNotification]] = {
    "job": _build_job_event_message,
    "version": _build_version_event_message,
    "alias": _build_alias_move_message,
    "task": _build_data_deletion_message,
    "export": _build_finished_export_message,
}
_WRITERS: dict[str, Callable[[WebhookChatNotification], dict[str, Any]]] = {
    "slack": _format_slack_message,
    "teams": _format_teams_message,
}
