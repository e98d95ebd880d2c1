"""Server-sent events: from lines to events."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sent:
    """One event of a stream: its id (empty: none) and what it holds."""

    id: str
    data: Any


class Parser:
    """Takes the lines of a stream, without their ends, and gives an event at each empty one that ends one."""

    def __init__(self) -> None:
        self._id, self._data = "", list[str]()

    def take(self, line: str) -> Sent | None:
        """An event that this line completes, if it does."""
        if line:
            name, _, value = line.partition(":")
            if name == "data":
                self._data.append(value.removeprefix(" "))
            elif name == "id":
                self._id = value.removeprefix(" ")
            return None
        if not self._data:
            return None
        text, self._data = "\n".join(self._data), []
        try:
            return Sent(self._id, json.loads(text))
        except ValueError:  # cut off: it comes again after the last id
            return None
