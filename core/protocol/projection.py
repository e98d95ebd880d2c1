"""Columns of the random projection in front of a classifier in closed form."""

WIDE = 512
"""Features from which on a projection loses more than it gains: see docs/design/defaults.md."""
NARROW_COLUMNS = 1000
"""Random features for a narrower backbone."""


def count_columns(projection: int | None, features: int) -> int:
    """Return the number of random features; 0: none, the classifier reads the backbone's own.

    Args:
        projection: as the recipe says; None: by the number of features.
        features: of the backbone.
    """
    if projection is not None:
        return projection
    return 0 if features >= WIDE else NARROW_COLUMNS
