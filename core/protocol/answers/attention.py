"""What in a model waits for a person, and the requests that settle it."""

from typing_extensions import TypedDict

from core.protocol.gate import CheckPicture
from core.protocol.patch import RecipePatch


class ActionBody(TypedDict, total=False):
    """The body of such a request; `…` is for a person to fill in."""

    version: int
    reason: str
    recipe: RecipePatch


class ActionOut(TypedDict):
    """A request that settles something; `body` null: it is not JSON."""

    title: str
    method: str
    path: str
    body: ActionBody | None


class AttentionOut(TypedDict):
    """What in a model waits for a person, in a sentence (`detail`) and the requests that settle it (one of `actions`;
    the first mends it).

    `kind`: held, rolled_back, rejected or failed, of a task; base: the weights of the model's base could not
    be brought.

    `version` is the held one, or of a task that was rolled back the one that knew it; `training_data_until`: the day on
    which it can no longer be learned again. `pictures`: of a held version, a few held-out images that production
    answers right and it answers wrong.
    """

    kind: str
    version: int | None
    task: int | None
    since: str | None
    training_data_until: str | None
    detail: str
    actions: list[ActionOut]
    pictures: list[CheckPicture]
