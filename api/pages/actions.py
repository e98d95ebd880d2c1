"""What waits for a person, with a button for each request that settles it.

A form of the page is sent to the path of the API's request, under `/ui` in place of `/v1`; what needs more than a
button is a link to where it is done.
"""

import json
import re
from dataclasses import dataclass

from core.protocol.answers.attention import ActionOut, AttentionOut
from core.protocol.answers.model import ModelOut

_FORMS = re.compile(
    r"/v1/(?:jobs/[^/]+/retry|models/[^/]+/(?:aliases/production|tasks/[0-9]+/(?:continue|discard|relearn)))"
)


@dataclass(frozen=True)
class Button:
    """A request as a form, or a link to where it is made.

    Attributes:
        path: where the form goes; `version`: what it sends.
        reason: whether it asks for a reason.
        again: whether it learns a task again, so that a recipe is chosen; `recipe`: the one that is advised, as JSON.
        link: a place of the pages, instead of a form.
    """

    title: str
    path: str | None
    version: int | None
    reason: bool = False
    again: bool = False
    link: str | None = None
    recipe: str | None = None


@dataclass(frozen=True)
class Waiting:
    """Something that waits for a person, and its buttons, the first of which is the usual one."""

    about: AttentionOut
    buttons: list[Button]


def buttons(model: ModelOut) -> list[Waiting]:
    """Everything that waits in a model."""
    return [Waiting(one, [_button(model, action) for action in one["actions"]]) for one in model["attention"]]


def _button(model: ModelOut, action: ActionOut) -> Button:
    body = action["body"] or {}
    if action["method"] in ("POST", "PUT") and _FORMS.fullmatch(action["path"]):
        path = action["path"].replace("/v1/", "/ui/", 1)
        recipe = json.dumps(body["recipe"], ensure_ascii=False) if "recipe" in body else None
        again = path.endswith(("/retry", "/relearn")) and model["state"] == "ready" and recipe is None
        return Button(
            action["title"], path, body.get("version"), "reason" in body, again=again, recipe=recipe
        )
    if action["method"] == "DELETE":
        return Button(action["title"], None, None, link=f"/ui/models/{model['id']}#delete")
    return Button(action["title"], None, None, link=f"/ui/models/{model['id']}/submit")
