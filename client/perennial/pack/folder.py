"""A folder of class folders, with train, test and validation folders above them or without.

What is a part, a class or left out is decided by the service's own rules (docs/howto/send-a-batch.md), so that the
batch is the one that a tar of the folder would be. Names stay as they are.
"""

from pathlib import Path

from perennial.pack import parts
from perennial.pack.errors import PackError
from perennial.pack.files import FileImages, Root
from perennial.pack.images import Image
from perennial.pack.labels import normal_label
from perennial.pack.names import is_image, is_junk, is_no_image, normal, wrong_path
from perennial.pack.text import count, listed, show

_OUTSIDE = "outside any class folder"
_BESIDE = "beside the folders of the train, test and validation parts"
_NO_IMAGES = "that are no images by their names"


class FolderImages(FileImages):
    """The images of class folders."""

    listed = False

    def __init__(self, folder: Path, *, allow_outside: bool = False) -> None:
        """List the folder; no image is read. Raises PackError."""
        super().__init__(f"the folder {show(folder.name or folder)}", folder)
        root = Root(folder, allow_outside)
        self._left_out: dict[str, list[str]] = {}
        names = self._of_classes(root)
        if not names:
            raise PackError(
                f"The folder {show(folder)} has no class folders with images in it. Put the images of each class in a "
                "folder with the name of the class, or say with kind= what else it is."
            )
        skip = len(_common_top(names))
        part_of_top = _parts([name[skip:] for name in names], folder)
        for name in names:
            self._add(name, name[skip:], part_of_top)
        _refuse_twins([row.name for row in self.rows])
        self._warn(bool(part_of_top))

    def _of_classes(self, root: Root) -> list[str]:
        """The files that lie in folders and may be images."""
        found = []
        for name in root.walk():
            if is_junk(name):
                continue
            if is_no_image(name) or ("/" not in name and not is_image(name)):
                self._leave(name, _NO_IMAGES)
            elif "/" not in name:
                self._leave(name, _OUTSIDE)
            else:
                found.append(name)
        return found

    def _add(self, name: str, below: str, part_of_top: dict[str, str]) -> None:
        top, slash, rest = below.partition("/")
        part = ""
        if slash and top in part_of_top:
            part = part_of_top[top]
            top, slash, _ = rest.partition("/")
        elif slash and part_of_top:
            return self._leave(name, _BESIDE)
        if not slash:
            return self._leave(name, _OUTSIDE)
        wrong = wrong_path(name)
        if wrong:
            raise PackError(f"{show(name)} {wrong}, and the service would refuse the batch. Rename it.")
        self.add_file(name)
        self.rows.append(Image(name, normal_label(top), part))

    def _leave(self, name: str, why: str) -> None:
        self._left_out.setdefault(why, []).append(name)

    def _warn(self, has_parts: bool) -> None:
        for why, names in self._left_out.items():
            self.warnings.append(f"{count(len(names), 'file')} {why} left out: {listed(names, 3)}.")
        words = sorted({row.label for row in self.rows if parts.part_of(row.label)})
        if words and not has_parts:
            self.warnings.append(
                f"The folder {listed(words)} was taken as a class. For a training and a test part, arrange "
                "train/<class>/… and test/<class>/…."
            )


def _common_top(names: list[str]) -> str:
    """`folder/` where the service strips it: all files share it, and the classes lie below."""
    top = names[0].partition("/")[0]
    prefix = f"{top}/"
    if any(not name.startswith(prefix) for name in names):
        return ""
    below = [name[len(prefix) :] for name in names]
    if parts.part_of(top) != parts.TRAIN and any(
        path.count("/") >= 2 and parts.part_of(path.partition("/")[0]) == parts.TRAIN for path in below
    ):
        return prefix
    loose = any("/" not in path and is_image(path) for path in below)
    return prefix if not parts.part_of(top) and not loose and any("/" in path for path in below) else ""


def _parts(names: list[str], folder: Path) -> dict[str, str]:
    """Top folder → `train` or `test`; empty when the top folders are classes.

    Raises PackError where images would be learned that look held out.
    """
    classes_in: dict[str, set[str]] = {}
    others: set[str] = set()
    flat: set[str] = set()
    for name in names:
        top, slash, rest = name.partition("/")
        inner, deeper, _ = rest.partition("/")
        if slash and not parts.part_of(top):
            others.add(top)
        elif deeper:
            classes_in.setdefault(top, set()).add(inner)
        elif slash and parts.part_of(top) == parts.TRAIN:
            flat.add(top)
    found = {top: parts.part_of(top) for top in classes_in}
    if found and parts.TRAIN in found.values():
        as_taken = parts.joined(found.values(), show(folder))
        return {top: as_taken[part] for top, part in found.items()}
    for top, classes in sorted(classes_in.items()):
        both = {name.lower() for name in others} & {name.lower() for name in classes}
        if flat:
            raise PackError(
                f"{show(folder)} has the folder {show(top)} with class folders in it, but {show(min(flat))} has none. "
                "Put its images in some."
            )
        if both or not others:
            raise PackError(
                f"{show(folder)} has the folder {show(top)} with class folders in it, but no training part. Put what "
                "is to be learned in train/<class>/… beside it, or, if nothing is to be held out, pack the folder "
                f"{show(top)} alone."
            )
    return {}


def _refuse_twins(names: list[str]) -> None:
    """Raise PackError for two names that the service takes for one: composed and decomposed letters."""
    seen: set[str] = set()
    for name in names:
        if not name.isascii():
            if normal(name) in seen:
                raise PackError(
                    f"{show(name)} is there twice, its letters composed and decomposed. Rename one."
                )
            seen.add(normal(name))
