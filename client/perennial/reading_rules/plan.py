"""Plan of a batch: class and part of every file, from the files' names and label tables.

The service uses it for the archives that it receives, and the client for the folders that it sends.
"""

from collections.abc import Callable, Collection, Sequence

from perennial.reading_rules.builder import (
    IGNORED,
    LEFT_BEHIND,
    FileClassesAndParts,
    FileClassesAndPartsBuilder,
    require_training_images_of_every_class,
)
from perennial.reading_rules.by_folders import assign_folder_classes
from perennial.reading_rules.by_table import assign_table_labels, choose_label_table
from perennial.reading_rules.entries import BatchReadingOptions
from perennial.reading_rules.levels import Known
from perennial.reading_rules.tables import MOST_ENTRIES, FoundLabelTable, find_label_table

__all__ = [
    "IGNORED",
    "LEFT_BEHIND",
    "FileClassesAndParts",
    "assign_file_classes_and_parts",
    "assign_file_classes_and_parts_by_table",
    "list_no_known_classes",
    "require_training_images_of_every_class",
]

Read = Callable[[int], bytes]
"""Function that returns the bytes of a file by its number; its exceptions are passed on."""


def list_no_known_classes() -> Collection[str]:
    """Return no known classes, for a model that knows none, or without a model."""
    return ()


def assign_file_classes_and_parts(
    names: Sequence[str],
    options: BatchReadingOptions,
    read: Read,
    known_classes: Known = list_no_known_classes,
    *,
    most_entries: int = MOST_ENTRIES,
) -> FileClassesAndParts:
    """Decide the class and part of each file in a batch, from its folders or a label table.

    Args:
        names: paths of the files.
        options: choices of the sender.
        read: returns the bytes of a file by its number; called for label tables only. It raises
            UnreadableBatchError for an unreadable file, which ends the batch only if that file is named as the
            table.
        known_classes: returns the labels known to the model, called only if they may decide.
        most_entries: largest number of entries of a label table.

    Raises UnreadableBatchError if there are no labelled images, they can be read in several ways, or none
    would be learned.
    """
    builder = FileClassesAndPartsBuilder(names)
    remaining = builder.leave_junk_out_and_list_other_files()
    table = choose_label_table(
        builder,
        remaining,
        options,
        # Called there, because folders decide whether a failure to read a table matters.
        lambda: find_label_table(names, read, options, remaining=remaining, most=most_entries),
    )
    if table is None:
        assign_folder_classes(builder, remaining, options, known_classes)
    else:
        assign_table_labels(builder, remaining, options, table)
    return builder.build_plan(options.held_out_alone)


def assign_file_classes_and_parts_by_table(
    names: Sequence[str], options: BatchReadingOptions, table: FoundLabelTable
) -> FileClassesAndParts:
    """Decide the class and part of each file in a batch from a given label table.

    Raises UnreadableBatchError; see `assign_file_classes_and_parts`.
    """
    builder = FileClassesAndPartsBuilder(names)
    assign_table_labels(builder, builder.leave_junk_out_and_list_other_files(), options, table)
    return builder.build_plan(options.held_out_alone)
