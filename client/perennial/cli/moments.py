"""Dates and times as people type them: a date, a time, or a duration from now."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import click

_LENGTH = re.compile(r"([0-9]{1,5}) ?([hdw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


class Moment(click.ParamType[str]):
    """A parameter type for a date or time.

    Args:
        is_past: True: a duration such as 30d lies in the past, and a date means its beginning.
            False: it lies in the future, and a date means its end.
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
                duration = timedelta(**{_UNITS[length[2]]: int(length[1])})
                moment = datetime.now(UTC) + (-duration if self._is_past else duration)
            elif len(text) == len("2027-01-31"):
                moment = datetime.combine(date.fromisoformat(text), self._time_of_date(), UTC)
            else:
                moment = datetime.fromisoformat(text)
                moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is no moment: write it such as 30d, 12h, 2027-01-31 or "
                f"2027-01-31T08:00:00Z",
                param,
                ctx,
            )

    def _time_of_date(self) -> time:
        return time.min if self._is_past else time(23, 59, 59)


FUTURE, PAST = Moment(is_past=False), Moment(is_past=True)
