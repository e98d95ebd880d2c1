"""A folder with one folder per class, optionally below train, test and validation folders.

Parts, classes and files left out are determined by the service's own rules
(`perennial.reading_rules`), so that the batch equals an archive of the folder. Names stay unchanged.
If names alone do not tell the service everything, labels are sent along as a list.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from perennial.pack.errors import PackError, Undecided
from perennial.pack.files import FileImages, SourceFolder
from perennial.pack.images import BatchImageEntry
from perennial.pack.name_patterns import build_table_by_pattern
from perennial.pack.names import explain_invalid_path, normalise_to_nfc
from perennial.pack.sources.csv_file import (
    MOST_ENTRIES,
    describe_left_out_table_entries,
    parse_reading_options_of_caller,
    read_label_table_bytes,
)
from perennial.pack.text import format_count_with_noun, format_first_names, quote_name
from perennial.reading_rules.entries import BatchReadingOptions, UnreadableBatchError
from perennial.reading_rules.plan import (
    IGNORED,
    LEFT_BEHIND,
    FileClassesAndParts,
    Read,
    assign_file_classes_and_parts,
    assign_file_classes_and_parts_by_table,
)

_EXAMPLES = 3


class FolderImages(FileImages):
    """Labelled image files in class folders, or named by a label table in the folder."""

    def __init__(
        self,
        folder: Path,
        *,
        layout: str = "auto",
        one_class: bool = False,
        classes: str = "",
        max_bad: float | str = "",
        image: str = "",
        label: str = "",
        table: str = "",
        names_pattern: str = "",
        known_classes: Collection[str] = (),
        allow_outside: bool = False,
    ) -> None:
        """List the folder without reading images.

        Args:
            layout: `folders` uses folder names as classes regardless of other files.
            one_class: all images belong to one class.
            classes: the level of folders that names the classes, such as `level:1`.
            max_bad: largest allowed share of bad entries of a label table.
            image: the column of images in a label table.
            label: the column of labels in a label table.
            table: the file that is the label table, if there are several candidates.
            names_pattern: pattern of labels in file names, such as `{label}_{number}`, or a regular
                expression whose group `label`, or first group, is the label.
            known_classes: the labels that the model knows, which decide if names alone do not.
            allow_outside: follow links that leave the folder.

        Raises:
            PackError: the folder cannot be used.
            Undecided: one of the options is needed.
        """
        super().__init__(f"the folder {quote_name(folder.name or folder)}", folder)
        layout_options = {
            "layout": layout,
            "one_class": one_class,
            "classes": classes,
            "max_bad": max_bad,
        }
        options = parse_reading_options_of_caller(
            {
                **layout_options,
                "image": image,
                "label": label,
                "table": table,
                "names_pattern": names_pattern,
            }
        )
        root = SourceFolder(folder, allow_outside)
        names = list(root.list_files())
        plan = assign_classes_and_parts_in_folder(
            names,
            options,
            lambda number: read_label_table_bytes(Path(root.resolve_named_path(names[number]))),
            known_classes,
            quote_name(folder),
        )
        for name, number, is_test in zip(names, plan.of, plan.test, strict=True):
            if number != IGNORED:
                self._add_image(
                    name,
                    plan.classes[number],
                    ("test" if is_test else "train") if plan.has_parts else "",
                )
        # The service composes names, and would see the same name twice.
        _refuse_names_equal_after_normalisation([row.name for row in self.rows])
        self.listed = not are_classes_derivable_from_names(plan, self.rows)
        self.warnings += describe_warnings_of_reading_plan(plan, self.listed)
        if root.hidden:
            self.warnings.append(
                f"{format_count_with_noun(len(root.hidden), 'hidden folder')} left out: "
                f"{format_first_names(root.hidden, _EXAMPLES)}."
            )

    def _add_image(self, name: str, label: str, part: str) -> None:
        wrong = explain_invalid_path(name)
        if wrong:
            raise PackError(
                f"{quote_name(name)} {wrong}, and the service would refuse the batch. Rename it."
            )
        self.add_image_file(name)
        self.rows.append(BatchImageEntry(name, label, part))


def assign_classes_and_parts_in_folder(
    names: Sequence[str],
    options: BatchReadingOptions,
    read: Read,
    known_classes: Collection[str],
    where: str,
) -> FileClassesAndParts:
    """Plan how a folder's files are read as a batch: the class and part of each file.

    Args:
        where: name of the folder in messages.

    Raises:
        PackError: the folder cannot be used.
        Undecided: an option is needed.
    """
    normalized = [normalise_to_nfc(name) for name in names]
    pattern = options.names_pattern
    try:
        # Without `{label}` it is a regular expression, which only the sender runs.
        if pattern and "{label}" not in pattern:
            return assign_file_classes_and_parts_by_table(
                normalized, options, build_table_by_pattern(pattern, list(names))
            )
        try:
            return assign_file_classes_and_parts(
                normalized, options, read, lambda: known_classes, most_entries=MOST_ENTRIES
            )
        except UnreadableBatchError as error:
            if error.kind != "held_out":
                raise
            # Only the service knows if the model waits for held-out images alone.
            alone = replace(options, held_out_alone=True)
            try:
                return assign_file_classes_and_parts(
                    normalized, alone, read, lambda: known_classes, most_entries=MOST_ENTRIES
                )
            except UnreadableBatchError:
                # The folder is wrong in another way as well: the service would say the first.
                raise error from None
    except UnreadableBatchError as error:
        raise (Undecided if error.remedies else PackError)(f"{where}: {error}") from error


def are_classes_derivable_from_names(
    plan: FileClassesAndParts, rows: Sequence[BatchImageEntry]
) -> bool:
    """Return True if the service would derive the same classes and parts from file names alone."""
    # Labels from a table, an option or a pattern are nowhere in the names.
    if plan.kind not in ("folders", "split"):
        return False
    try:
        names, options = (
            [normalise_to_nfc(row.name) for row in rows],
            BatchReadingOptions(held_out_alone=True),
        )
        derived = assign_file_classes_and_parts(names, options, _refuse_any_file_read)
    except UnreadableBatchError:
        return False
    labels = [derived.classes[number] if number != IGNORED else None for number in derived.of]
    return labels == [row.label for row in rows] and derived.test == bytes(
        row.part == "test" for row in rows
    )


def describe_warnings_of_reading_plan(plan: FileClassesAndParts, is_listed: bool) -> list[str]:
    """Return warnings of a reading plan, and sentences about files left out.

    Args:
        is_listed: labels are sent as a list, so also report notes about the names.
    """
    sentences = []
    for reason, number in plan.reasons.items():
        if reason != LEFT_BEHIND:
            examples = [path for path, why in plan.ignored_files if why == reason][:_EXAMPLES]
            more = f" and {number - len(examples):,} more" if number > len(examples) else ""
            named = f": {format_first_names(examples)}{more}" if examples else ""
            sentences.append(
                f"{format_count_with_noun(number, 'file')} left out ({reason}){named}."
            )
    sentences += plan.warnings
    sentences += describe_left_out_table_entries(plan.bad_entries)
    if is_listed:
        sentences += [
            f"{note[0].upper()}{note[1:]}." for note in plan.notes if "ignored" not in note
        ]
    return sentences


def _refuse_any_file_read(number: int) -> bytes:
    raise LookupError(number)  # A plan of images alone reads no files.


def _refuse_names_equal_after_normalisation(names: list[str]) -> None:
    """Raise PackError for two names that differ only in Unicode composition."""
    normalized: set[str] = set()
    for name in names:
        # ASCII has no composed letters, and most names are ASCII.
        if not name.isascii():
            if normalise_to_nfc(name) in normalized:
                raise PackError(
                    f"{quote_name(name)} is there twice, its letters composed and decomposed. "
                    f"Rename one."
                )
            normalized.add(normalise_to_nfc(name))
