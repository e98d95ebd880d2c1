"""Label tables: files that assign labels to images, one module for each kind.

`find_label_table` reads the table of a batch; `resolve_entry_images` finds the images that its
entries name.
"""

from perennial.pack.rules.tables.file_names import suggest_name_pattern
from perennial.pack.rules.tables.found import MAX_TABLE_BYTES, FoundLabelTable
from perennial.pack.rules.tables.reading import MOST_ENTRIES, find_label_table, may_be_table_name
from perennial.pack.rules.tables.resolving import (
    LabelledImage,
    ResolvedEntries,
    resolve_entry_images,
    select_held_out_parts,
)

__all__ = [
    "MAX_TABLE_BYTES",
    "MOST_ENTRIES",
    "FoundLabelTable",
    "LabelledImage",
    "ResolvedEntries",
    "find_label_table",
    "may_be_table_name",
    "resolve_entry_images",
    "select_held_out_parts",
    "suggest_name_pattern",
]
