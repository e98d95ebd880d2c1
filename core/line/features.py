"""Decide from counts whether a version's features have collapsed, and which version is the last good one.

The figure is `baseline_lda`: the accuracy of a linear discriminant on the features, whatever the head says. Both sides
are samples, so a loss counts only where it exceeds its limit and two standard errors of the difference.
"""

from fractions import Fraction

from core.protocol.features import FeatureCount, FeatureShare

LIMIT = 0.10
"""Accuracy that the features of a version may lose beside its best ancestor's."""
SPREADS = 2
"""Standard errors of the difference that a loss must exceed: what lies below may be chance."""
LEAST_IMAGES = 20
"""Images of each side below which nothing is compared: one is five points or more."""


def find_loss(one: FeatureShare) -> float:
    """Return the accuracy of the ancestor less that of the version."""
    return float(_lead(one))


def has_collapsed(one: FeatureShare, limit: float = LIMIT) -> bool:
    """Return True if a version is worse than an ancestor by more than the limit and chance."""
    lead = _lead(one)
    spread = sum(
        share * (1 - share) / images
        for share, images in (
            (one["right"] / one["images"], one["images"]),
            (one["right_before"] / one["images_before"], one["images_before"]),
        )
    )
    # As fractions: 0.8 - 0.7 is more than 0.1 in floating point.
    return lead > Fraction(repr(limit)) and float(lead) > SPREADS * spread**0.5


def find_last_good(found: FeatureCount | None, limit: float = LIMIT) -> FeatureShare | None:
    """Return the newest good ancestor that a version has collapsed beside; None where its features have not collapsed.

    An ancestor whose own features had collapsed is nothing to go on from. Where all of them had, the best is returned.
    """
    worse = [one for one in found["ancestors"] if has_collapsed(one, limit)] if found is not None else []
    good = [one for one in worse if one["is_good"]]
    return max(good, key=lambda one: one["version"]) if good else max(worse, key=_lead, default=None)


def find_best(found: FeatureCount) -> FeatureShare | None:
    """Return the ancestor that is furthest ahead; None where none was compared."""
    return max(found["ancestors"], key=_lead, default=None)


def say_shares(one: FeatureShare) -> tuple[str, str]:
    """Return `32 % of 120` of the version and `71 % of 118` of the ancestor."""
    now, before = (one["right"], one["images"]), (one["right_before"], one["images_before"])
    return _share(*now), _share(*before)


def _share(right: int, images: int) -> str:
    return f"{100 * right / images:.0f} % of {images:,}"


def _lead(one: FeatureShare) -> Fraction:
    return Fraction(one["right_before"], one["images_before"]) - Fraction(one["right"], one["images"])
