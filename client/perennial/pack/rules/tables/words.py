"""Words of sentences about tables: columns, values of options, and shares."""

import re
from collections.abc import Sequence

from perennial.pack.rules.names import show

_SHOWN_CHARS = 120
_COLUMNS, _COLUMN_CHARS = 6, 30


def list_columns(names: Sequence[str]) -> str:
    """Names of columns, of which a table may have thousands with long names: the first, cut short."""
    more = f" and {len(names) - _COLUMNS:,} more" if len(names) > _COLUMNS else ""
    return ", ".join(show(name, _COLUMN_CHARS) for name in names[:_COLUMNS]) + more


def write_value(text: str) -> str:
    """A text as the value of an option in a message: as it is, or quoted where a shell or a reader needs it."""
    return text if len(text) <= _SHOWN_CHARS and re.fullmatch(r"[\w./-]+", text) else f"'{show(text)[1:-1]}'"


def write_share(share: float) -> str:
    """A share in percent: `5 %`, `12.5 %`."""
    return f"{100 * share:.3g} %"
