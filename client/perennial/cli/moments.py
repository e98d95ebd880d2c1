"""Moments as people type them: a date, a time, or so long from now or ago."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import click

_LENGTH = re.compile(r"([0-9]{1,5}) ?([hdw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


class Moment(click.ParamType[str]):
    """A moment, as the service reads it.

    Args:
        is_past: a length such as 30d is so long ago, and a date its beginning; else from now on, and its end.
    """

    name = "moment"

    def __init__(self, *, is_past: bool) -> None:
        self._is_past = is_past

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return RFC 3339 in UTC; a time without an offset is UTC."""
        text = str(value).strip()
        length = _LENGTH.fullmatch(text)
        try:
            if length is not None:
                away = timedelta(**{_UNITS[length[2]]: int(length[1])})
                found = datetime.now(UTC) + (-away if self._is_past else away)
            elif len(text) == len("2027-01-31"):
                found = datetime.combine(date.fromisoformat(text), self._time_of_date(), UTC)
            else:
                found = datetime.fromisoformat(text)
                found = found if found.tzinfo else found.replace(tzinfo=UTC)
            return found.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is no moment: write it such as 30d, 12h, 2027-01-31 or 2027-01-31T08:00:00Z",
                param,
                ctx,
            )

    def _time_of_date(self) -> time:
        return time.min if self._is_past else time(23, 59, 59)


FUTURE, PAST = Moment(is_past=False), Moment(is_past=True)
