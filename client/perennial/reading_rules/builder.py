"""Construction of a batch's plan: files get a class, or are left out with a reason."""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from perennial.reading_rules.entries import LeftOutLabelTableEntry, UnreadableBatchError
from perennial.reading_rules.names import (
    is_archive_path,
    is_hidden_path,
    is_image_path,
    is_junk_path,
    quote_name,
)
from perennial.reading_rules.sentences import format_count_with_noun

IGNORED = -1
MAX_LEFT_OUT = 100
"""Files left out that a plan names; their number is complete."""
MAX_REASONS = 1000
MOST_NOTES = 20
LEFT_BEHIND = "hidden, or left behind by a file manager"
ARCHIVE_INSIDE = "an archive, by its name: unpack it first"


class LeftOutFile(NamedTuple):
    """A file that is left out of the batch, with the reason as the end of a sentence."""

    path: str
    reason: str


@dataclass
class FileClassesAndParts:
    """Plan for reading a batch: the class and part of each file, and the files left out.

    Attributes:
        kind: `split` (train and test folders), `folders`, `csv` (labels.csv) or `table`.
        classes: labels in order of appearance.
        of: class number per file; IGNORED if it has none.
        test: 1 per file that is held out.
        has_parts: whether the batch itself says which files are held out.
        ignored: number of files left out.
        ignored_files: the first of these files.
        reasons: reason → number of files left out.
        decided_by: labels known to the model that decided between readings.
        notes: sentences for information.
        warnings: sentences to check before the batch is learned.
        left_out_warnings: warnings about images that are left out.
        bad_entries: entries of a label table that are left out.
    """

    kind: str = "folders"
    classes: list[str] = field(default_factory=list)
    of: "array[int]" = field(default_factory=lambda: array("l"))
    test: bytearray = field(default_factory=bytearray)
    has_parts: bool = False
    ignored: int = 0
    ignored_files: list[LeftOutFile] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    decided_by: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    left_out_warnings: list[str] = field(default_factory=list)
    bad_entries: list[LeftOutLabelTableEntry] = field(default_factory=list)


class FileClassesAndPartsBuilder:
    """Builder of the plan by which a batch's files get classes and parts.

    Attributes:
        plan: the plan so far.
        names: paths of the files.
        has_passed_table: whether folders take precedence over a label table, with a warning.
    """

    def __init__(self, names: Sequence[str]) -> None:
        files = len(names)
        self.plan = FileClassesAndParts(of=array("l", [IGNORED]) * files, test=bytearray(files))
        self.names = names
        self.has_passed_table = False
        self._numbers: dict[str, int] = {}
        self._left: list[LeftOutFile] = []
        self._left_behind: list[LeftOutFile] = []

    def assign_file_class(self, index: int, label: str, is_test: bool) -> None:
        """Assign a class and a part (training or held out) to a file of the batch."""
        number = self._numbers.setdefault(label, len(self._numbers))
        if number == len(self.plan.classes):
            self.plan.classes.append(label)
        self.plan.of[index] = number
        self.plan.test[index] = is_test

    def leave_file_out(self, index: int, reason: str) -> None:
        """Leave a file out of the batch, with a reason."""
        self.plan.ignored += 1
        # Reasons name folders, of which a hostile batch may have half a million.
        if reason in self.plan.reasons or len(self.plan.reasons) < MAX_REASONS:
            self.plan.reasons[reason] += 1
        rows = self._left_behind if reason == LEFT_BEHIND else self._left
        if len(rows) < MAX_LEFT_OUT:
            rows.append(LeftOutFile(self.names[index], reason))

    def leave_junk_out_and_list_other_files(self) -> list[int]:
        """Leave out files that the system made, such as Thumbs.db; return the numbers of the other
        files.
        """
        remaining, hidden = [], Counter[str]()
        for index, name in enumerate(self.names):
            if is_junk_path(name):
                self.leave_file_out(index, LEFT_BEHIND)
                folder = _find_hidden_folder_of_image(name)
                if folder:
                    hidden[folder] += 1
            elif is_archive_path(name):
                self.leave_file_out(index, ARCHIVE_INSIDE)
            else:
                remaining.append(index)
        self.plan.left_out_warnings += [
            f"{format_count_with_noun(number, 'image')} in the hidden folder {quote_name(folder)} left out."
            for folder, number in sorted(hidden.items())[:MOST_NOTES]
        ]
        return remaining

    def build_plan(self, held_out_alone: bool) -> FileClassesAndParts:
        """Return the finished plan: for each file its class and part, or why it is left out.

        In its list, files that a person may miss precede files of file managers.

        Args:
            held_out_alone: see `require_training_images_of_every_class`.
        """
        self.plan.ignored_files = [*self._left, *self._left_behind][:MAX_LEFT_OUT]
        require_training_images_of_every_class(
            self.plan.classes, self.plan.of, self.plan.test, held_out_alone
        )
        return self.plan


def require_training_images_of_every_class(
    classes: Sequence[str],
    class_numbers: Sequence[int],
    test: Sequence[int],
    held_out_alone: bool = False,
) -> None:
    """Raise UnreadableBatchError unless there are training images of every class.

    Args:
        held_out_alone: True if a batch without any training image is possible.
    """
    trained = bytearray(len(classes))
    for number, is_test in zip(class_numbers, test, strict=True):
        if number != IGNORED and not is_test:
            trained[number] = 1
    if not any(trained):
        if held_out_alone and any(number != IGNORED for number in class_numbers):
            return
        raise UnreadableBatchError("The batch has a test part but no training images.", "held_out")
    for label, has in zip(classes, trained, strict=True):
        if not has:
            raise UnreadableBatchError(
                f"The class {quote_name(label)} has test images but no training images.", "labels"
            )


def _find_hidden_folder_of_image(name: str) -> str:
    """Return the hidden folder (with a leading dot) that contains an image, or "" if none does."""
    # A file that is hidden itself, such as macOS's `._1.jpg`, is no image that a person may miss.
    if (
        not is_hidden_path(name)
        or not is_image_path(name)
        or name.rpartition("/")[2].startswith(".")
    ):
        return ""
    folders = name.split("/")[:-1]
    at = next((i for i, folder in enumerate(folders) if folder.startswith(".")), None)
    return "" if at is None else "/".join(folders[: at + 1])
