"""Which files of an archive are images of which class, by the rules of `core.ingest.rules`.

The client follows the same rules for a folder. Here their errors become the service's, and their labels are checked.
"""

from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from core.errors import ArchiveHostile, ArchiveInvalid, ArchiveTooLarge, LabelsInvalid
from core.ingest.labels_csv import parse
from core.ingest.limits import REPORT_FILES, Limits
from core.ingest.names import label_of, show
from core.ingest.rules.entries import ReadingOptions, RuleError
from core.ingest.rules.levels import Known
from core.ingest.rules.names import CSV_NAME, is_junk
from core.ingest.rules.options import read_options, write_options
from core.ingest.rules.plan import IGNORED, Builder, Plan, no_known, plan_batch, require_training
from core.ingest.rules.sentences import count
from core.protocol.report import FileReason, StoredReading

__all__ = ["CSV_NAME", "IGNORED", "Layout", "Reading", "arrange"]

_ERRORS = {
    "archive": ArchiveInvalid,
    "labels": LabelsInvalid,
    "too_large": ArchiveTooLarge,
    "hostile": ArchiveHostile,
}


@dataclass(frozen=True)
class Reading:
    """How a batch is to be read: the sender's options, and the classes of its model, asked for where they decide."""

    options: ReadingOptions = field(default_factory=ReadingOptions)
    known: Known = no_known


USUAL = Reading()


def stored_reading(options: ReadingOptions, known: Collection[str]) -> StoredReading:
    """What is stored with a batch, so that it is read the same way again."""
    return {"options": write_options(options), "known": sorted(known)}


def reading_of(stored: StoredReading | None, classes: Collection[str]) -> Reading:
    """The reading that was stored with a batch; `classes`: of it, which decide for one from before that was stored."""
    if stored is None:
        return Reading(known=lambda: classes)
    known = stored.get("known", [])
    return Reading(read_options(stored.get("options", {})), lambda: known)


@dataclass
class Layout:
    """kind: `split`, `folders`, `csv` or `npz`; classes: labels in order of appearance;
    of: class number per file, IGNORED where none; test: 1 per file of the archive's own test part;
    ignored: files left out; ignored_files: the first of them, {"path", "reason"}; notes: what a person should
    know about them; warnings: what a person should look at before the batch is learned; decided_by: labels known to the
    model that decided between readings."""

    kind: str
    classes: list[str] = field(default_factory=list)
    of: "array[int]" = field(default_factory=lambda: array("l"))
    test: bytearray = field(default_factory=bytearray)
    ignored: int = 0
    ignored_files: list[FileReason] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    decided_by: list[str] = field(default_factory=list)

    def counts(self) -> tuple[dict[str, int], int, int]:
        """(label → images, sorted by label; images of the train part; images of the test part)."""
        totals = [0] * len(self.classes)
        tests = 0
        for number, test in zip(self.of, self.test, strict=True):
            if number != IGNORED:
                totals[number] += 1
                tests += test
        pairs = sorted(zip(self.classes, totals, strict=True))
        return dict(pairs), sum(totals) - tests, tests

    def check(self, limits: Limits) -> None:
        """Raise unless there are training images of every class and not too many classes."""
        if len(self.classes) > limits.classes:
            raise ArchiveTooLarge(
                f"The archive has {len(self.classes)} classes; at most {limits.classes} are accepted."
            )
        with _typed():
            require_training(self.classes, self.of, self.test)


def arrange(
    names: Sequence[str], limits: Limits, read: Callable[[int], bytes], reading: Reading = USUAL
) -> Layout:
    """The layout of the files `names` (checked paths); `read(i)` returns the bytes of file i.

    Raises ArchiveInvalid when there is none or several are possible, LabelsInvalid for bad labels or none that are
    sure, ArchiveTooLarge for too many classes. The options that settle it are `extra["remedies"]`.
    """
    with _typed():
        plan = _by_csv(names, limits, read, reading) or plan_batch(
            names, reading.options, read, reading.known
        )
    for label in plan.classes:
        label_of(label, f"the folder {show(label)}")
    layout = Layout(
        plan.kind,
        plan.classes,
        plan.of,
        plan.test,
        plan.ignored,
        [{"path": path, "reason": reason} for path, reason in plan.ignored_files[:REPORT_FILES]],
        plan.notes,
        plan.warnings + plan.lost,
        plan.decided_by,
    )
    layout.check(limits)
    return layout


def _by_csv(
    names: Sequence[str], limits: Limits, read: Callable[[int], bytes], reading: Reading
) -> Plan | None:
    """The plan that a labels.csv says, which lies at the top or in the one folder that wraps all; None without one."""
    kept = [i for i, name in enumerate(names) if not is_junk(name)]
    tops = {names[i].partition("/")[0] for i in kept if "/" in names[i]}
    wrapped = len(tops) == 1 and all("/" in names[i] for i in kept)
    places = {CSV_NAME, *(f"{top}/{CSV_NAME}" for top in tops if wrapped)}
    at = next((i for i in kept if names[i] in places), None)
    if at is None or reading.options.layout == "folders":
        return None
    prefix = names[at].removesuffix(CSV_NAME)
    builder = Builder(names)
    builder.leave_junk()
    builder.plan.kind = "csv"
    index_of = {names[i][len(prefix) :]: i for i in kept if i != at}
    rows = parse(read(at), limits, CSV_NAME)
    for row in rows:
        index = index_of.get(row.path)
        if index is None:
            raise LabelsInvalid(
                f"Line {row.line} of {CSV_NAME} names {show(row.path)}, which is not in the archive."
            )
        if builder.plan.of[index] != IGNORED:
            raise LabelsInvalid(f"Line {row.line} of {CSV_NAME} names {show(row.path)} again.")
        builder.put(index, row.label, row.test)
    for i in index_of.values():
        if builder.plan.of[i] == IGNORED:
            builder.leave(i, f"not listed in {CSV_NAME}")
    unlisted = len(index_of) - len(rows)
    if unlisted:
        builder.plan.notes.append(f"{count(unlisted, 'file')} not listed in {CSV_NAME} ignored")
    return builder.made()


@contextmanager
def _typed() -> Iterator[None]:
    """Turn an error of the rules into the service's own."""
    try:
        yield
    except RuleError as error:
        remedies = [{"option": one.option, "value": one.value, "does": one.does} for one in error.remedies]
        raise _ERRORS[error.kind](str(error), extra={"remedies": remedies} if remedies else None) from error
