"""Times in responses: RFC 3339 in UTC; internally, times are seconds since 1970."""

import re
from datetime import UTC, datetime
from typing import overload

from core.errors import Invalid

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


@overload
def format_rfc3339(at: float) -> str: ...
@overload
def format_rfc3339(at: None) -> None: ...
@overload
def format_rfc3339(at: float | None) -> str | None: ...
def format_rfc3339(at: float | None) -> str | None:
    """Format seconds since 1970 as `2026-11-21T08:00:00.123456Z`."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_rfc3339(text: str) -> float:
    """Return the seconds since 1970 of an RFC 3339 time with an offset.

    Raises:
        Invalid: the text has another form, or names no existing moment.
    """
    # `fromisoformat` also accepts dates alone, weeks, and times without an offset.
    if not _RFC3339.fullmatch(text):
        raise Invalid(f"{text!r} is not an RFC 3339 time such as 2026-11-21T08:00:00Z.")
    try:
        # `fromisoformat` does not accept the lower-case z that RFC 3339 allows.
        return datetime.fromisoformat(text.upper()).timestamp()
    except (ValueError, OverflowError) as error:
        raise Invalid(f"{text!r} is no moment: {error}.") from None
