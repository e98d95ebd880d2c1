"""Sentences of the API as pages show them: with buttons in place of the requests that they name."""

import json
import re
from urllib.parse import urlencode

from core.lineage.wording import SETTLED_BY
from perennial.steps import (
    ApiRequestForAdvice,
    find_requests_in_sentence,
    render_query_parameters_in_text,
    replace_requests_in_sentence,
)

# Repetitions have a bound, so that a hostile sentence takes linear time.
_LEFT_OUT = (
    (
        re.compile(r"POST /v1/models/[^/\s]+/rebase/finish puts (\S+) back"),
        r"“Put \1 back…” puts \1 back",
    ),
    (
        re.compile(r": report\.data\.suspects of the task, and pictures on its page"),
        ", on the page of the task",
    ),
    (
        re.compile(r"Perennial-Recipe: \{.{0,2000}?\}(?=\.(?: |\Z))"),
        "“Send the next batch so…”",
    ),  # advice stored by earlier releases
    (re.compile(r'give a reason: \{"version": \d+, "reason": "…"\}'), "give a reason"),
    (re.compile(r"\?task="), "its number"),
    (re.compile(r'send \{"missing": "allow"\}'), "say so there"),
)
"""Phrases of the API that are not whole requests (regular expressions), and their form on a
page."""
_EARLIER = re.compile(
    r"Send the next batch [^:{]{0,200}: Perennial-Recipe: (\{.{0,2000}?\})\.(?: |\Z)"
)
"""Advice to send the next batch, as earlier releases stored it; its group is the recipe."""


def replace_requests_by_button_labels(text: str) -> str:
    """Return an error or advice of the API with its requests replaced by labels of page buttons."""
    # The page has the buttons of these requests.
    text = text.replace(SETTLED_BY, "")
    for pattern, replacement in _LEFT_OUT:
        text = pattern.sub(replacement, text)
    text = replace_requests_in_sentence(text, _describe_advised_request_as_button)
    text = render_query_parameters_in_text(
        text, lambda name, value: f"“{name.replace('_', ' ')}: {value}”"
    )
    # Backticks mark code for readers of JSON; a page would show them as they are.
    return text.strip().replace("`", "")


def find_advised_new_model_form_path(text: str) -> str | None:
    """Return the path of the new-model form if a sentence advises to create a model, else None."""
    for step in _list_api_requests_in_advice_text(text):
        body = step.body
        if step.path != "/v1/models" or body is None:
            continue
        try:
            filled = {
                "name": body["name"],
                "scenario": body["scenario"],
                "base": "version",
                **body["base"],
            }
            return f"/ui/models/new?{urlencode(filled)}"
        except (KeyError, TypeError, ValueError):  # a user chose a name that looks like a request
            return None
    return None


def find_advised_batch_form_query(text: str) -> str | None:
    """Return a query that fills the batch form with the recipe a sentence advises; None without
    one.
    """
    advised = next(
        (one.recipe for one in _list_api_requests_in_advice_text(text) if one.recipe is not None),
        None,
    )
    if advised is not None:
        return urlencode({"recipe": json.dumps(advised)})
    match = _EARLIER.search(text)
    return None if match is None else urlencode({"recipe": match[1]})


def _list_api_requests_in_advice_text(text: str) -> list[ApiRequestForAdvice]:
    return [step for _, _, step in find_requests_in_sentence(text)]


def _describe_advised_request_as_button(step: ApiRequestForAdvice) -> str | None:
    if step.path == "/v1/models" and step.method == "POST":
        return "“Create that model…”"
    if step.recipe is not None:
        return "“Send the next batch so…”"
    if step.path.endswith("/retry") and step.body is None:
        return "“Try again”"
    if (button := step.get_button_label()) is not None:
        return button
    command = step.format_as_command()
    return None if command is None else f"the command {command}"
