"""Text of columns, option values and shares for sentences about tables."""

import re
from collections.abc import Sequence

from perennial.reading_rules.names import quote_name

_SHOWN_CHARS = 120
_COLUMNS, _COLUMN_CHARS = 6, 30


def format_column_names(names: Sequence[str]) -> str:
    """Format a table's first column names, shortened: a table may have thousands of long names."""
    more = f" and {len(names) - _COLUMNS:,} more" if len(names) > _COLUMNS else ""
    return ", ".join(quote_name(name, _COLUMN_CHARS) for name in names[:_COLUMNS]) + more


def quote_option_value_if_needed(text: str) -> str:
    """Quote a text as an option's value in a message, if a shell or a reader needs it."""
    return (
        text
        if len(text) <= _SHOWN_CHARS and re.fullmatch(r"[\w./-]+", text)
        else f"'{quote_name(text)[1:-1]}'"
    )


def format_share_as_percent(share: float) -> str:
    """Format a share in percent: `5 %`, `12.5 %`."""
    return f"{100 * share:.3g} %"
