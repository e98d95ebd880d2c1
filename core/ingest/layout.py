"""Layout of an archive: which files are images of which class, by the rules of `perennial.reading_rules`.

The client applies the same rules to a folder. Here their errors become the service's, and labels
are checked.
"""

from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from core.contract.reports.report import EntryReason, FileReason, StoredReading
from core.errors import (
    ArchiveHeldOutOnly,
    ArchiveHostile,
    ArchiveInvalid,
    ArchiveTooLarge,
    LabelsInvalid,
)
from core.ingest.limits import REPORT_FILES, REPORT_ROWS, ArchiveLimits
from core.ingest.names import check_and_normalise_class_label, quote_name
from perennial.reading_rules.entries import BatchReadingOptions, UnreadableBatchError
from perennial.reading_rules.levels import Known
from perennial.reading_rules.names import CSV_NAME
from perennial.reading_rules.options import (
    parse_reading_option_texts,
    serialise_reading_options_to_texts,
)
from perennial.reading_rules.plan import (
    IGNORED,
    assign_file_classes_and_parts,
    list_no_known_classes,
    require_training_images_of_every_class,
)
from perennial.steps import replace_options_by_query_parameters

__all__ = ["IGNORED", "ArchiveLayout", "BatchReadingSettings", "build_archive_layout"]

_ERRORS = {
    "archive": ArchiveInvalid,
    "held_out": ArchiveHeldOutOnly,
    "labels": LabelsInvalid,
    "too_large": ArchiveTooLarge,
    "hostile": ArchiveHostile,
}


FormerNames = Mapping[str, str | None]
"""Former class name → the class that it stands for; None: that class was dropped."""


def make_empty_former_class_names() -> FormerNames:
    """Return no former class names, for a model without any."""
    return {}


@dataclass(frozen=True)
class BatchReadingSettings:
    """Settings for reading a batch: the sender's options, and the classes that its model knows.

    Attributes:
        options: options of the sender.
        known_classes: returns the classes that the model knows.
        is_old: the batch was accepted when folders were always classes, and labels.csv the only
            label table.
        former_names: returns the former class names of the model.
    """

    options: BatchReadingOptions = field(default_factory=BatchReadingOptions)
    known_classes: Known = list_no_known_classes
    is_old: bool = False
    former_names: Callable[[], FormerNames] = make_empty_former_class_names

    def choose_reading_options_for_files(self, names: Sequence[str]) -> BatchReadingOptions:
        """Return the options for reading a batch with the files `names`; an old batch without
        labels.csv is read as folders.
        """
        has_list = any(name == CSV_NAME or name.endswith(f"/{CSV_NAME}") for name in names)
        return (
            replace(self.options, layout="folders")
            if self.is_old and not has_list
            else self.options
        )


USUAL = BatchReadingSettings()


def build_stored_reading_options(
    options: BatchReadingOptions, layout: "ArchiveLayout"
) -> StoredReading:
    """Return the reading options to store with a batch, so that its job reads it the same way."""
    stored: StoredReading = {
        "options": serialise_reading_options_to_texts(options),
        "known": sorted(layout.decided_by),
    }
    # Absent where there are none, as in batches of earlier releases.
    return {**stored, "former_names": layout.renamed} if layout.renamed else stored


def parse_stored_reading_options(
    stored: StoredReading | None, classes: Collection[str], former_names: FormerNames
) -> BatchReadingSettings:
    """Parse the reading options that are stored with a batch.

    Args:
        classes: labels of the batch, for batches stored without a reading.
        former_names: those of the model now: it may have been edited since.
    """
    if stored is None:
        return BatchReadingSettings(known_classes=lambda: classes, is_old=True)
    known_classes = stored.get("known", [])
    names = {**former_names, **stored.get("former_names", {})}
    options = parse_reading_option_texts(stored.get("options", {}))
    return BatchReadingSettings(options, lambda: known_classes, former_names=lambda: names)


