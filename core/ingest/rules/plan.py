"""Plan a batch: the class and the part of every file, by the names of all files and the label tables among them.

The service reads the archives that it gets by this plan, and the client the folders that it sends.
"""

from collections.abc import Callable, Collection, Sequence

from core.ingest.rules.builder import IGNORED, LEFT_BEHIND, Builder, Plan, require_training
from core.ingest.rules.by_folders import read_folders
from core.ingest.rules.by_table import choose_table, read_table
from core.ingest.rules.entries import ReadingOptions
from core.ingest.rules.levels import Known
from core.ingest.rules.tables import MOST_ENTRIES, FoundTable, find_table

__all__ = ["IGNORED", "LEFT_BEHIND", "Plan", "no_known", "plan_batch", "plan_table", "require_training"]

Read = Callable[[int], bytes]
"""The bytes of a file, by its number. What it raises passes through."""


def no_known() -> Collection[str]:
    """The labels of a model that knows none, or of none."""
    return ()


def plan_batch(
    names: Sequence[str],
    options: ReadingOptions,
    read: Read,
    known_classes: Known = no_known,
    *,
    most_entries: int = MOST_ENTRIES,
) -> Plan:
    """Plan how the files `names` (paths with `/`, each once) are read.

    Args:
        read: the bytes of a file by its number; called for label tables alone. It raises RuleError for a file that
            cannot be read, which ends the batch only if it is the table that is meant.
        known_classes: the labels that the model knows, asked for only where they may decide.
        most_entries: entries that a label table may have.

    Raises RuleError: there are no labelled images, they can be read in several ways, or none would be learned.
    """
    builder = Builder(names)
    kept = builder.leave_junk()
    table = choose_table(
        builder, kept, options, lambda: find_table(names, read, options, kept=kept, most=most_entries)
    )
    if table is None:
        read_folders(builder, kept, options, known_classes)
    else:
        read_table(builder, kept, options, table)
    return builder.made()


def plan_table(names: Sequence[str], options: ReadingOptions, table: FoundTable) -> Plan:
    """Plan how the files `names` are read by a table that was found before. Raises RuleError."""
    builder = Builder(names)
    read_table(builder, builder.leave_junk(), options, table)
    return builder.made()
