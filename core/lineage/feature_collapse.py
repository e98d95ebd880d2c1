"""Detection of collapsed features from counts, and choice of the last good version.

The measure is `baseline_lda`: the accuracy of a linear discriminant on the features, independent of
the head. Both sides are samples, so a loss counts only if it exceeds its limit and two standard
errors of the difference.
"""

from fractions import Fraction

from core.contract.features import AncestorFeatureAccuracy, AncestorFeatureComparison

LIMIT = 0.10
"""Maximum loss of accuracy of a version's features against its best ancestor."""
SPREADS = 2
"""Number of standard errors of the difference that a loss must exceed; a smaller one may be chance.
"""
LEAST_IMAGES = 20
"""Minimum images of each side for a comparison; with fewer, one image is more than five points."""


def compute_feature_accuracy_drop(one: AncestorFeatureAccuracy) -> float:
    """Compute how much worse a version's features are than an ancestor's: the difference of
    accuracies.
    """
    return float(_compute_accuracy_drop_as_fraction(one))


def has_feature_collapse(one: AncestorFeatureAccuracy, limit: float = LIMIT) -> bool:
    """Return True if a version's feature accuracy is below an ancestor's by more than limit and
    chance.
    """
    lead = _compute_accuracy_drop_as_fraction(one)
    spread = sum(
        share * (1 - share) / images
        for share, images in (
            (one["right"] / one["images"], one["images"]),
            (one["right_before"] / one["images_before"], one["images_before"]),
        )
    )
    # Exact fractions, because 0.8 - 0.7 exceeds 0.1 in floating point.
    return lead > Fraction(repr(limit)) and float(lead) > SPREADS * spread**0.5


def find_ancestor_before_feature_collapse(
    count: AncestorFeatureComparison | None, limit: float = LIMIT
) -> AncestorFeatureAccuracy | None:
    """Find the newest good ancestor against which a version's features have collapsed.

    Return None if its features have not collapsed. An ancestor whose own features had collapsed is
    no good start. If all of them had collapsed, the best one is returned.
    """
    worse = (
        [one for one in count["ancestors"] if has_feature_collapse(one, limit)]
        if count is not None
        else []
    )
    # Of good ones the newest is preferred: it was taught the most tasks, so least is lost.
    good = [one for one in worse if one["is_good"]]
    return (
        max(good, key=lambda one: one["version"])
        if good
        else max(worse, key=_compute_accuracy_drop_as_fraction, default=None)
    )


def find_ancestor_with_best_features(
    count: AncestorFeatureComparison,
) -> AncestorFeatureAccuracy | None:
    """Find the ancestor with the best feature accuracy compared to the version, or None."""
    return max(count["ancestors"], key=_compute_accuracy_drop_as_fraction, default=None)


def format_feature_accuracies(one: AncestorFeatureAccuracy) -> tuple[str, str]:
    """Format feature accuracies, such as `32 % of 120` of the version and `71 % of 118` of the
    ancestor.
    """
    version, ancestor = (one["right"], one["images"]), (one["right_before"], one["images_before"])
    return _format_accuracy(*version), _format_accuracy(*ancestor)


def _format_accuracy(right: int, images: int) -> str:
    return f"{100 * right / images:.0f} % of {images:,}"


def _compute_accuracy_drop_as_fraction(one: AncestorFeatureAccuracy) -> Fraction:
    """Subtract the feature accuracy of a version from an ancestor's, as an exact fraction."""
    return Fraction(one["right_before"], one["images_before"]) - Fraction(
        one["right"], one["images"]
    )
