"""Classes by a label table: the choice between table and folders, and files not in the table."""

from collections.abc import Callable, Sequence

from perennial.reading_rules.builder import IGNORED, FileClassesAndPartsBuilder
from perennial.reading_rules.by_folders import count_images_by_folder
from perennial.reading_rules.entries import BatchReadingOptions, UnreadableBatchError
from perennial.reading_rules.levels import FolderClassAndPart, find_path_to_class_folders
from perennial.reading_rules.names import CSV_NAME, is_clearly_no_image, is_image_path, quote_name
from perennial.reading_rules.sentences import format_count_with_noun
from perennial.reading_rules.tables import (
    FoundLabelTable,
    resolve_label_table_images,
    select_held_out_parts,
)
from perennial.reading_rules.words import is_generic_folder_name


def choose_label_table(
    builder: FileClassesAndPartsBuilder,
    remaining: Sequence[int],
    options: BatchReadingOptions,
    find: Callable[[], FoundLabelTable | None],
) -> FoundLabelTable | None:
    """Return the label table that determines the batch's classes, or None if folders do.

    Beside plain class folders, it must be named as the label table or have labels for most images.

    Raises UnreadableBatchError if a table is meant, or needed, and cannot be read.
    """
    names = builder.names
    is_named = (
        options.table or options.image_column or options.label_column or options.names_pattern
    )
    # Deeper in the folders, a labels.csv may belong to anything.
    is_meant = is_named or any(
        names[i].rpartition("/")[2] == CSV_NAME and names[i].count("/") <= 1 for i in remaining
    )
    try:
        table = find()
        if table is None or is_meant or not _are_clearly_class_folders(names, remaining, options):
            return table
        images = [i for i in remaining if not is_clearly_no_image(names[i])]
        labelled = len(resolve_label_table_images(table, names, images, options).placed)
        if 2 * labelled >= len(images):
            return table
        reason = f"{table.title} has labels for {labelled:,} of {format_count_with_noun(len(images), 'image')}"
    except UnreadableBatchError as error:
        if (
            is_meant
            or error.kind != "labels"
            or not _are_clearly_class_folders(names, remaining, options)
        ):
            raise
        reason = str(error).removesuffix(".")
    builder.has_passed_table = True
    builder.plan.warnings.append(f"Labels were read from folders: {reason}.")
    return None


def _are_clearly_class_folders(
    names: Sequence[str], remaining: Sequence[int], options: BatchReadingOptions
) -> bool:
    """Return True if folders are clearly classes: several, and not all named like containers."""
    images = count_images_by_folder(names, remaining)
    if not images:
        return False
    try:
        # `tuple` knows no labels: the model is asked only where its classes may decide.
        levels = find_path_to_class_folders(images, options.class_level, tuple)
    # Folders that can be read in several ways are not clearly classes.
    except UnreadableBatchError:
        return False
    class_folders = {
        folder_class.folder
        for folder_class in map(levels.find_folder_class_and_part, images)
        if isinstance(folder_class, FolderClassAndPart)
    }
    return len(class_folders) > 1 and not all(map(is_generic_folder_name, class_folders))


def assign_table_labels(
    builder: FileClassesAndPartsBuilder,
    remaining: Sequence[int],
    options: BatchReadingOptions,
    table: FoundLabelTable,
) -> None:
    """Assign each file the class that a label table lists; leave out files that it does not list."""
    plan, names = builder.plan, builder.names
    images = [i for i in remaining if not is_clearly_no_image(names[i])]
    resolved = resolve_label_table_images(table, names, images, options)
    is_own = [name.rpartition("/")[2] for name in table.names] == [CSV_NAME]
    table_name = table.names[0] if table.names else ""
    plan.kind = "csv" if is_own else "table"
    if not is_own:
        plan.notes.append(
            f"labels were read from {table.title}"
            if table_name
            else f"labels were read by {table.kind}"
        )
    parts = {placed.row.part for placed in resolved.placed}
    held_out = select_held_out_parts(parts)
    plan.has_parts = parts != {""}
    for number, row in resolved.placed:
        builder.assign_file_class(number, row.label, row.part in held_out)
    plan.bad_entries = [*resolved.bad, *resolved.unlabelled]
    if resolved.bad:
        entry_count = format_count_with_noun(len(resolved.bad), "entry", "entries")
        first = resolved.bad[0]
        plan.warnings.append(
            f"{entry_count} cannot be read and left out; the first is {first.where}: "
            f"{first.reason}."
        )
    if resolved.unlabelled:
        entry_count = format_count_with_noun(len(resolved.unlabelled), "entry", "entries")
        plan.notes.append(f"{entry_count} without a label, or listed before, ignored")
    files, unlisted, images_lost = set(table.files), 0, 0
    for index in remaining:
        # The table's own files are used, so the report must not list them as left out.
        if plan.of[index] == IGNORED and index not in files:
            builder.leave_file_out(
                index, f"not listed in {table_name}" if table_name else "not named by the pattern"
            )
            unlisted += 1
            images_lost += is_image_path(names[index])
    if images_lost and table_name:
        plan.left_out_warnings.append(
            f"{format_count_with_noun(images_lost, 'image')} left out, which {quote_name(table_name)} gives no "
            f"label."
        )
    if unlisted and table_name:
        plan.notes.append(
            f"{format_count_with_noun(unlisted, 'file')} not listed in {table_name} ignored"
        )
