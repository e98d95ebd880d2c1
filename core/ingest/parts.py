"""Folders of an archive that are parts of a batch, not classes: `train/<class>/…` and what stands beside it.

Words count in any case: train, training; test, testing; val, valid, validation. Such a folder is a part only if
it has class folders in it, and only where there is a training part: everywhere else it is a class like any other.
Several folders of one part (`Train` and `train`) join.

A validation part stands in for a missing test part: then it is held out and measured on. Beside a test part its
images are trained on: nothing of the batch is lost, and accuracy is only ever measured on the test part.
"""

from collections.abc import Iterable

from core.errors import ArchiveInvalid
from core.ingest.names import show

TRAINING, TEST, VALIDATION = "training", "test", "validation"
_WORDS = {
    "train": TRAINING,
    "training": TRAINING,
    "test": TEST,
    "testing": TEST,
    "val": VALIDATION,
    "valid": VALIDATION,
    "validation": VALIDATION,
}
_INSTEAD = (
    "Put what is to be learned in train/<class>/… beside it, or, if nothing is to be held out, send the class "
    "folders alone."
)


def part_of(folder: str) -> str | None:
    """TRAINING, TEST or VALIDATION when a folder is called like one, else None."""
    return _WORDS.get(folder.strip().lower())


def has_training_part(paths: Iterable[str]) -> bool:
    """Whether there is a `train/<class>/…` among the paths."""
    return any(path.count("/") >= 2 and part_of(path[: path.index("/")]) == TRAINING for path in paths)


def parts_among(paths: Iterable[str]) -> dict[str, str]:
    """Top folder → its part, empty when the top folders are classes.

    Raises ArchiveInvalid where images would be learned that look held out: a test or validation part without
    any training part, or beside folders of the same classes.
    """
    classes_in: dict[str, set[str]] = {}  # folder that is called like a part → the folders in it
    others: set[str] = set()
    for path in paths:
        top, slash, rest = path.partition("/")
        if not slash:
            continue
        folder, deeper, _ = rest.partition("/")
        if part_of(top) is None:
            others.add(top)
        elif deeper:
            classes_in.setdefault(top, set()).add(folder)
        elif part_of(top) == TRAINING and top not in classes_in:
            classes_in[top] = set()
    parts = {top: part_of(top) or "" for top, classes in classes_in.items() if classes}
    if TRAINING in parts.values():
        return parts
    for top, part in sorted(parts.items()):
        held = f"The archive has a {part} part, the folder {show(top)} with class folders in it, but no training images"
        if len(classes_in) > len(parts):
            flat = show(min(set(classes_in) - set(parts)))
            raise ArchiveInvalid(f"{held}: the folder {flat} has no class folders. Put its images in some.")
        if not others:
            raise ArchiveInvalid(f"{held}. {_INSTEAD}")
        both = {name.lower() for name in others} & {name.lower() for name in classes_in[top]}
        if both:
            raise ArchiveInvalid(
                f"{held}: the class {show(min(both))} is in it and beside it. Put the class folders beside "
                f"{show(top)} in a folder called train."
            )
    return {}


def is_held_out(part: str, parts: Iterable[str]) -> bool:
    """Whether the images of `part` are held out, given all parts that the archive has."""
    return part == TEST or (part == VALIDATION and TEST not in parts)


def note(folder: str, part: str, parts: Iterable[str]) -> str:
    """What a folder was taken for, as a sentence of the report."""
    if part != VALIDATION:
        return f"the folder {show(folder)} was taken as the {part} part"
    if is_held_out(part, parts):
        return f"the folder {show(folder)} was taken as the test part, since there is no test folder"
    return f"the folder {show(folder)} was added to the training part, since there is a test folder"
