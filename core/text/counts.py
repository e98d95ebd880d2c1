"""Counts with their nouns, for sentences that people read."""


def format_count_with_noun(number: int, noun: str, plural: str = "") -> str:
    """Format a count with its noun: `1 image`, `1,200 images`.

    Args:
        plural: the noun's plural, if it is not formed with an "s".
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
