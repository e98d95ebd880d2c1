"""Label tables: files that assign labels to images, one module for each kind.

`find_label_table` reads the table of a batch; `resolve_label_table_images` finds the images that
its entries name.
"""

from perennial.reading_rules.tables.file_names import suggest_file_name_pattern
from perennial.reading_rules.tables.found import MAX_TABLE_BYTES, FoundLabelTable
from perennial.reading_rules.tables.reading import (
    MOST_ENTRIES,
    find_label_table,
    may_be_label_table_name,
)
from perennial.reading_rules.tables.resolving import (
    ImageNumberWithLabelRow,
    ResolvedLabelTableEntries,
    resolve_label_table_images,
    select_held_out_parts,
)

__all__ = [
    "MAX_TABLE_BYTES",
    "MOST_ENTRIES",
    "FoundLabelTable",
    "ImageNumberWithLabelRow",
    "ResolvedLabelTableEntries",
    "find_label_table",
    "may_be_label_table_name",
    "resolve_label_table_images",
    "select_held_out_parts",
    "suggest_file_name_pattern",
]
