"""Compare two recordings field by field, and describe how their OpenAPI documents differ.

    python -m tests.before_after.compare BEFORE AFTER

A missing field or another value is a difference. So is a part with another digest, or a row of a
memory that is not the same. The exit status is then 1. New fields, and other sizes in bytes, are
only listed.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.before_after import openapi_words

Json = dict[str, Any]
SHOWN = 300
"""Number of characters of a value that are shown."""
_NAMES = "fields of "
"""Prefix of the title of an answer that was recorded as a list of its fields' names."""
_SIZE = re.compile(r"→ (bytes|bytes_new)(\[\d+\]| → \w+)?$")


@dataclass
class Comparison:
    """The differences between two recordings, as sentences."""

    different: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    sizes: list[str] = field(default_factory=list)
    openapi: list[str] = field(default_factory=list)

    def value(self, where: str, before: Any, after: Any) -> None:
        """Compare two JSON values."""
        if isinstance(before, dict) and isinstance(after, dict):
            self._fields(where, before, after)
        elif isinstance(before, list) and isinstance(after, list):
            self._items(where, before, after)
        elif type(before) is not type(after) or before != after:
            sentence = f"{where}: was {_shorten_value(before)}, is {_shorten_value(after)}"
            (self.sizes if _is_size(where, before, after) else self.different).append(sentence)

    def _fields(self, where: str, before: Json, after: Json) -> None:
        for name, value in before.items():
            if name in after:
                self.value(f"{where} → {name}", value, after[name])
            else:
                self.different.append(f"{where}: {name} is missing, was {_shorten_value(value)}")
        for name in after.keys() - before.keys():
            self.added.append(f"{where}: {name} = {_shorten_value(after[name])}")

    def _items(self, where: str, before: list[Any], after: list[Any]) -> None:
        if len(before) == len(after):
            for number, (one, other) in enumerate(zip(before, after, strict=True)):
                self.value(f"{where}[{number}]", one, other)
            return
        gone = [item for item in before if item not in after]
        new = [item for item in after if item not in before]
        if _NAMES in where and not gone:
            self.added.append(f"{where}: {_shorten_value(new)}")
            return
        counts = f"had {len(before)} items, has {len(after)}"
        self.different.append(
            f"{where}: {counts}; gone {_shorten_value(gone)}, new {_shorten_value(new)}"
        )

    def report(self) -> Iterator[str]:
        """Return the lines that describe the differences."""
        for title, lines in (
            ("differences", self.different),
            ("additions", self.added),
            ("other sizes in bytes", self.sizes),
            ("changes of /openapi.json", self.openapi),
        ):
            yield f"{len(lines)} {title}"
            yield from (f"  {line}" for line in lines)


def compare_recordings(before: Path, after: Path) -> Comparison:
    """Compare two folders that `record_service` has written."""
    found = Comparison()
    for name in ("answers.json", "parts.json"):
        found.value(name.removesuffix(".json"), _read_json(before / name), _read_json(after / name))
    found.openapi = openapi_words.list_differences(
        _read_json(before / "openapi.json"), _read_json(after / "openapi.json")
    )
    return found


def _is_size(where: str, before: Any, after: Any) -> bool:
    """Return whether a value is a number of bytes, or one of several, that another encoding of the
    memory changes.
    """
    return isinstance(before, int) and isinstance(after, int) and _SIZE.search(where) is not None


def _shorten_value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else text[:SHOWN] + " …"


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    given = parser.parse_args()
    found = compare_recordings(given.before, given.after)
    print("\n".join(found.report()))
    sys.exit(1 if found.different else 0)


if __name__ == "__main__":
    main()
