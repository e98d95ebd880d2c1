"""Server-sent events: from bytes to lines, and from lines to events."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perennial.errors import BadAnswer

MAX_EVENT_CHARS = 1 << 20
"""Maximum characters of a line, and of all lines of an event."""
_TOO_LARGE = (
    f"The service sends an event of more than {MAX_EVENT_CHARS:,} characters; the rest "
    f"was not read."
)
# The most digits of which every number fits into 64 bits.
MAX_ID_DIGITS = 18


@dataclass(frozen=True, slots=True)
class StreamedEvent:
    """One server-sent event: its number (None: it has none) and its JSON data."""

    id: int | None
    data: Any


class TextLineSplitter:
    """Splits the bytes of an event stream into lines of limited length."""

    def __init__(self) -> None:
        self._decoder, self._rest = codecs.getincrementaldecoder("utf-8")("replace"), ""

    def split_into_lines(self, chunk: bytes) -> Iterator[str]:
        """Yield the lines that these bytes of an event stream complete. Raises BadAnswer if too
        long.
        """
        # Incremental: a chunk may end within a character as well as within a line.
        text = self._rest + self._decoder.decode(chunk)
        *complete_lines, self._rest = text.split("\n")
        # A hostile service could send a line without end.
        if len(self._rest) > MAX_EVENT_CHARS:
            raise BadAnswer(_TOO_LARGE)
        yield from (complete_line.removesuffix("\r") for complete_line in complete_lines)


class EventStreamParser:
    """Parses the lines of a server-sent event stream into events."""

    def __init__(self) -> None:
        self._id, self._data, self._size = "", list[str](), 0

    def parse_stream_line(self, line: str) -> StreamedEvent | None:
        """Parse a line of an event stream; return the event that it completes, if any. Raises
        BadAnswer.
        """
        if line:
            name, _, value = line.partition(":")
            if name == "data":
                self._data.append(value.removeprefix(" "))
                self._size += len(line)
            elif name == "id":
                self._id = value.removeprefix(" ")
            if self._size > MAX_EVENT_CHARS:
                raise BadAnswer(_TOO_LARGE)
            return None
        # Comments, which the service sends as a sign of life, also end with an empty line.
        if not self._data:
            return None
        text, self._data, self._size = "\n".join(self._data), [], 0
        try:
            return StreamedEvent(self._get_event_id_as_number(), json.loads(text))
        except (ValueError, RecursionError):  # cut off: it is sent again after the last id
            return None

    def _get_event_id_as_number(self) -> int | None:
        # int() would accept signs, blanks and other digits, and take long for very many.
        is_number = self._id.isascii() and self._id.isdecimal() and len(self._id) <= MAX_ID_DIGITS
        return int(self._id) if is_number else None
