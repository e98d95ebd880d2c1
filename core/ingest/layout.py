"""Which files of an archive are images of which class: the layouts that an archive may have.

`train/<class>/…` with an optional `test/<class>/…` (see `parts`), or `<class>/…`, or files listed in `labels.csv`.
One common top folder is stripped; deeper paths under a class belong to it. What file managers leave behind, and in
folders what is plainly no image by its name, is ignored and named with its reason.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from core.errors import ArchiveInvalid, ArchiveTooLarge, LabelsInvalid
from core.ingest.labels_csv import Row, parse
from core.ingest.limits import REPORT_FILES, Limits
from core.ingest.names import is_image, is_junk, is_no_image, label_of, show
from core.ingest.parts import TRAINING, has_training_part, is_held_out, note, part_of, parts_among
from core.protocol.report import FileReason

CSV_NAME = "labels.csv"
IGNORED = -1
_MOST_NOTES = 20
_LEFT_BEHIND = "hidden, or left behind by a file manager"
_NO_IMAGE = "not an image, by its name"
_OUTSIDE = "outside any class folder"
_NONE_FOUND = (
    "No labelled images were found. Send train/<class>/… (and test/<class>/…), <class>/…, or images with a "
    "labels.csv (path,label[,split])."
)


@dataclass
class Layout:
    """kind: `split`, `folders`, `csv` or `npz`; classes: labels in order of appearance;
    of: class number per file, IGNORED where none; test: 1 per file of the archive's own test part;
    ignored: files left out; ignored_files: the first of them, {"path", "reason"}; notes: what a person should
    know about them; warnings: what a person should look at before the batch is learned."""

    kind: str
    classes: list[str] = field(default_factory=list)
    of: "array[int]" = field(default_factory=lambda: array("l"))
    test: bytearray = field(default_factory=bytearray)
    ignored: int = 0
    ignored_files: list[FileReason] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

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
    builder = _Builder(names, limits)
    kept = []
    for i, name in enumerate(names):
        if is_junk(name):
            builder.leave(i, _LEFT_BEHIND)
        else:
            kept.append(i)
    prefix = _common_top(names, kept)
    csv_at = next((i for i in kept if names[i][len(prefix) :] == CSV_NAME), None)
    if csv_at is not None:
        _by_csv(builder, names, kept, prefix, csv_at, parse(read_csv(csv_at), limits, CSV_NAME))
    else:
        _by_folders(builder, names, kept, prefix)
    return builder.made()


class _Builder:
    def __init__(self, names: Sequence[str], limits: Limits) -> None:
        files = len(names)
        self.layout = Layout("folders", of=array("l", [IGNORED]) * files, test=bytearray(files))
        self._names, self._limits = names, limits
        self._numbers: dict[str, int] = {}
        self._left: list[FileReason] = []
        self._left_behind: list[FileReason] = []

    def put(self, index: int, label: str, test: bool) -> None:
        number = self._numbers.setdefault(label, len(self._numbers))
        if number == len(self.layout.classes):
            if number >= self._limits.classes:
                raise ArchiveTooLarge(f"The archive has more than {self._limits.classes} classes.")
            self.layout.classes.append(label)
        self.layout.of[index] = number
        self.layout.test[index] = test

    def leave(self, index: int, reason: str) -> None:
        self.layout.ignored += 1
        rows = self._left_behind if reason == _LEFT_BEHIND else self._left
        if len(rows) < REPORT_FILES:
            rows.append({"path": self._names[index], "reason": reason})

    def made(self) -> Layout:
        """The layout; files that somebody may miss come before those that a file manager left."""
        self.layout.ignored_files = [*self._left, *self._left_behind][:REPORT_FILES]
        self.layout.check(self._limits)
        return self.layout


def _common_top(names: Sequence[str], kept: Sequence[int]) -> str:
    """`folder/` when all files share it and what is left below still has a layout; else empty."""
    if not kept:
        return ""
    top, slash, _ = names[kept[0]].partition("/")
    prefix = top + slash
    if not slash or any(not names[i].startswith(prefix) for i in kept):
        return ""
    below = [names[i][len(prefix) :] for i in kept]
    if CSV_NAME in below:
        return prefix
    part = part_of(top)
    if part != TRAINING and has_training_part(below):
        return prefix
    loose_image = any("/" not in path and is_image(path) for path in below)
    return prefix if part is None and not loose_image and any("/" in path for path in below) else ""


def _by_folders(builder: _Builder, names: Sequence[str], kept: Sequence[int], prefix: str) -> None:
    layout = builder.layout
    skip = len(prefix)
    parts = parts_among(names[i][skip:] for i in kept)
    held_out = {top: is_held_out(part, parts.values()) for top, part in parts.items()}
    layout.kind = "split" if parts else "folders"
    layout.notes += [note(top, part, parts.values()) for top, part in sorted(parts.items())]
    labels: dict[str, str] = {}
    left_out = _LeftOut()
    no_images: dict[str, bool] = {}  # folder of a class → whether no image was seen in it
    for i in kept:
        top, slash, rest = names[i][skip:].partition("/")
        folder, where = top, top
        if parts and slash and top in parts:
            folder, slash, _ = rest.partition("/")
            where = f"{top}/{folder}"
        elif parts and slash:
            builder.leave(i, left_out.beside(top, names[i]))
            continue
        if not slash:
            builder.leave(i, left_out.outside(folder))
            continue
        if is_no_image(names[i]):
            no_images.setdefault(where, True)
            builder.leave(i, _NO_IMAGE)
            continue
        no_images[where] = False
        label = labels.get(folder)
        if label is None:
            label = labels[folder] = label_of(folder, f"the folder {show(folder)}")
        builder.put(i, label, held_out.get(top, False))
    empty = sorted(where for where, none in no_images.items() if none)
    layout.notes += left_out.notes()
    layout.notes += [
        f"the folder {show(where)} has no images and was ignored" for where in empty[:_MOST_NOTES]
    ]
    layout.warnings += left_out.warnings() + ([] if parts else _called_like_parts(labels))


class _LeftOut:
    """Files that no class folder holds, counted by the top folder that they are in."""

    def __init__(self) -> None:
        self._outside = self._loose_images = 0
        self._beside: dict[str, int] = {}
        self._images: dict[str, int] = {}

    def outside(self, name: str) -> str:
        self._outside += 1
        self._loose_images += is_image(name)
        hint = f"; a list of labels must be called {CSV_NAME}" if name.lower().endswith(".csv") else ""
        return _OUTSIDE + hint

    def beside(self, top: str, path: str) -> str:
        self._beside[top] = self._beside.get(top, 0) + 1
        if is_image(path):
            self._images[top] = self._images.get(top, 0) + 1
        what = "which has no class folders" if part_of(top) else "which is no part of the batch"
        return f"in the folder {show(top)}, {what}"

    def notes(self) -> list[str]:
        notes = [f"{_files(self._outside)} outside any class folder ignored"] if self._outside else []
        folders = sorted(self._beside.items())[: _MOST_NOTES - len(notes)]
        return notes + [f"{_files(count)} in the folder {show(top)} ignored" for top, count in folders]

    def warnings(self) -> list[str]:
        """Images that are lost to the batch; beside train and test, perhaps because “train” is a class there."""
        said = []
        if self._loose_images:
            said.append(f"{_images(self._loose_images)} outside any class folder left out.")
        if self._images:
            tops = ", ".join(show(top) for top in sorted(self._images)[:_MOST_NOTES])
            said.append(
                f"{_images(sum(self._images.values()))} in {tops} left out: beside a folder called train only test "
                "and validation folders are read. If it is a class, put all class folders in one called train."
            )
        return said


def _called_like_parts(folders: dict[str, str]) -> list[str]:
    """Classes with the name of a part: right for pictures of trains, wrong for a training part without classes."""
    return [
        f"The folder {show(folder)} was taken as a class. For a training part and a test part, send "
        "train/<class>/… and test/<class>/…."
        for folder in sorted(folders)
        if part_of(folder)
    ][:_MOST_NOTES]


def _files(count: int) -> str:
    return f"{count} file{'s' * (count > 1)}"


def _images(count: int) -> str:
    return f"{count} image{'s' * (count > 1)}"


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
    for i in index_of.values():
        if builder.layout.of[i] == IGNORED:
            builder.leave(i, f"not listed in {CSV_NAME}")
    unlisted = len(index_of) - len(rows)
    if unlisted:
        builder.layout.notes.append(f"{_files(unlisted)} not listed in {CSV_NAME} ignored")
