"""Label tables: files that assign labels to images, one module for each kind.

`find_table` reads the table of a batch; `resolve_rows` finds the images that its entries name.
"""

from core.ingest.rules.tables.file_names import suggest_pattern
from core.ingest.rules.tables.found import MAX_TABLE_BYTES, FoundTable
from core.ingest.rules.tables.reading import MOST_ENTRIES, find_table, is_table_name
from core.ingest.rules.tables.resolving import Placed, Resolved, held_out_parts, resolve_rows

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
