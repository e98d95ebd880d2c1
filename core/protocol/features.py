"""Counts of a version's features beside those of its ancestors, taken when it was made: for its gate and warnings."""

from typing_extensions import TypedDict


class FeatureShare(TypedDict):
    """A linear discriminant on the features of a version and of the ancestor `version`, on the tasks of both.

    `right` of `images` for the version, `right_before` of `images_before` for the ancestor, among the classes that the
    ancestor knows. `is_good`: the ancestor's own features have not collapsed, as far as that was counted.
    """

    version: int
    images: int
    right: int
    images_before: int
    right_before: int
    is_good: bool


class FeatureCount(TypedDict):
    """The ancestors that were compared, the newest first; `missing`: why there is none, in words."""

    ancestors: list[FeatureShare]
    missing: str | None
