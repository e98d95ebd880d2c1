"""Folders that are parts of a batch, not classes: `train/<class>/…` and the folders beside it.

A folder named like a part is a part only if it has class folders and there is a training part.
Otherwise it is a class like any other. Several folders of one part (`Train` and `train`) are
joined.

A validation part replaces a missing test part: it is then held out and measured on. Beside a test
part, its images are used for training, so that nothing is lost and accuracy is measured on the test
part only.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from perennial.reading_rules.entries import UnreadableBatchError
from perennial.reading_rules.names import quote_name
from perennial.reading_rules.words import (
    TEST,
    TRAINING,
    VALIDATION,
    find_dataset_parts_with_common_word,
    get_dataset_part_of_folder,
)

_INSTEAD = (
    "Put what is to be learned in train/<class>/… beside it, or, if nothing is to be held out, "
    "send the class folders alone."
)


def has_training_class_folders(folders: Iterable[Sequence[str]]) -> bool:
    """Return True if folders, given as names from the top, include a `train/<class>`."""
    return any(
        len(names) > 1 and get_dataset_part_of_folder(names[0]) == TRAINING for names in folders
    )


def find_dataset_parts_of_top_folders(
    folders: Iterable[Sequence[str]], held_out_alone: bool = False
) -> dict[str, str]:
    """Return the dataset part (train, test) by top folder; empty if the top folders are classes.

    Args:
        held_out_alone: True if parts without a training part are possible.

    Raises UnreadableBatchError if images that look held out would be learned: in a test or validation part
    without any training part, or one beside folders of the same classes.
    """
    classes_in: dict[str, set[str]] = {}  # folder named like a part → the folders in it
    other_folders: set[str] = set()
    folders_with_folders: set[str] = set()
    for top, *below in folders:
        if below:
            folders_with_folders.add(top)
        part = get_dataset_part_of_folder(top)
        if part is None:
            other_folders.add(top)
        elif below:
            classes_in.setdefault(top, set()).add(below[0])
        # A `train` without class folders is no part, but the advice in
        # `_refuse_batch_without_training_images` names it.
        elif part == TRAINING:
            classes_in.setdefault(top, set())
    parts = {
        top: get_dataset_part_of_folder(top) or "" for top, classes in classes_in.items() if classes
    }
    if TRAINING in parts.values():
        return parts
    if held_out_alone and parts and not other_folders and len(classes_in) == len(parts):
        return parts
    # Only folders with class folders in them: `seg_train` with images alone is a class.
    parts_by_word = find_dataset_parts_with_common_word(other_folders & folders_with_folders)
    if parts_by_word and not parts:
        return parts_by_word
    for top, part in sorted(parts.items()):
        _refuse_batch_without_training_images(top, part, parts, classes_in, other_folders)
    return {}


def _refuse_batch_without_training_images(
    top: str,
    part: str,
    parts: Mapping[str, str],
    classes_in: Mapping[str, set[str]],
    other_folders: Collection[str],
) -> None:
    finding = (
        f"The batch has a {part} part, the folder {quote_name(top)} with class folders in it, but "
        f"no training images"
    )
    if len(classes_in) > len(parts):
        flat = quote_name(min(set(classes_in) - set(parts)))
        raise UnreadableBatchError(
            f"{finding}: the folder {flat} has no class folders. Put its images in some."
        )
    if not other_folders:
        raise UnreadableBatchError(f"{finding}. {_INSTEAD}", "held_out")
    shared_names = {name.lower() for name in other_folders} & {
        name.lower() for name in classes_in[top]
    }
    if shared_names:
        raise UnreadableBatchError(
            f"{finding}: the class {quote_name(min(shared_names))} is in it and beside it. Put the "
            f"class folders beside {quote_name(top)} in a folder called train."
        )


def is_held_out_part(part: str, parts: Iterable[str]) -> bool:
    """Return True if images of `part` are held out, given all parts of the batch."""
    return part == TEST or (part == VALIDATION and TEST not in parts)


def describe_dataset_part_of_folder(folder: str, part: str, parts: Collection[str]) -> str:
    """Return a sentence for the batch's report about the dataset part that a folder was used as."""
    if part != VALIDATION:
        return f"the folder {quote_name(folder)} was taken as the {part} part"
    if is_held_out_part(part, parts):
        return f"the folder {quote_name(folder)} was taken as the test part, since there is no test folder"
    return f"the folder {quote_name(folder)} was added to the training part, since there is a test folder"
