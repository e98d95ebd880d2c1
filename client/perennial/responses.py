"""Responses of the service, read within limits on size, compression and time, and parsed as
JSON.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from perennial.errors import BadAnswer

MAX_ANSWER_BYTES = 64 << 20
"""Maximum bytes of a decompressed JSON response."""
MAX_PROBLEM_BYTES = 1 << 20
"""Maximum bytes of an error response."""
MAX_RATIO = 200
"""Maximum compression ratio of a response, applied from `FREE_BYTES` decompressed bytes on."""
FREE_BYTES = 1 << 20
SLOWEST_BYTES_S = 1024
"""Slowest accepted rate in bytes per second, once the response's timeout has passed."""
MAX_PAGES = 5000
"""Maximum pages of a list: a million items."""


@dataclass(frozen=True)
class ApiResponse:
    """HTTP response whose body has been read completely."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        """Parse the response's body as JSON. Raises BadAnswer if it is not valid JSON."""
        return parse_json(self.content)


class ResponseBodyLimitMeter:
    """Checks size and speed of a response's body while it is read.

    Args:
        most_bytes: maximum decompressed size in bytes.
        patience_s: seconds in which no bytes need to arrive.
    """

    def __init__(self, most_bytes: int, patience_s: float) -> None:
        self._most, self._patience_s, self._began = most_bytes, patience_s, time.monotonic()
        self._bytes = 0

    def count_received_bytes(self, size: int, packed: int) -> None:
        """Count received bytes of a response's body, and check its limits.

        Args:
            size: number of new decompressed bytes.
            packed: total number of compressed bytes received so far.

        Raises:
            BadAnswer: the body is too large, too compressed, or too slow.
        """
        self._bytes += size
        if self._bytes > self._most:
            raise BadAnswer(
                f"The service's answer has more than {self._most:,} bytes; the rest was not read."
            )
        # Small bodies of repeated text compress far better without being hostile.
        if self._bytes > FREE_BYTES and self._bytes > MAX_RATIO * packed:
            raise BadAnswer(
                f"The service's answer unpacks to more than {MAX_RATIO} times its size; the rest "
                f"was not read."
            )
        # A total rate, because single bytes sent again and again would reset any timeout of
        # silence.
        if time.monotonic() - self._began > self._patience_s + self._bytes / SLOWEST_BYTES_S:
            raise BadAnswer(f"The service's answer comes too slowly: {self._bytes:,} bytes so far.")


def parse_json(content: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        BadAnswer: it is not JSON, is nested too deeply, or contains NaN or an infinity.
    """
    try:
        # By default, Python reads NaN and Infinity, which JSON does not have.
        return json.loads(content, parse_constant=_refuse_json_constant)
    except (ValueError, RecursionError) as error:
        reason = "it nests too deep" if isinstance(error, RecursionError) else "it is no JSON"
        raise BadAnswer(
            f"The service's answer cannot be read: {reason}. Is the address that of a Perennial "
            f"service?"
        ) from error


def _refuse_json_constant(constant: str) -> NoReturn:
    raise ValueError(constant)
