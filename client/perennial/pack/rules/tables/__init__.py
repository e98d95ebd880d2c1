"""Label tables: files that assign labels to images, one module for each kind.

`find_table` reads the table of a batch; `resolve_rows` finds the images that its entries name.
"""

from perennial.pack.rules.tables.file_names import suggest_pattern
from perennial.pack.rules.tables.found import MAX_TABLE_BYTES, FoundTable
from perennial.pack.rules.tables.reading import MOST_ENTRIES, find_table, is_table_name
from perennial.pack.rules.tables.resolving import Placed, Resolved, held_out_parts, resolve_rows

__all__ = [
    "MAX_TABLE_BYTES",
    "MOST_ENTRIES",
    "FoundTable",
    "Placed",
    "Resolved",
    "find_table",
    "held_out_parts",
    "is_table_name",
    "resolve_rows",
    "suggest_pattern",
]
