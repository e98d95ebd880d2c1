"""Items in a model that wait for a person, and the requests that settle them."""

from typing_extensions import TypedDict

from core.contract.gate import CheckPicture
from core.contract.patch import RecipePatch


class ActionBody(TypedDict, total=False):
    """JSON body of a suggested request; a person replaces each `…` in it."""

    version: int
    reason: str
    recipe: RecipePatch
    trial: int


class ActionOut(TypedDict):
    """A suggested request that settles an attention item; `body` null: the request has no JSON
    body.
    """

    title: str
    method: str
    path: str
    body: ActionBody | None


class AttentionOut(TypedDict):
    """An attention item: something in a model that waits for a person, and the requests that settle
    it.

    One of `actions` settles it; the first repairs its cause. `kind`: held, rolled_back, rejected or
    failed, of a task; choosing: the trials of its job wait for a choice; base: the weights of the
    model's base could not be fetched.

    `version` is the held one, or for a task that was rolled back the one that knew it;
    `training_data_until`: the day from which it can no longer be learned again. `pictures`: of a
    held version, a few held-out images that production classifies correctly and it does not.
    `reasons`: of a held version, a sentence for each check that failed.
    """

    kind: str
    version: int | None
    task: int | None
    since: str | None
    training_data_until: str | None
    detail: str
    actions: list[ActionOut]
    reasons: list[str]
    pictures: list[CheckPicture]
