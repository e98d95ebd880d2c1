"""Detection of the part of a batch that a name refers to: `train`, `test` or `validation`.

The rules are the service's own: a validation part is held out if there is no test part, and learned
if there is one. Without a training part nothing would be learned.
"""

import re
from collections.abc import Iterable, Sequence

from perennial.pack.errors import PackError
from perennial.reading_rules.words import PART_WORDS, TRAINING

TRAIN, TEST, VALIDATION = "train", "test", "validation"
_WORDS = {word: TRAIN if part == TRAINING else part for word, part in PART_WORDS.items()}
_BETWEEN_WORDS = re.compile(r"[^a-z]+")


def parse_dataset_part(word: str) -> str:
    """Return TRAIN, TEST or VALIDATION if a word means that part of a data set, else ""."""
    return _WORDS.get(word.strip().lower(), "")


def find_dataset_part_in_name(name: str) -> str:
    """Find a data set's part (train, test, validation) in a name such as `train-00000.parquet`."""
    parts_named = [_WORDS[word] for word in _BETWEEN_WORDS.split(name.lower()) if word in _WORDS]
    # The last one, because a file's own name says more than the folders before it.
    return parts_named[-1] if parts_named else ""


def find_dataset_parts_of_files(files: Sequence[str]) -> list[str]:
    """Return the data set's part (train, test, validation) of each file, by its name."""
    # A lone test.parquet is all there is, so it is learned.
    return (
        [find_dataset_part_in_name(file) for file in files] if len(files) > 1 else [""] * len(files)
    )


def map_dataset_parts_to_splits(parts: Iterable[str], where: str) -> dict[str, str]:
    """Map the parts of a data set to `train` (learned), `test` (held out) or "".

    Raises:
        PackError: images would be held out and none learned.
    """
    present = set(parts)
    if present <= {""}:
        return {"": ""}
    if not present & {TRAIN, ""}:
        raise PackError(
            f"{where} has a {' and a '.join(sorted(present))} part, but no images to learn. Add a "
            "train part, or pack the images without parts: then the service holds out a share."
        )
    return {
        "": TRAIN,
        TRAIN: TRAIN,
        TEST: TEST,
        # With a test part for measuring, validation images are more images to learn.
        VALIDATION: TRAIN if TEST in present else TEST,
    }
