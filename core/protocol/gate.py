"""A gate: what a version must show before `production` moves to it, and the verdict on one version."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from core.protocol.losses import Visible

Limit = Literal[
    "max_forgetting",
    "min_new_task",
    "min_acc",
    "max_predicted_loss_rise",
    "max_negative_flips",
    "min_coverage",
]
ImageCheck = Literal["forgotten", "confused", "class_lost", "drifted", "learned_nothing"]
"""Checks beside other versions, image by image; the limit of each is a share of images."""
Check = Literal[ImageCheck, "features_collapsed"]
"""All checks beside other versions."""


class GateLimits(TypedDict, total=False):
    """The limits that a request sets; null: not asked. `checks` sets those of all checks beside production."""

    checks: Literal["on", "off"] | None

    max_forgetting: float | None
    min_new_task: float | None
    min_acc: float | None
    max_predicted_loss_rise: float | None
    max_negative_flips: float | None
    min_coverage: float | None
    forgotten: float | None
    confused: float | None
    class_lost: float | None
    drifted: float | None
    learned_nothing: float | None
    features_collapsed: float | None


class GateOut(TypedDict):
    """A model's gate: its limits; null: not asked. GateIn says what each of them means."""

    max_forgetting: float | None
    min_new_task: float | None
    min_acc: float | None
    max_predicted_loss_rise: float | None
    max_negative_flips: float | None
    min_coverage: float | None
    forgotten: float | None
    confused: float | None
    class_lost: float | None
    drifted: float | None
    learned_nothing: float | None
    features_collapsed: float | None


class CheckPicture(TypedDict):
    """A held-out image that was answered right before and is answered wrong now; `image`: its address."""

    task: int
    index: int
    label: str
    before: str
    now: str
    image: str


class GateCheck(TypedDict):
    """What one check found.

    `value` null: the figure is undefined (the check passes) or no finite number (it does not); `limit` null: nothing is
    asked. The check `lost_tasks` counts in `value` the `tasks` that the version was not taught, and names the `classes`
    that it therefore cannot answer. Of `parent_rolled_back` the value is the version's parent, and the limit
    the version that the line goes on from. Of `max_negative_flips` the version was compared with the version
    `against`, in production then, on so many `images`; `negative` of them that one answers right and this one
    wrong.

    The checks `forgotten`, `confused`, `class_lost`, `drifted` and `learned_nothing` add `detail`, a sentence on what
    was compared; `positive`, images that this version alone answers right; `p`, of McNemar's exact one-sided test, for
    the worst of several tasks times their number;
    `classes`, the worst ones; `tasks` that drifted; and a few `pictures` of a check that failed. `features_collapsed`
    has `detail`, `images` and `against`: of a check that failed the last good version. `not_measured`: why nothing was
    compared, in words; then `value` is null and the check passes.
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
    positive: NotRequired[int]
    p: NotRequired[float]
    detail: NotRequired[str]
    not_measured: NotRequired[str]
    pictures: NotRequired[list[CheckPicture]]


class Visibility(Visible):
    """Losses that the held-out images of earlier tasks can show; `detail` says so in a sentence."""

    detail: str


class Overruled(TypedDict):
    """The key that put a held version in production (null: none was needed), and why."""

    key: str | None
    reason: str | None


class Verdict(TypedDict):
    """The judgement of a version by its gate; `overruled` where a person promoted it against its checks.

    `visible`: the losses that the checks could have seen; absent where none of them compares images.
    """

    passed: bool
    checks: list[GateCheck]
    visible: NotRequired[Visibility]
    overruled: NotRequired[Overruled]
