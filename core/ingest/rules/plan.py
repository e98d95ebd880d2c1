"""How a batch is read: the class and the part of every file, by the names of all files and the label tables among them.

The service reads the archives that it gets by this plan, and the client the folders that it sends.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from core.ingest.rules import foreign, label_files, parts
from core.ingest.rules.entries import BadEntry, ReadingOptions, Remedy, RuleError
from core.ingest.rules.levels import OUTSIDE, Known, Levels, Outside, Place, find_levels
from core.ingest.rules.names import (
    CSV_NAME,
    folder_of,
    is_archive,
    is_hidden,
    is_image,
    is_junk,
    is_no_image,
    normal_label,
    show,
)
from core.ingest.rules.sentences import count, counted, listed
from core.ingest.rules.tables import (
    MOST_ENTRIES,
    FoundTable,
    find_table,
    held_out_parts,
    resolve_rows,
    suggest_pattern,
)
from core.ingest.rules.words import is_container, part_of

IGNORED = -1
MAX_LEFT_OUT = 100
"""Files left out that a plan names; their number is whole."""
MAX_REASONS = 1000
_MOST_NOTES = 20
LEFT_BEHIND = "hidden, or left behind by a file manager"
NO_IMAGE = "not an image, by its name"
ARCHIVE_INSIDE = "an archive, by its name: unpack it first"
Read = Callable[[int], bytes]
"""The bytes of a file, by its number. What it raises passes through."""


class LeftOut(NamedTuple):
    """A file that is not in the batch, and why, as the end of a sentence."""

    path: str
    reason: str


@dataclass
class Plan:
    """What becomes of the files of a batch.

    kind: `split` (train and test folders), `folders`, `csv` (labels.csv) or `table`; classes: labels in order of
    appearance; of: class number per file, IGNORED where none; test: 1 per file that is held out; has_parts: whether the
    batch says itself what is held out; ignored: files left out; ignored_files: the first of them; reasons: why, with
    how many; decided_by: labels known to the model that decided between readings; notes: what a person should know;
    warnings: what a person should look at before the batch is learned; lost: the same of images that are left out;
    bad_entries: of a label table, left out.
    """

    kind: str = "folders"
    classes: list[str] = field(default_factory=list)
    of: "array[int]" = field(default_factory=lambda: array("l"))
    test: bytearray = field(default_factory=bytearray)
    has_parts: bool = False
    ignored: int = 0
    ignored_files: list[LeftOut] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    decided_by: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    bad_entries: list[BadEntry] = field(default_factory=list)


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
    """How the files `names` (paths with `/`, each once) are read.

    Args:
        read: the bytes of a file by its number; called for label tables alone. It raises RuleError for a file that
            cannot be read, which ends the batch only if it is the table that is meant.
        known_classes: the labels that the model knows, asked for only where they may decide.
        most_entries: entries that a label table may have.

    Raises RuleError: there are no labelled images, they can be read in several ways, or none would be learned.
    """
    builder = Builder(names)
    kept = builder.leave_junk()
    table = _find_table(
        builder, kept, options, lambda: find_table(names, read, options, kept=kept, most=most_entries)
    )
    if table is None:
        _by_folders(builder, kept, options, known_classes)
    else:
        _by_table(builder, kept, options, table)
    return builder.made()


def plan_table(names: Sequence[str], options: ReadingOptions, table: FoundTable) -> Plan:
    """How the files `names` are read by a table that was found before. Raises RuleError."""
    builder = Builder(names)
    _by_table(builder, builder.leave_junk(), options, table)
    return builder.made()


class Builder:
    """Gathers a plan."""

    def __init__(self, names: Sequence[str]) -> None:
        files = len(names)
        self.plan = Plan(of=array("l", [IGNORED]) * files, test=bytearray(files))
        self.names = names
        self._numbers: dict[str, int] = {}
        self._left: list[LeftOut] = []
        self._left_behind: list[LeftOut] = []

    def put(self, index: int, label: str, is_test: bool) -> None:
        """Give a file its class and part."""
        number = self._numbers.setdefault(label, len(self._numbers))
        if number == len(self.plan.classes):
            self.plan.classes.append(label)
        self.plan.of[index] = number
        self.plan.test[index] = is_test

    def leave(self, index: int, reason: str) -> None:
        """Leave a file out."""
        self.plan.ignored += 1
        if reason in self.plan.reasons or len(self.plan.reasons) < MAX_REASONS:
            self.plan.reasons[reason] += 1
        rows = self._left_behind if reason == LEFT_BEHIND else self._left
        if len(rows) < MAX_LEFT_OUT:
            rows.append(LeftOut(self.names[index], reason))

    def leave_junk(self) -> list[int]:
        """Leave out what no person has put there. Returns the numbers of the other files."""
        kept, hidden = [], Counter[str]()
        for index, name in enumerate(self.names):
            if is_junk(name):
                self.leave(index, LEFT_BEHIND)
                folder = _hidden_folder(name)
                if folder:
                    hidden[folder] += 1
            elif is_archive(name):
                self.leave(index, ARCHIVE_INSIDE)
            else:
                kept.append(index)
        self.plan.lost += [
            f"{count(number, 'image')} in the hidden folder {show(folder)} left out."
            for folder, number in sorted(hidden.items())[:_MOST_NOTES]
        ]
        return kept

    def made(self) -> Plan:
        """The plan; files that somebody may miss come before those that a file manager left."""
        self.plan.ignored_files = [*self._left, *self._left_behind][:MAX_LEFT_OUT]
        require_training(self.plan.classes, self.plan.of, self.plan.test)
        return self.plan


def require_training(classes: Sequence[str], of: Sequence[int], test: Sequence[int]) -> None:
    """Raise RuleError unless there are images to learn, of every class."""
    trained = bytearray(len(classes))
    for number, is_test in zip(of, test, strict=True):
        if number != IGNORED and not is_test:
            trained[number] = 1
    if not any(trained):
        raise RuleError("The batch has a test part but no training images.")
    for label, has in zip(classes, trained, strict=True):
        if not has:
            raise RuleError(f"The class {show(label)} has test images but no training images.", "labels")


def _hidden_folder(name: str) -> str:
    """The hidden folder that an image lies in, by its path; empty for what is no such image."""
    if not is_hidden(name) or not is_image(name) or name.rpartition("/")[2].startswith("."):
        return ""
    folders = name.split("/")[:-1]
    at = next((i for i, folder in enumerate(folders) if folder.startswith(".")), None)
    return "" if at is None else "/".join(folders[: at + 1])


def _find_table(
    builder: Builder, kept: Sequence[int], options: ReadingOptions, find: Callable[[], FoundTable | None]
) -> FoundTable | None:
    """The label table that decides. Beside plain class folders, only one that is meant or has labels for most images.

    Raises RuleError where a table is meant, or needed, and cannot be read.
    """
    names = builder.names
    is_named = options.table or options.image_column or options.label_column or options.names_pattern
    is_meant = is_named or any(
        names[i].rpartition("/")[2] == CSV_NAME and names[i].count("/") <= 1 for i in kept
    )
    try:
        table = find()
        if table is None or is_meant or not _are_classes(names, kept, options):
            return table
        images = [i for i in kept if not is_no_image(names[i])]
        labelled = len(resolve_rows(table, names, images, options).placed)
        if 2 * labelled >= len(images):
            return table
        said = f"{table.title} has labels for {labelled:,} of {count(len(images), 'image')}"
    except RuleError as error:
        if is_meant or error.kind != "labels" or not _are_classes(names, kept, options):
            raise
        said = str(error).removesuffix(".")
    builder.plan.warnings.append(f"Labels were read from folders: {said}.")
    return None


def _are_classes(names: Sequence[str], kept: Sequence[int], options: ReadingOptions) -> bool:
    """Whether folders are classes without a doubt: several, and not all called like containers."""
    images = _images_of(names, kept)
    if not images:
        return False
    try:
        levels = find_levels(images, options.class_level, no_known)
    except RuleError:
        return False
    found = {place.folder for place in map(levels.place, images) if isinstance(place, Place)}
    return len(found) > 1 and not all(map(is_container, found))


def _by_table(builder: Builder, kept: Sequence[int], options: ReadingOptions, table: FoundTable) -> None:
    """Labels by a table: what it does not list is left out, and so are its entries that cannot be read."""
    plan, names = builder.plan, builder.names
    images = [i for i in kept if not is_no_image(names[i])]
    resolved = resolve_rows(table, names, images, options)
    is_own = [name.rpartition("/")[2] for name in table.names] == [CSV_NAME]
    where = table.names[0] if table.names else ""
    plan.kind = "csv" if is_own else "table"
    if not is_own:
        plan.notes.append(
            f"labels were read from {table.title}" if where else f"labels were read by {table.kind}"
        )
    parts_said = {placed.row.part for placed in resolved.placed}
    held = held_out_parts(parts_said)
    plan.has_parts = parts_said != {""}
    for number, row in resolved.placed:
        builder.put(number, row.label, row.part in held)
    plan.bad_entries = [*resolved.bad, *resolved.unlabelled]
    if resolved.bad:
        many = count(len(resolved.bad), "entry", "entries")
        first = resolved.bad[0]
        plan.warnings.append(
            f"{many} cannot be read and left out; the first is {first.where}: {first.reason}."
        )
    if resolved.unlabelled:
        many = count(len(resolved.unlabelled), "entry", "entries")
        plan.notes.append(f"{many} without a label, or listed before, ignored")
    files, unlisted = set(table.files), 0
    for index in kept:
        if plan.of[index] == IGNORED and index not in files:
            builder.leave(index, f"not listed in {where}" if where else "not named by the pattern")
            unlisted += 1
    if unlisted and where:
        plan.notes.append(f"{count(unlisted, 'file')} not listed in {where} ignored")


def _by_folders(builder: Builder, kept: Sequence[int], options: ReadingOptions, known: Known) -> None:
    names, plan = builder.names, builder.plan
    images = _images_of(names, kept)
    if not images:
        raise _none_found(names, kept)
    levels = find_levels(images, options.class_level, known)
    places = {folder: levels.place(folder) for folder in images}
    found: Counter[str] = Counter()
    for folder, place in places.items():
        if isinstance(place, Place):
            found[place.folder] += images[folder]
    if not found:
        raise _none_found(names, kept)
    chosen = _Choice(builder, kept, options, levels, known, found).settle()
    plan.kind = "split" if levels.parts else "folders"
    plan.has_parts = bool(levels.parts)
    plan.decided_by = sorted(levels.decided_by)
    plan.notes += levels.notes
    held_out = {part: parts.is_held_out(part, levels.parts.values()) for part in levels.parts.values()}
    left_out = _LeftOut()
    is_empty: dict[str, bool] = {}  # folder of a class → whether no image was seen in it
    for index in kept:
        name = names[index]
        folder = folder_of(name)
        if folder and folder not in places:
            places[folder] = levels.place(folder)
        place = places[folder] if folder else OUTSIDE
        if not isinstance(place, Place):
            builder.leave(index, left_out.add(name, place))
        elif is_no_image(name):
            is_empty.setdefault(place.where, True)
            builder.leave(index, left_out.foreign(name))
        else:
            is_empty[place.where] = False
            builder.put(
                index, chosen.get(place.folder) or normal_label(place.folder), held_out.get(place.part, False)
            )
    empty = [folder for folder in sorted(is_empty) if is_empty[folder]]
    plan.notes += left_out.notes()
    plan.notes += [
        f"the folder {show(folder)} has no images and was ignored" for folder in empty[:_MOST_NOTES]
    ]
    plan.warnings += levels.warnings
    plan.lost += left_out.warnings()


def _images_of(names: Sequence[str], kept: Iterable[int]) -> Counter[str]:
    """Folder → files that lie in it and are images by their names; where no name says so, those that may be.

    Nothing but images decides what folders mean.
    """
    sure: Counter[str] = Counter()
    perhaps: Counter[str] = Counter()
    is_any = False
    for index in kept:
        name = names[index]
        folder = folder_of(name)
        if is_image(name):
            is_any = True
            if folder:
                sure[folder] += 1
        elif not is_any and folder and not is_no_image(name):
            perhaps[folder] += 1
    return sure if is_any else perhaps


class _Choice:
    """Whether the names of class folders are labels, and what settles it where they say nothing."""

    def __init__(
        self,
        builder: Builder,
        kept: Sequence[int],
        options: ReadingOptions,
        levels: Levels,
        known: Known,
        found: Mapping[str, int],
    ) -> None:
        self._builder, self._kept, self._options = builder, kept, options
        self._levels, self._known, self._found = levels, known, found

    def settle(self) -> dict[str, str]:
        """Folder → its label, where that is not the folder's own name.

        Raises RuleError where the folders may be mere containers.
        """
        plan, found = self._builder.plan, self._found
        if self._options.one_class and len(found) > 1:
            raise RuleError(
                f"one_class=true was asked for, and the batch has {count(len(found), 'class', 'classes')}: "
                f"{counted(found)}. Leave the option out.",
                "labels",
            )
        containers = sorted(name for name in found if is_container(name))
        looks = label_files.find_label_files(self._builder.names, self._kept)
        whole = [look for look in looks if not look.is_aside]
        is_unclear = len(containers) == len(found) or (len(found) == 1 and bool(whole))
        if is_unclear and self._options.layout != "folders":
            if self._options.one_class:
                (name,) = found
                return {name: normal_label(self._one_label())}
            if not self._is_known():
                raise self._asked(looks)
        plan.warnings += _said_of_classes(containers, bool(self._levels.parts))
        if whole:
            files = "; ".join(map(str, whole[:3]))
            plan.warnings.append(
                f"Classes were read from folders, and no label file: {files}. To read labels from a file, name it with "
                "-o table=FILE (in a request ?table=FILE)."
            )
        return {}

    def _is_known(self) -> bool:
        """Whether the model knows the folders as classes: then they are."""
        labels = {normal_label(name) for name in self._found}
        if not labels <= set(self._known()):
            return False
        self._levels.decided_by |= labels
        return True

    def _one_label(self) -> str:
        """The folder that names the one class: the deepest that is no container."""
        (name,) = self._found
        above = [*self._levels.passed, name]
        return next((folder for folder in reversed(above) if not is_container(folder)), name)

    def _asked(self, looks: Sequence[label_files.LabelFile]) -> RuleError:
        found = self._found
        images = count(sum(found.values()), "image")
        ways = []
        if len(found) == 1:
            (name,) = found
            label = normal_label(self._one_label())
            where = show("/".join([*self._levels.passed, name]))
            what = (
                f"{images} lie in one folder {where}"
                if images != "1 image"
                else f"1 image lies in the folder {where}"
            )
            ways = [Remedy("one_class", "true", f"Read all {images} as one class {show(label)}")]
            other = f", or with -o layout=folders to call it {show(name)}" if label != name else ""
            settled = (
                "If they are all of one class, say so with -o one_class=true (in a request ?one_class=true), which "
                f"calls it {show(label)}{other}."
            )
        else:
            what = f"{images} lie in folders whose names say where files lie, not what is in them ({counted(found)})"
            ways = [Remedy("layout", "folders", f"Read {listed(sorted(found), 3)} as classes")]
            settled = (
                "If the folders are the classes all the same, say so with -o layout=folders (in a request "
                "?layout=folders)."
            )
        named, by_names = _by_pattern(self._builder.names, self._kept)
        ways += named
        beside = f"; {looks[0]}" if looks else ""
        more = f", and so do {count(len(looks) - 1, 'other file')}" if len(looks) > 1 else ""
        advice = looks[0].advice if looks else ""
        return RuleError(
            f"The batch has no labels that are sure: {what}{beside}{more}.{advice} Put the images of each class in a "
            f"folder of its name, or send their labels as {CSV_NAME} with the first line path,label. {settled}"
            f"{by_names}",
            "labels",
            ways,
        )


def _said_of_classes(containers: Sequence[str], has_parts: bool) -> list[str]:
    """Classes that are called like parts or containers: right beside other classes, and said."""
    called_parts = [] if has_parts else [name for name in containers if part_of(name)]
    others = [name for name in containers if name not in called_parts]
    said = [
        f"The folder {show(folder)} was taken as a class. For a training part and a test part, send "
        "train/<class>/… and test/<class>/…."
        for folder in called_parts
    ][:_MOST_NOTES]
    if others:
        taken = "s {} were taken as classes" if len(others) > 1 else " {} was taken as a class"
        said.append(f"The folder{taken.format(listed(others))}, like the folders beside.")
    return said


def _by_pattern(names: Sequence[str], kept: Sequence[int]) -> tuple[list[Remedy], str]:
    """The remedy and the sentence that offer to take labels from names of files, where nearly all fit a pattern."""
    pattern = suggest_pattern(names, [i for i in kept if is_image(names[i])])
    if not pattern:
        return [], ""
    remedy = Remedy("names_pattern", pattern, f"Take the labels from the names of the files, {pattern}")
    return [
        remedy
    ], f" If the names of the files begin with the labels, -o names_pattern='{pattern}' takes them."


def _none_found(names: Sequence[str], kept: Sequence[int]) -> RuleError:
    """No file of a class: what there is, and what could be sent."""
    usual = (
        "No labelled images were found. Send train/<class>/… (and test/<class>/…), <class>/…, or images with a "
        f"{CSV_NAME} (path,label[,split])."
    )
    looks = label_files.find_label_files(names, kept)
    ways, by_names = _by_pattern(names, kept)
    for kind, files in foreign.kinds_among([names[index] for index in kept]).items():
        return RuleError(f"{usual} {show(names[kept[files[0]]])} is {kind.what}. {kind.advice}.")
    beside = f" The file {looks[0]}, and names no images of the batch.{looks[0].advice}" if looks else ""
    return RuleError(f"{usual}{beside}{by_names}", remedies=ways)


class _LeftOut:
    """Files that no class has, counted by what is wrong with them."""

    def __init__(self) -> None:
        self._outside = self._loose_images = 0
        self._beside: Counter[str] = Counter()
        self._images: Counter[str] = Counter()
        self._foreign: Counter[foreign.Foreign] = Counter()
        self._first: dict[foreign.Foreign, str] = {}

    def add(self, path: str, outside: Outside) -> str:
        """Count a file outside the class folders; returns the reason, with a hint where one helps."""
        if outside.top:
            self._beside[outside.top] += 1
            self._images[outside.top] += is_image(path)
            return outside.reason
        self._outside += 1
        self._loose_images += is_image(path)
        hint = "; it names no images of the batch beside labels" if path.lower().endswith(".csv") else ""
        return outside.reason + hint

    def foreign(self, path: str) -> str:
        """Count a file that is no image by its name; returns the reason."""
        kind = foreign.what_is(path)
        if kind is None:
            return NO_IMAGE
        self._foreign[kind] += 1
        self._first.setdefault(kind, path)
        return f"{kind.what}, by its name"

    def notes(self) -> list[str]:
        """Sentences for the report."""
        notes = [f"{count(self._outside, 'file')} outside any class folder ignored"] if self._outside else []
        folders = sorted(self._beside.items())[: _MOST_NOTES - len(notes)]
        return notes + [
            f"{count(number, 'file')} in the folder {show(top)} ignored" for top, number in folders
        ]

    def warnings(self) -> list[str]:
        """Images that are lost to the batch; beside train and test, perhaps because “train” is a class there."""
        said = []
        if self._loose_images:
            said.append(f"{count(self._loose_images, 'image')} outside any class folder left out.")
        lost = +self._images
        if lost:
            tops = ", ".join(show(top) for top in sorted(lost)[:_MOST_NOTES])
            said.append(
                f"{count(sum(lost.values()), 'image')} in {tops} left out: beside a folder called train only test and "
                "validation folders are read. If it is a class, put all class folders in one called train."
            )
        for kind, number in self._foreign.items():
            what = (
                f"is {kind.what}"
                if number == 1
                else f"and {count(number - 1, 'other file')} are each {kind.what}"
            )
            said.append(f"{show(self._first[kind])} {what}, and left out. {kind.advice}.")
        return said
