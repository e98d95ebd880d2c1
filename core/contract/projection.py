"""Width of the random projection in front of a classifier in closed form."""

WIDE = 512
"""Number of features from which on a projection loses accuracy: see docs/design/defaults.md."""
NARROW_COLUMNS = 1000
"""Random features for a narrower backbone."""


def resolve_random_feature_count(projection: int | None, features: int) -> int:
    """Return the number of random features that a recipe's projection has; 0 without a projection.

    Args:
        projection: the recipe's value; None chooses by the number of features.
        features: number of features of the backbone.
    """
    if projection is not None:
        return projection
    return 0 if features >= WIDE else NARROW_COLUMNS
