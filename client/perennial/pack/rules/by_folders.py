"""Classes by folders: what lies in which class folder, and what is left out."""

from collections import Counter
from collections.abc import Iterable, Sequence

from perennial.pack.rules import foreign, label_files, parts
from perennial.pack.rules.builder import MOST_NOTES, Builder
from perennial.pack.rules.choice import Choice, offer_pattern
from perennial.pack.rules.entries import ReadingOptions, RuleError
from perennial.pack.rules.levels import OUTSIDE, Known, Outside, Place, find_levels
from perennial.pack.rules.names import CSV_NAME, folder_of, is_image, is_no_image, normal_label, show
from perennial.pack.rules.sentences import count

NO_IMAGE = "not an image, by its name"


def read_folders(builder: Builder, kept: Sequence[int], options: ReadingOptions, known: Known) -> None:
    """Give each file the class and part of its folder, or leave it out; `known`: the labels that the model knows.

    Raises RuleError: there is no image in a class folder, or the folders can be read in several ways.
    """
    names, plan = builder.names, builder.plan
    images = images_of(names, kept)
    if not images:
        raise _none_found(builder, kept)
    levels = find_levels(images, options.class_level, known)
    places = {folder: levels.place(folder) for folder in images}
    found: Counter[str] = Counter()
    for folder, place in places.items():
        if isinstance(place, Place):
            found[place.folder] += images[folder]
    if not found:
        raise _none_found(builder, kept)
    chosen = Choice(builder, kept, options, levels, known, found).settle()
    plan.kind = "split" if levels.parts else "folders"
    plan.has_parts = bool(levels.parts)
    plan.decided_by = sorted(levels.decided_by)
    plan.notes += levels.notes
    kinds = set(levels.parts.values())
    held_out = {part: parts.is_held_out(part, kinds) for part in kinds}
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
        f"the folder {show(folder)} has no images and was ignored" for folder in empty[:MOST_NOTES]
    ]
    plan.warnings += levels.warnings
    plan.lost += left_out.warnings()


def images_of(names: Sequence[str], kept: Iterable[int]) -> Counter[str]:
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


def _none_found(builder: Builder, kept: Sequence[int]) -> RuleError:
    """No file of a class: what there is, and what could be sent."""
    names = builder.names
    usual = (
        "No labelled images were found. Send train/<class>/… (and test/<class>/…), <class>/…, or images with a "
        f"{CSV_NAME} (path,label[,split])."
    )
    looks = label_files.find_label_files(names, kept)
    ways, by_names = offer_pattern(names, kept)
    for kind, files in foreign.kinds_among([names[index] for index in kept]).items():
        return RuleError(f"{usual} {show(names[kept[files[0]]])} is {kind.what}. {kind.advice}.")
    if builder.plan.lost:
        usual = f"{usual} {' '.join(builder.plan.lost)}"
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
        folders = sorted(self._beside.items())[: MOST_NOTES - len(notes)]
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
            tops = ", ".join(show(top) for top in sorted(lost)[:MOST_NOTES])
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
