"""Answers of the service, read within bounds of bytes, growth and time, and as JSON that is none of the odd kinds."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from perennial.errors import BadAnswer

MAX_ANSWER_BYTES = 64 << 20
"""Of an answer in JSON, unpacked."""
MAX_PROBLEM_BYTES = 1 << 20
"""Of an answer that is an error."""
MAX_RATIO = 200
"""Bytes that one byte of a compressed answer may become, from `FREE_BYTES` on."""
FREE_BYTES = 1 << 20
SLOWEST_BYTES_S = 1024
"""An answer that comes more slowly than this, for longer than its timeout, is given up."""
MAX_PAGES = 5000
"""Of one list: a million items."""


@dataclass(frozen=True)
class Answer:
    """An answer that was wholly read."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        """Its body as JSON. Raises BadAnswer."""
        return read_json(self.content)


class Meter:
    """Bounds one body while it is read.

    Args:
        most_bytes: that it may have, unpacked.
        patience_s: in which it need not have brought anything.
    """

    def __init__(self, most_bytes: int, patience_s: float) -> None:
        self._most, self._patience_s, self._began = most_bytes, patience_s, time.monotonic()
        self._bytes = 0

    def add(self, size: int, packed: int) -> None:
        """Count what has come: `size` bytes more, of which `packed` in all came through the network.

        Raises:
            BadAnswer: it is too much, or too slow.
        """
        self._bytes += size
        if self._bytes > self._most:
            raise BadAnswer(
                f"The service's answer has more than {self._most:,} bytes; the rest was not read."
            )
        if self._bytes > FREE_BYTES and self._bytes > MAX_RATIO * packed:
            raise BadAnswer(
                f"The service's answer unpacks to more than {MAX_RATIO} times its size; the rest was not read."
            )
        if time.monotonic() - self._began > self._patience_s + self._bytes / SLOWEST_BYTES_S:
            raise BadAnswer(f"The service's answer comes too slowly: {self._bytes:,} bytes so far.")


def read_json(content: bytes) -> Any:
    """Return what JSON says.

    Raises:
        BadAnswer: it is none, nests too deep, or has a number that JSON has not.
    """
    try:
        return json.loads(content, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        why = "it nests too deep" if isinstance(error, RecursionError) else "it is no JSON"
        raise BadAnswer(
            f"The service's answer cannot be read: {why}. Is the address that of a Perennial service?"
        ) from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