@dataclass
class ArchiveLayout:
    """Class and part (training, held out) of each file in an archive.

    Attributes:
        kind: `split`, `folders`, `csv`, `table` or `npz`.
        classes: labels in order of appearance.
        of: class number of each file, IGNORED for none.
        test: 1 for each file of the archive's own test part.
        ignored: number of files left out.
        ignored_files: the first of them, {"path", "reason"}.
        notes: facts about them that a person should know.
        warnings: doubts that a person should settle before the batch is learned.
        decided_by: labels known to the model that decided between several readings.
        bad_entries: the first entries of a label table that were left out, of `bad_entries_count`.
        renamed: former class names in the batch that were replaced, with the classes they stand
            for.
    """

    kind: str
    classes: list[str] = field(default_factory=list)
    of: "array[int]" = field(default_factory=lambda: array("l"))
    test: bytearray = field(default_factory=bytearray)
    ignored: int = 0
    ignored_files: list[FileReason] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    decided_by: list[str] = field(default_factory=list)
    bad_entries: list[EntryReason] = field(default_factory=list)
    bad_entries_count: int = 0
    renamed: dict[str, str | None] = field(default_factory=dict)

    def replace_former_class_names(self, former_names: FormerNames) -> None:
        """Replace former class names of the model by the classes that they now mean.

        A class that was dropped stays in the batch, with a warning: learning it brings it back.
        """
        renamed = {name: former_names[name] for name in self.classes if name in former_names}
        for name in sorted(name for name, to in renamed.items() if to is None):
            self.warnings.append(
                f"The class {quote_name(name)} was dropped from this model, and this batch brings "
                f"it back. Leave its images out if that is not meant."
            )
        self.renamed = {name: to for name, to in renamed.items() if to is not None}
        if not self.renamed:
            return
        names = [self.renamed.get(name) or name for name in self.classes]
        # Two former names may mean the same class by now, which then has one number.
        classes = list(dict.fromkeys(names))
        number = [classes.index(name) for name in names]
        self.classes = classes
        self.of = array("l", (old if old == IGNORED else number[old] for old in self.of))
        self.notes += [
            f"{quote_name(name)} is read as {quote_name(str(to))}, the present name of this class."
            for name, to in sorted(self.renamed.items())
        ]

    def count_images_by_class_and_part(self) -> tuple[dict[str, int], int, int]:
        """Return (label → images, sorted by label; number of training images; number of held-out
        images).
        """
        totals = [0] * len(self.classes)
        tests = 0
        for number, test in zip(self.of, self.test, strict=True):
            if number != IGNORED:
                totals[number] += 1
                tests += test
        pairs = sorted(zip(self.classes, totals, strict=True))
        return dict(pairs), sum(totals) - tests, tests

    def check_class_count_and_training_images(
        self, limits: ArchiveLimits, held_out_alone: bool = False
    ) -> None:
        """Check that every class has training images and that there are not too many classes.

        Args:
            held_out_alone: True if a batch without any training image is possible.
        """
        if len(self.classes) > limits.classes:
            raise ArchiveTooLarge(
                f"The archive has {len(self.classes)} classes; at most {limits.classes} are "
                f"accepted."
            )
        with _convert_reading_rule_errors():
            require_training_images_of_every_class(self.classes, self.of, self.test, held_out_alone)


def build_archive_layout(
    names: Sequence[str],
    limits: ArchiveLimits,
    read: Callable[[int], bytes],
    reading: BatchReadingSettings = USUAL,
) -> ArchiveLayout:
    """Determine the class and part of each file in `names`; `read(i)` returns the bytes of file i.

    Raises:
        ArchiveInvalid: no layout fits, or several do; `extra["remedies"]` has the options that
            settle it.
        LabelsInvalid: labels are bad, or none is certain.
        ArchiveTooLarge: there are too many classes.
    """
    with _convert_reading_rule_errors():
        plan = assign_file_classes_and_parts(
            names,
            reading.choose_reading_options_for_files(names),
            read,
            reading.known_classes,
            most_entries=limits.entries,
        )
    for label in plan.classes:
        # Only for its errors: the rules have normalised the labels.
        check_and_normalise_class_label(label, f"the folder {quote_name(label)}")
    layout = ArchiveLayout(
        plan.kind,
        plan.classes,
        plan.of,
        plan.test,
        plan.ignored,
        [{"path": path, "reason": reason} for path, reason in plan.ignored_files[:REPORT_FILES]],
        plan.notes,
        # The rules name options as on a command line; requests have parameters.
        [
            replace_options_by_query_parameters(text)
            for text in plan.warnings + plan.left_out_warnings
        ],
        plan.decided_by,
        [{"where": where, "reason": reason} for where, reason in plan.bad_entries[:REPORT_ROWS]],
        len(plan.bad_entries),
    )
    layout.check_class_count_and_training_images(limits, reading.options.held_out_alone)
    return layout


@contextmanager
def _convert_reading_rule_errors() -> Iterator[None]:
    """Convert errors of the rules for reading a batch into errors of the service."""
    try:
        yield
    except UnreadableBatchError as error:
        remedies = [
            {"option": remedy.option, "value": remedy.value, "does": remedy.does}
            for remedy in error.remedies
        ]
        raise _ERRORS[error.kind](
            replace_options_by_query_parameters(str(error)),
            extra={"remedies": remedies} if remedies else None,
        ) from error
