"""Which part of a batch a name speaks of: `train`, `test` or `validation`.

The rules are the service's own: a validation part is held out where there is no test part, and learned where there is
one; without a training part nothing would be learned.
"""

import re
from collections.abc import Iterable, Sequence

from perennial.pack.errors import PackError
from perennial.pack.rules.words import PART_WORDS, TRAINING

TRAIN, TEST, VALIDATION = "train", "test", "validation"
_WORDS = {word: TRAIN if part == TRAINING else part for word, part in PART_WORDS.items()}
_BETWEEN_WORDS = re.compile(r"[^a-z]+")


def part_of(word: str) -> str:
    """TRAIN, TEST or VALIDATION when a word, in any case, is one for it; else empty."""
    return _WORDS.get(word.strip().lower(), "")


def part_in(name: str) -> str:
    """The last part that a name speaks of: `train-00000-of-00002.parquet`, `instances_val2017.json`; else empty."""
    found = [_WORDS[word] for word in _BETWEEN_WORDS.split(name.lower()) if word in _WORDS]
    return found[-1] if found else ""


def parts_of(files: Sequence[str]) -> list[str]:
    """The part of each file of a source by its name; a single file is a batch without parts, whatever it is called."""
    return [part_in(file) for file in files] if len(files) > 1 else [""] * len(files)


def joined(parts: Iterable[str], where: str) -> dict[str, str]:
    """Each part that a source has, empty for none said → `train`, `test` or empty, as the service takes them.

    Raises:
        PackError: images would be held out and none learned.
    """
    there = set(parts)
    if there <= {""}:
        return {"": ""}
    if not there & {TRAIN, ""}:
        raise PackError(
            f"{where} has a {' and a '.join(sorted(there))} part, but no images to learn. Add a train part, or pack "
            "the images without parts: then the service holds out a share."
        )
    return {
        "": TRAIN,
        TRAIN: TRAIN,
        TEST: TEST,
        VALIDATION: TRAIN if TEST in there else TEST,
    }
