"""The sentences of the API as a page says them: where the API names a request, a page names its button."""

import json
import re
from urllib.parse import urlencode

from core.line.words import SETTLED_BY

_BUTTONS = (
    # What a program would send: of a page, its form sends it.
    (re.compile(r": (?:Perennial-Recipe:|POST /v1/models) \{.{0,2000}?\}(?=\.(?: |\Z))"), ""),
    (re.compile(r"POST /v1/models/\S+/aliases/production/follow"), "A button on the model’s page"),
    (re.compile(r"PUT /v1/models/\S+/aliases/\S+ can"), "“Promote…” can"),
    (re.compile(r"POST /v1/models/\S+/rebase/finish moves"), "“Move production…” moves"),
    (re.compile(r"POST /v1/models/(\S+)/rebase/finish puts"), r"“Put \1 back…” puts"),
    (re.compile(r": POST /v1/jobs/\S+/retry with \{.{0,2000}?\}(?=\.(?: |\Z))"), " with “Learn it again…”"),
    (re.compile(r", and send POST /v1/jobs/\S+/retry(?=\.(?: |\Z))"), ", and press “Try again”"),
    (re.compile(r": POST /v1/jobs/\S+/retry(?=\.?(?: |\Z))"), ""),
    (
        re.compile(r": report\.data\.suspects of the task, and pictures on its page"),
        ", on the page of the task",
    ),
    (re.compile(r" \((?:GET|POST|PUT|DELETE) /v1/[^)]*\)"), ""),
    (re.compile(r" with (?:POST|PUT) /v1/[^ ]*[^ .,;:]"), ""),
)
"""Requests and what stands for them, in this order."""
_NEW_MODEL = re.compile(r"POST /v1/models (\{.*\})\.")
_NEXT_BATCH = re.compile(r"Send the next batch [^:{]{0,200}: Perennial-Recipe: (\{.{0,2000}?\})\.(?: |\Z)")


def for_people(text: str) -> str:
    """A sentence of the API with the page's buttons in place of requests, where it has some for them."""
    text = text.replace(SETTLED_BY, "")
    for request, button in _BUTTONS:
        text = request.sub(button, text)
    return text.strip().replace("`", "")


def new_model(text: str) -> str | None:
    """The path of the form that makes the model which a sentence of the API asks for, on that of another; or None."""
    found = _NEW_MODEL.search(text)
    if found is None:
        return None
    try:
        asked = json.loads(found[1])
        filled = {"name": asked["name"], "scenario": asked["scenario"], "base": "version", **asked["base"]}
        return f"/ui/models/new?{urlencode(filled)}"
    except (ValueError, KeyError, TypeError):  # somebody chose a name that looks like one
        return None


def next_batch(text: str) -> str | None:
    """The query of the form that sends a batch, filled in with the recipe that a sentence advises; or None."""
    found = _NEXT_BATCH.search(text)
    return None if found is None else urlencode({"recipe": found[1]})
