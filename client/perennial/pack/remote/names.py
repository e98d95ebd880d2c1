"""Checks of file names that other people chose."""

from perennial.errors import BadAnswer
from perennial.guard import require_safe_filename


def is_safe_file_name(name: str) -> bool:
    """Return True if a name denotes a file in its folder, and nowhere else, on every system."""
    try:
        require_safe_filename(name)
    except BadAnswer:
        return False
    return True
