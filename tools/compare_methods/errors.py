"""The error of a comparison that cannot be made."""


class ComparisonImpossible(ValueError):
    """The comparison of update methods cannot be made.

    The message says what is wrong, what is allowed and what to do.
    """
