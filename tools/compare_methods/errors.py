"""The error of a comparison that cannot be made."""


class CannotCompare(ValueError):
    """A comparison that cannot be made.

    The message says what is wrong, what is allowed and what to do.
    """
