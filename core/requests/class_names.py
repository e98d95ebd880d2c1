"""Class names of a batch beside those that a model has: which are new, and which look like a slip of the pen.

Two names are alike when they differ only in case, in the form of their letters (width, accents), in hyphens, spaces
and underscores, or in a plural; or, from six letters on, by one edit: a letter added, left out, replaced, or two
neighbours swapped, not at the first letter. Names that differ in digits are never alike: `class_1` and `class_2`,
`1` and `7` are names of two things.

Everything is a look-up of whole texts (Garbe's symmetric deletes: two texts are one edit apart when they agree
after leaving out a letter at the same place, when one is the other without a letter, or when a swap makes them
equal): 10,000 names beside 10,000 take about a second, however much they resemble each other.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass

MIN_EDITED, MAX_EDITED = 6, 32
"""Letters that a name must have for an edit to be looked for: in shorter ones it often makes another word (skirt,
shirt), and longer ones would take too much memory."""
_ACCENTS = re.compile("[\u0300-\u036f\u200c\u200d\ufe00-\ufe0f]")
"""Also the joiners and selectors that `core.characters` allows."""
_GAPS = re.compile(r"[\s_\-\u2010-\u2015]+")
_PLURALS = ("s", "es")
_MIN_STEM = 3


@dataclass(frozen=True)
class Compared:
    """new, known: the names of a batch, sorted; look_alike: (a new name, the one that it looks like), at most one
    for each new name, with a known name where there is one."""

    new: list[str]
    known: list[str]
    look_alike: list[tuple[str, str]]


def compare(batch: Collection[str], known: Collection[str]) -> Compared:
    """Sort the names of a batch by what a model knows.

    Args:
        batch: the batch's class names.
        known: the class names that the model's tasks have so far.
    """
    old = set(known)
    new = sorted(set(batch) - old)
    index = _Index()
    if new:
        for name in sorted(old):
            index.add(name)
    look_alike = []
    for name in new:
        found = index.find(name)
        if found is not None:
            look_alike.append((name, found))
        index.add(name)
    return Compared(new, sorted(set(batch) & old), look_alike)


def folded(name: str) -> str:
    """The name without what people write now this way and now that; two names with one fold are alike.

    Gaps between two digits, or before a first one, are kept as one space: `1-2` is not `12`, `-1` not `1`.
    """
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", name))
    plain = unicodedata.normalize("NFKC", plain).casefold().strip()
    return _GAPS.sub(lambda gap: _kept(plain, gap), plain) or name


def stems(fold: str) -> list[str]:
    """The fold, and what is left of it without the ending of a plural."""
    found = [fold]
    for ending in _PLURALS:
        stem = fold.removesuffix(ending)
        if stem != fold and len(stem) >= _MIN_STEM and stem[-1].isalpha():
            found.append(stem)
    return found


def singular(fold: str) -> str:
    """The one form of a fold that edits are looked for in: without the `s` of a plural."""
    return next((stem for stem in stems(fold)[1:] if len(stem) == len(fold) - 1), fold)


def _kept(text: str, gap: "re.Match[str]") -> str:
    before, after = text[: gap.start()][-1:], text[gap.end() :][:1]
    return " " if after.isdigit() and (not before or before.isdigit()) else ""


class _Index:
    """Names to look among; the first one added is the one found."""

    def __init__(self) -> None:
        self._stems: dict[str, str] = {}
        self._words: dict[str, str] = {}
        # Hashes in place of texts: forty of them for each name would take hundreds of megabytes.
        self._shorter: dict[int, str] = {}
        self._replaced: dict[int, str] = {}

    def add(self, name: str) -> None:
        fold = folded(name)
        for stem in stems(fold):
            self._stems.setdefault(stem, name)
        word = singular(fold)
        if MIN_EDITED <= len(word) <= MAX_EDITED:
            self._words.setdefault(word, name)
            for at, shorter in _without_a_letter(word):
                self._shorter.setdefault(hash(shorter), name)
                self._replaced.setdefault(hash((at, shorter)), name)

    def find(self, name: str) -> str | None:
        """A name that looks like this one, which has not been added."""
        fold = folded(name)
        for stem in stems(fold):
            if stem in self._stems:
                return self._stems[stem]
        word = singular(fold)
        return self._edited(word) if MIN_EDITED <= len(word) <= MAX_EDITED else None

    def _edited(self, word: str) -> str | None:
        found = self._shorter.get(hash(word))
        if found is not None:
            return found
        for at, shorter in _without_a_letter(word):
            swapped = word[: at - 1] + word[at] + word[at - 1] + word[at + 1 :]
            found = self._words.get(shorter) or self._replaced.get(hash((at, shorter)))
            if found is None and at > 1 and not word[at - 1].isdigit():
                found = self._words.get(swapped)
            if found is not None:
                return found
        return None


def _without_a_letter(word: str) -> Iterator[tuple[int, str]]:
    """(place, the word without what is there), for each place but the first and those of digits."""
    for at in range(1, len(word)):
        if not word[at].isdigit():
            yield at, word[:at] + word[at + 1 :]
