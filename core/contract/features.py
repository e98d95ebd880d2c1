"""Quality of a version's features, compared with those of its ancestors: for gate and warnings."""

from typing_extensions import TypedDict


class AncestorFeatureAccuracy(TypedDict):
    """Accuracy of a linear discriminant on a version's features, and on those of one ancestor.

    It is evaluated on the tasks of both, among the classes that the ancestor knows.

    - `right` of `images`: correct answers for the version.
    - `right_before` of `images_before`: correct answers for the ancestor.
    - `is_good`: the ancestor's own features have not collapsed, as far as that was counted.
    """

    version: int
    images: int
    right: int
    images_before: int
    right_before: int
    is_good: bool


class AncestorFeatureComparison(TypedDict):
    """Comparison of a version's feature accuracy with that of its ancestors, newest first.

    `missing`: why there is none, in words.
    """

    ancestors: list[AncestorFeatureAccuracy]
    missing: str | None
