"""Items in a model that wait for a person, with a button for each request that settles them.

A form posts to the path of the API request, under `/ui` instead of `/v1`. An action that needs more
than a button is a link to the page where it is done.
"""

import json
import re
from dataclasses import dataclass

from core.contract.responses.attention import ActionOut, AttentionOut
from core.contract.responses.model import ModelOut

# A form can send only these requests: its path is the API's, with `/ui` in place of `/v1`.
_FORMS = re.compile(
    r"/v1/(?:jobs/[^/]+/retry|models/[^/]+/(?:aliases/production|tasks/[0-9]+/(?:continue|discard|relearn)))"
)
_CHOICE = re.compile(r"/v1/jobs/([^/]+)/choose")


@dataclass(frozen=True)
class ApiRequestButton:
    """A button that sends a request of the API from a page, or a link to the page that has it.

    Attributes:
        path: the path that the form posts to.
        version: the version that the form sends.
        reason: whether the form asks for a reason.
        again: whether the request learns a task again, so that the form offers a choice of recipe.
        recipe: the advised recipe, as JSON.
        link: path of a page, used instead of a form.
    """

    title: str
    path: str | None
    version: int | None
    reason: bool = False
    again: bool = False
    link: str | None = None
    recipe: str | None = None


@dataclass(frozen=True)
class AttentionItem:
    """A pending decision about a model, with the buttons that settle it; the first is the usual
    choice.
    """

    about: AttentionOut
    buttons: list[ApiRequestButton]


def build_attention_items(model: ModelOut) -> list[AttentionItem]:
    """Return everything in a model that waits for a person's decision."""
    return [
        AttentionItem(one, _build_attention_item_buttons(model, one)) for one in model["attention"]
    ]


def _build_attention_item_buttons(model: ModelOut, item: AttentionOut) -> list[ApiRequestButton]:
    # The table of trials has a button for each of them.
    jobs = (_CHOICE.fullmatch(action["path"]) for action in item["actions"])
    job = next((match[1] for match in jobs if match is not None), None)
    if job is not None:
        return [
            ApiRequestButton("See the trials and choose", None, None, link=f"/ui/jobs/{job}#trials")
        ]
    return [_build_action_button(model, action) for action in item["actions"]]


def _build_action_button(model: ModelOut, action: ActionOut) -> ApiRequestButton:
    body = action["body"] or {}
    if action["method"] in ("POST", "PUT") and _FORMS.fullmatch(action["path"]):
        path = action["path"].replace("/v1/", "/ui/", 1)
        recipe = json.dumps(body["recipe"], ensure_ascii=False) if "recipe" in body else None
        # With an advised recipe, or before the model has its base, there is nothing to choose.
        has_recipe_choice = (
            path.endswith(("/retry", "/relearn")) and model["state"] == "ready" and recipe is None
        )
        return ApiRequestButton(
            action["title"],
            path,
            body.get("version"),
            "reason" in body,
            again=has_recipe_choice,
            recipe=recipe,
        )
    if action["method"] == "DELETE":
        return ApiRequestButton(
            action["title"], None, None, link=f"/ui/models/{model['id']}#delete"
        )
    return ApiRequestButton(action["title"], None, None, link=f"/ui/models/{model['id']}/submit")
