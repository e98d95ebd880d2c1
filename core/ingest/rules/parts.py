"""Folders that are parts of a batch, not classes: `train/<class>/…` and what stands beside it.

A folder that is called like a part is one only if it has class folders in it, and only where there is a training part:
everywhere else it is a class like any other. Several folders of one part (`Train` and `train`) join.

A validation part stands in for a missing test part: then it is held out and measured on. Beside a test part its
images are trained on: nothing of the batch is lost, and accuracy is only ever measured on the test part.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from core.ingest.rules.entries import RuleError
from core.ingest.rules.names import show
from core.ingest.rules.words import TEST, TRAINING, VALIDATION, alike_parts, part_of

_INSTEAD = (
    "Put what is to be learned in train/<class>/… beside it, or, if nothing is to be held out, send the class "
    "folders alone."
)


def has_training_part(folders: Iterable[Sequence[str]]) -> bool:
    """Return whether there is a `train/<class>` among folders, each the names from the top."""
    return any(len(names) > 1 and part_of(names[0]) == TRAINING for names in folders)


def parts_among(folders: Iterable[Sequence[str]]) -> dict[str, str]:
    """Top folder → its part, empty when the top folders are classes.

    Raises RuleError where images would be learned that look held out: a test or validation part without any training
    part, or beside folders of the same classes.
    """
    classes_in: dict[str, set[str]] = {}  # folder that is called like a part → the folders in it
    others: set[str] = set()
    deep: set[str] = set()
    for top, *below in folders:
        if below:
            deep.add(top)
        part = part_of(top)
        if part is None:
            others.add(top)
        elif below:
            classes_in.setdefault(top, set()).add(below[0])
        elif part == TRAINING:
            classes_in.setdefault(top, set())
    parts = {top: part_of(top) or "" for top, classes in classes_in.items() if classes}
    if TRAINING in parts.values():
        return parts
    alike = alike_parts(others & deep)
    if alike and not parts:
        return alike
    for top, part in sorted(parts.items()):
        _refuse(top, part, parts, classes_in, others)
    return {}


def _refuse(
    top: str, part: str, parts: Mapping[str, str], classes_in: Mapping[str, set[str]], others: Collection[str]
) -> None:
    held = f"The batch has a {part} part, the folder {show(top)} with class folders in it, but no training images"
    if len(classes_in) > len(parts):
        flat = show(min(set(classes_in) - set(parts)))
        raise RuleError(f"{held}: the folder {flat} has no class folders. Put its images in some.")
    if not others:
        raise RuleError(f"{held}. {_INSTEAD}")
    both = {name.lower() for name in others} & {name.lower() for name in classes_in[top]}
    if both:
        raise RuleError(
            f"{held}: the class {show(min(both))} is in it and beside it. Put the class folders beside "
            f"{show(top)} in a folder called train."
        )


def is_held_out(part: str, parts: Iterable[str]) -> bool:
    """Return whether the images of `part` are held out, given all parts that the batch has."""
    return part == TEST or (part == VALIDATION and TEST not in parts)


def note(folder: str, part: str, parts: Collection[str]) -> str:
    """Return what a folder was taken for, as a sentence of the report."""
    if part != VALIDATION:
        return f"the folder {show(folder)} was taken as the {part} part"
    if is_held_out(part, parts):
        return f"the folder {show(folder)} was taken as the test part, since there is no test folder"
    return f"the folder {show(folder)} was added to the training part, since there is a test folder"
