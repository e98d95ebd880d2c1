"""The gate: limits that a version must meet before `production` moves to it, and the verdict."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from core.contract.losses import DetectableLosses

Limit = Literal[
    "max_forgetting",
    "min_new_task",
    "min_acc",
    "max_predicted_loss_rise",
    "max_negative_flips",
    "min_coverage",
]
ImageCheck = Literal["forgotten", "confused", "class_lost", "drifted", "learned_nothing"]
"""Checks against other versions, image by image. The limit of each is a share of images."""
Check = Literal[ImageCheck, "features_collapsed"]
"""All checks against other versions."""


class GateLimits(TypedDict, total=False):
    """Limits of a model's gate that a request sets; null removes a limit.

    `checks` sets those of all checks against production.
    """

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
    """The limits that a version must meet before it is published; null: no limit. `GateIn` defines
    each.
    """

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
    """A held-out image that was classified correctly before and is classified wrongly now.

    `image`: its resource path.
    """

    task: int
    index: int
    label: str
    before: str
    now: str
    image: str


class GateCheck(TypedDict):
    """Result of one check of the publication gate on a version.

    - `value`: null if the figure is undefined (the check passes) or not a finite number (it fails).
    - `limit`: null if there is no limit.

    Fields of particular checks:

    - `lost_tasks`: `value` counts the `tasks` that the version was not taught, and `classes` names
      the classes that it therefore cannot predict.
    - `parent_rolled_back`: `value` is the version's parent, `limit` the version that the lineage
      continues from.
    - `max_negative_flips`: the version was compared on `images` images with the version `against`,
      in production at that time. `negative` of them are classified correctly only by that version.
    - `forgotten`, `confused`, `class_lost`, `drifted`, `learned_nothing`: `detail` describes the
      comparison in a sentence. `positive` counts the images that only this version classifies
      correctly. `p` is that of McNemar's exact one-sided test, for the worst of several tasks times
      their number. `classes` are the worst ones, `tasks` those that drifted, and `pictures` has a
      few images of a check that failed.
    - `features_collapsed`: has `detail`, `images` and `against`, which for a failed check is the
      last good version.

    `not_measured` says why nothing was compared; then `value` is null and the check passes.
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


class Visibility(DetectableLosses):
    """Losses that the held-out images of earlier tasks can reveal; `detail` describes them."""

    detail: str


class Overruled(TypedDict):
    """The key that put a held version in production (null: none was needed), and the reason."""

    key: str | None
    reason: str | None


class Verdict(TypedDict):
    """The gate's verdict on a version: passed or held, with the result of each check.

    - `overruled`: set if a person promoted the version against its checks.
    - `visible`: losses that the checks could have detected; absent if none of them compares images.
    """

    passed: bool
    checks: list[GateCheck]
    visible: NotRequired[Visibility]
    overruled: NotRequired[Overruled]
