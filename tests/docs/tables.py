"""Rows of reference tables: what documents must say of a JSON Schema's fields, and what
they say.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

Row = tuple[str, str, str]
"""Name, default and range as cells of a table in Markdown."""


def build_expected_rows(
    schema: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str = ""
) -> list[Row]:
    """Return the rows that a table of an object's fields must have, by name."""
    return [
        (f"`{prefix}{name}`", format_default(defaults[name]), describe_range(field))
        for name, field in sorted(schema.get("properties", {}).items())
        if name in defaults and not isinstance(defaults[name], Mapping)
    ]


def format_default(value: Any) -> str:
    """Format a default: numbers as people write them, everything else as JSON."""
    if isinstance(value, bool) or value is None:
        return f"`{json.dumps(value)}`"
    if isinstance(value, int | float):
        return format_number(value)
    return f'`"{value}"`'


def format_number(value: float) -> str:
    """Format a number: 1,000,000; 0.03; 1e-12; 1e36; 2^63."""
    if isinstance(value, int) and value == 1 << 63:
        return "2^63"
    if value >= 1e15 or 0 < abs(value) < 1e-4:
        return f"{value:.0e}".replace("e+", "e")
    return f"{value:,}" if isinstance(value, int) or not value.is_integer() else f"{int(value):,}"


def describe_range(field: Mapping[str, Any]) -> str:
    """Describe the values that a field takes."""
    if "anyOf" in field:
        return " or ".join(
            "`null`" if one.get("type") == "null" else describe_range(one) for one in field["anyOf"]
        )
    if "$ref" in field:
        return "an object"
    if "enum" in field:
        return ", ".join(f'`"{one}"`' for one in field["enum"])
    if field.get("type") == "boolean":
        return "`true`, `false`"
    if field.get("type") == "string":
        return "a name"
    low = f"> {format_number(field['exclusiveMinimum'])}" if "exclusiveMinimum" in field else ""
    low = low or (f"≥ {format_number(field['minimum'])}" if "minimum" in field else "")
    high = f"< {format_number(field['exclusiveMaximum'])}" if "exclusiveMaximum" in field else ""
    high = high or (f"≤ {format_number(field['maximum'])}" if "maximum" in field else "")
    if low.startswith("≥") and high.startswith("≤"):
        return f"{low[2:]} to {high[2:]}"
    return ", ".join(one for one in (low, high) if one)


def parse_table_rows(text: str) -> list[Row]:
    """Return the first three cells of each row of the tables in a text, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [(row[0], row[1], row[2]) for row in cells if len(row) > 3]
