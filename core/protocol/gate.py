"""A gate: what a version must show before `production` moves to it, and the verdict on one version."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

Limit = Literal["max_forgetting", "min_new_task", "min_acc", "max_predicted_loss_rise", "max_negative_flips"]


class GateLimits(TypedDict, total=False):
    """The limits that a request sets; null: not asked."""

    max_forgetting: float | None
    min_new_task: float | None
    min_acc: float | None
    max_predicted_loss_rise: float | None
    max_negative_flips: float | None


class GateOut(TypedDict):
    """A model's gate: its limits; null: not asked. GateIn says what each of them means."""

    max_forgetting: float | None
    min_new_task: float | None
    min_acc: float | None
    max_predicted_loss_rise: float | None
    max_negative_flips: float | None


class GateCheck(TypedDict):
    """What one check found.

    `value` null: the figure is undefined (the check passes) or no finite number (it does not); `limit` null: nothing is
    asked. The check `lost_tasks` counts in `value` the `tasks` that the version was not taught, and names the `classes`
    that it therefore cannot answer. Of `parent_rolled_back` the value is the version's parent, and the limit
    the version that the line goes on from. Of `max_negative_flips` the version was compared with the version
    `against`, in production then, on so many `images`; `negative` of them that one answers right and this one
    wrong.
    """

    name: str
    limit: float | None
    value: float | None
    passed: bool
    tasks: NotRequired[list[int]]
    classes: NotRequired[list[str]]
    against: NotRequired[int]
    negative: NotRequired[int]
    images: NotRequired[int]


class Overruled(TypedDict):
    """The key that put a held version in production (null: none was needed), and why."""

    key: str | None
    reason: str | None


class Verdict(TypedDict):
    """Whether a version passed its gate, by which checks; `overruled` where a person promoted it against them."""

    passed: bool
    checks: list[GateCheck]
    overruled: NotRequired[Overruled]
