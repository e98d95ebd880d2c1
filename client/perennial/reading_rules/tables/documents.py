"""JSON documents read entry by entry, so that a long list is never in memory as objects.

The size of an entry is limited, and so are the depth and number of its values.
"""

import json
import re
from collections.abc import Iterator

MAX_ENTRY_CHARS = 1 << 20
_FIRST_CHARS = 1 << 10
_BLANK_START = re.compile(r"[ \t\n\r]*")
# The scanner itself finds a value's end without looking at what follows it.
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


class NotJson(ValueError):
    """Error: a text is not JSON, or an entry is oversized. The message is the end of a sentence."""


class JsonTextReader:
    """Reader of a JSON text from front to back, for large files. Raises NotJson."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def peek_nonblank_character(self) -> str:
        """Return the next character of a JSON text that is not blank, without moving; "" at the
        end.
        """
        self._at = _BLANK_START.match(self._text, self._at).end()  # type: ignore[union-attr]
        return self._text[self._at : self._at + 1]

    def read_value(self) -> object:
        """Read and return the JSON value at the current position."""
        self.peek_nonblank_character()
        # Windows grow: one as long as the text would be copied for each of its entries.
        size = _FIRST_CHARS
        while True:
            window = self._text[self._at : self._at + size]
            is_last = self._at + size >= len(self._text)
            try:
                value, end = _scan(window, 0)
            # A plain ValueError is that of a number with more digits than Python converts.
            except (StopIteration, json.JSONDecodeError, ValueError) as error:
                if is_last or size >= MAX_ENTRY_CHARS:
                    raise NotJson(self._describe_json_error(is_last)) from error
            except RecursionError as error:
                raise NotJson("nests too deeply") from error
            else:
                # A number at the end of the window may go on behind it.
                if end < len(window) or is_last:
                    self._at += end
                    return value
                if size >= MAX_ENTRY_CHARS:
                    raise NotJson(self._describe_json_error(is_last))
            size = min(16 * size, MAX_ENTRY_CHARS)

    def iterate_array_item_numbers(self) -> Iterator[int]:
        """Iterate over a JSON list; yield the number of each item, from 1, with the reader at its
        value.

        The caller must read the item before requesting the next one.
        """
        self._consume_expected_character("[")
        if self.peek_nonblank_character() == "]":
            return self._consume_expected_character("]")
        number = 1
        while True:
            yield number
            number += 1
            if self.peek_nonblank_character() != ",":
                return self._consume_expected_character("]")
            self._consume_expected_character(",")

    def iterate_object_keys(self) -> Iterator[str]:
        """Iterate over a JSON object; yield each key, with the reader at its value.

        The caller must read the key's value before requesting the next key.
        """
        self._consume_expected_character("{")
        if self.peek_nonblank_character() == "}":
            return self._consume_expected_character("}")
        while True:
            key = self.read_value()
            if not isinstance(key, str):
                raise NotJson("has a key that is no text")
            self._consume_expected_character(":")
            yield key
            if self.peek_nonblank_character() != ",":
                return self._consume_expected_character("}")
            self._consume_expected_character(",")

    def skip_value(self) -> None:
        """Skip the JSON value at the current position, entry by entry if it is large."""
        try:
            at = self._at
            self.read_value()
        except NotJson:
            self._at = at
            first = self.peek_nonblank_character()
            if first == "[":
                for _ in self.iterate_array_item_numbers():
                    self.read_value()
            elif first == "{":
                for _ in self.iterate_object_keys():
                    self.read_value()
            else:
                raise

    def _consume_expected_character(self, character: str) -> None:
        if self.peek_nonblank_character() != character:
            raise NotJson(f"is no valid JSON at character {self._at + 1}")
        self._at += 1

    def _describe_json_error(self, is_last: bool) -> str:
        if is_last:
            return f"is no valid JSON at character {self._at + 1}"
        limit = f"{MAX_ENTRY_CHARS:,} characters"
        return (
            f"has an entry that is no valid JSON or has more than {limit}, at character "
            f"{self._at + 1}"
        )


def parse_jsonl_line(text: str) -> object:
    """Parse a line of a JSONL file. Raises NotJson."""
    document = JsonTextReader(text)
    value = document.read_value()
    if document.peek_nonblank_character():
        raise NotJson("is no single JSON value")
    return value
