"""Which files of an archive are images of which class: the layouts that an archive may have.

`train/<class>/…` with an optional `test/<class>/…`, or `<class>/…`, or files listed in `labels.csv`. One
common top folder is stripped; what file managers leave behind is ignored and counted; deeper paths under
a class belong to it.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from core.errors import ArchiveInvalid, ArchiveTooLarge, LabelsInvalid
from core.ingest.labels_csv import Row, parse
from core.ingest.limits import Limits
from core.ingest.names import is_junk, label_of, show

CSV_NAME = "labels.csv"
IGNORED = -1
_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")
_NONE_FOUND = (
    "No labelled images were found. Send train/<class>/… (and test/<class>/…), <class>/…, or images with a "
    "labels.csv (path,label[,split])."
)


@dataclass
class Layout:
    """kind: `split`, `folders`, `csv` or `npz`; classes: labels in order of appearance;
    of: class number per file, IGNORED where none; test: 1 per file of the archive's own test part;
    ignored: files left out; notes: what a person should know about them."""

    kind: str
    classes: list[str] = field(default_factory=list)
    of: "array[int]" = field(default_factory=lambda: array("l"))
    test: bytearray = field(default_factory=bytearray)
    ignored: int = 0
    notes: list[str] = field(default_factory=list)

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
        if not self.classes:
            raise ArchiveInvalid(_NONE_FOUND)
        trained = bytearray(len(self.classes))
        for number, test in zip(self.of, self.test, strict=True):
            if number != IGNORED and not test:
                trained[number] = 1
        if not any(trained):
            raise ArchiveInvalid("The archive has a test part but no training images.")
        for label, has in zip(self.classes, trained, strict=True):
            if not has:
                raise LabelsInvalid(f"The class {show(label)} has test images but no training images.")


def arrange(names: Sequence[str], limits: Limits, read_csv: Callable[[int], bytes]) -> Layout:
    """The layout of the files `names` (checked paths); `read_csv(i)` returns the bytes of file i.

    Raises ArchiveInvalid when there is none, LabelsInvalid for bad labels, ArchiveTooLarge for too many
    classes.
    """
    kept = [i for i, name in enumerate(names) if not is_junk(name)]
    prefix = _common_top(names, kept)
    csv_at = next((i for i in kept if names[i][len(prefix) :] == CSV_NAME), None)
    builder = _Builder(len(names), limits)
    if csv_at is not None:
        _by_csv(builder, names, kept, prefix, csv_at, parse(read_csv(csv_at), limits, CSV_NAME))
    else:
        _by_folders(builder, names, kept, prefix)
    layout = builder.layout
    layout.ignored = sum(number == IGNORED for number in layout.of) - (csv_at is not None)
    layout.check(limits)
    return layout


class _Builder:
    def __init__(self, files: int, limits: Limits) -> None:
        self.layout = Layout("folders", of=array("l", [IGNORED]) * files, test=bytearray(files))
        self._numbers: dict[str, int] = {}
        self._limits = limits

    def put(self, index: int, label: str, test: bool) -> None:
        number = self._numbers.setdefault(label, len(self._numbers))
        if number == len(self.layout.classes):
            if number >= self._limits.classes:
                raise ArchiveTooLarge(f"The archive has more than {self._limits.classes} classes.")
            self.layout.classes.append(label)
        self.layout.of[index] = number
        self.layout.test[index] = test


def _common_top(names: Sequence[str], kept: Sequence[int]) -> str:
    """`folder/` when all files share it and what is left below still has a layout; else empty."""
    if not kept:
        return ""
    top, slash, _ = names[kept[0]].partition("/")
    prefix = top + slash
    if not slash or top in ("train", "test") or any(not names[i].startswith(prefix) for i in kept):
        return ""
    below = [names[i][len(prefix) :] for i in kept]
    if CSV_NAME in below or any(path.startswith("train/") and path.count("/") >= 2 for path in below):
        return prefix
    loose_image = any("/" not in path and path.lower().endswith(_IMAGE_SUFFIXES) for path in below)
    return prefix if not loose_image and any("/" in path for path in below) else ""


def _by_folders(builder: _Builder, names: Sequence[str], kept: Sequence[int], prefix: str) -> None:
    layout = builder.layout
    skip = len(prefix)
    split = any(
        names[i].startswith(("train/", "test/"), skip) and names[i].count("/", skip) >= 2 for i in kept
    )
    layout.kind = "split" if split else "folders"
    cache: dict[str, str] = {}
    left_out: dict[str, int] = {}
    for i in kept:
        path = names[i][skip:]
        top, slash, rest = path.partition("/")
        folder = top
        if split and slash:
            folder, slash, _ = rest.partition("/")
        if not slash or (split and top not in ("train", "test")):
            left_out[top if "/" in path else ""] = left_out.get(top if "/" in path else "", 0) + 1
            continue
        label = cache.get(folder)
        if label is None:
            label = cache[folder] = label_of(folder, f"the folder {show(folder)}")
        builder.put(i, label, split and top == "test")
    for top, count in sorted(left_out.items())[:20]:
        where = f"in the folder {show(top)}" if top else "outside any class folder"
        layout.notes.append(f"{count} file{'s' * (count > 1)} {where} ignored")


def _by_csv(
    builder: _Builder, names: Sequence[str], kept: Sequence[int], prefix: str, csv_at: int, rows: list[Row]
) -> None:
    builder.layout.kind = "csv"
    index_of = {names[i][len(prefix) :]: i for i in kept if i != csv_at}
    for row in rows:
        index = index_of.get(row.path)
        if index is None:
            raise LabelsInvalid(
                f"Line {row.line} of {CSV_NAME} names {show(row.path)}, which is not in the archive."
            )
        if builder.layout.of[index] != IGNORED:
            raise LabelsInvalid(f"Line {row.line} of {CSV_NAME} names {show(row.path)} again.")
        builder.put(index, row.label, row.test)
    unlisted = len(index_of) - len(rows)
    if unlisted:
        builder.layout.notes.append(f"{unlisted} file{'s' * (unlisted > 1)} not listed in {CSV_NAME} ignored")
