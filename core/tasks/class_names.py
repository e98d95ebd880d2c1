"""Comparison of a batch's class names with those of a model: new names, and likely typing errors.

Two names are alike if they differ only in case, in the form of their letters (width, accents), in
hyphens, spaces and underscores, or in a plural. Names of three letters or more are also alike if
they differ in a doubled letter (rabit, rabbit), or in two swapped neighbours (dgo, dog). Names of
six letters or more are alike if one edit separates them: a letter added, omitted or replaced, or
two neighbours swapped. The first letter is never swapped or edited. Names that differ in digits are
never alike: `class_1` and `class_2`, or `1` and `7`, name two things.

All comparisons are look-ups of whole texts (Garbe's symmetric deletes). Two texts are one edit
apart in three cases: they agree after omitting a letter at the same place, one is the other without
a letter, or a swap makes them equal. Comparing 10,000 names with 10,000 takes about a second,
however similar they are.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass

MIN_EDITED, MAX_EDITED = 6, 32
"""Range of lengths for which an edit is looked for.

In a shorter name an edit often makes another word (skirt, shirt); longer names would take too much
memory.
"""
MIN_SLIPPED = 3
"""Fewest letters of a name for which doubled letters and swapped neighbours are looked for."""
_DOUBLED = re.compile(r"([^\W\d_])\1+")
"""A letter that is written several times in a row."""
_ACCENTS = re.compile("[\u0300-\u036f\u200c\u200d\ufe00-\ufe0f]")
"""Combining accents, and the joiners and variation selectors that `perennial.characters` allows."""
_GAPS = re.compile(r"[\s_\-\u2010-\u2015]+")
_PLURALS = ("s", "es")
_MIN_STEM = 3


@dataclass(frozen=True)
class ComparedClassNames:
    """A batch's class names after comparing them with those that the model knows.

    Attributes:
        new: names that the model does not know, sorted.
        existing: names that the model knows, sorted.
        look_alike: pairs of a new name and a similar one, at most one pair for each new name; a
            known similar name takes precedence over a new one.
    """

    new: list[str]
    existing: list[str]
    look_alike: list[tuple[str, str]]


def compare_class_names(
    batch: Collection[str], model_classes: Collection[str]
) -> ComparedClassNames:
    """Compare the class names of a batch with those that a model knows.

    Args:
        batch: class names of the batch.
        model_classes: class names of the model's tasks so far.
    """
    known_names = set(model_classes)
    new = sorted(set(batch) - known_names)
    index = _SimilarNameIndex()
    if new:
        # Known names come first, since the first one wins; sorted, for one result each time.
        for name in sorted(known_names):
            index.add_name(name)
    look_alike = []
    for name in new:
        similar = index.find_first_similar_name(name)
        if similar is not None:
            look_alike.append((name, similar))
        index.add_name(name)
    return ComparedClassNames(new, sorted(set(batch) & known_names), look_alike)


def normalise_class_name_spelling(name: str) -> str:
    """Return a class name without differences in spelling that do not matter.

    Alike names have the same result. A gap between two digits, or before a leading digit, becomes
    one space: `1-2` is not `12`, and `-1` is not `1`.
    """
    # NFKD separates accents from their letters, and NFKC composes what is left again.
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", name))
    plain = unicodedata.normalize("NFKC", plain).casefold().strip()
    # A name of gaps or accents alone would become empty, and look like any other such name.
    return _GAPS.sub(lambda gap: _choose_word_gap_replacement(plain, gap), plain) or name


def list_possible_singular_names(fold: str) -> list[str]:
    """Return a normalised class name, and the name without each plural ending that it has."""
    forms = [fold]
    for ending in _PLURALS:
        stem = fold.removesuffix(ending)
        if stem != fold and len(stem) >= _MIN_STEM and stem[-1].isalpha():
            forms.append(stem)
    return forms


def strip_plural_s(fold: str) -> str:
    """Return a normalised name without its plural `s`, as edits of names are looked up."""
    return next(
        (stem for stem in list_possible_singular_names(fold)[1:] if len(stem) == len(fold) - 1),
        fold,
    )


def collapse_double_letters(word: str) -> str:
    """Return a normalised name with each doubled letter written once."""
    return _DOUBLED.sub(r"\1", word)


def _choose_word_gap_replacement(text: str, gap: "re.Match[str]") -> str:
    """Return what replaces a gap between words of a name: a space between digits, else nothing."""
    before, after = text[: gap.start()][-1:], text[gap.end() :][:1]
    return " " if after.isdigit() and (not before or before.isdigit()) else ""


class _SimilarNameIndex:
    """Index of class names that finds similar ones; the first one added wins."""

    def __init__(self) -> None:
        self._stems: dict[str, str] = {}
        self._words: dict[str, str] = {}
        self._undoubled: dict[str, str] = {}
        # Hashes instead of texts: forty texts for each name would take hundreds of megabytes.
        self._shorter: dict[int, str] = {}
        self._replaced: dict[int, str] = {}

    def add_name(self, name: str) -> None:
        """Add a class name to the index of similar names."""
        fold = normalise_class_name_spelling(name)
        for stem in list_possible_singular_names(fold):
            self._stems.setdefault(stem, name)
        word = strip_plural_s(fold)
        if MIN_SLIPPED <= len(word) <= MAX_EDITED:
            self._words.setdefault(word, name)
            self._undoubled.setdefault(collapse_double_letters(word), name)
        if MIN_EDITED <= len(word) <= MAX_EDITED:
            for at, shorter in _iterate_without_one_letter(word):
                self._shorter.setdefault(hash(shorter), name)
                self._replaced.setdefault(hash((at, shorter)), name)

    def find_first_similar_name(self, name: str) -> str | None:
        """Return an indexed class name that is similar to this one, or None."""
        fold = normalise_class_name_spelling(name)
        for stem in list_possible_singular_names(fold):
            if stem in self._stems:
                return self._stems[stem]
        word = strip_plural_s(fold)
        if not MIN_SLIPPED <= len(word) <= MAX_EDITED:
            return None
        undoubled = collapse_double_letters(word)
        if len(undoubled) >= MIN_SLIPPED and undoubled in self._undoubled:
            return self._undoubled[undoubled]
        if len(word) < MIN_EDITED:
            return self._find_name_with_swapped_letters(word)
        return self._find_name_by_edit(word)

    def _find_name_with_swapped_letters(self, word: str) -> str | None:
        """Return an indexed name that is this word with two adjacent letters swapped, or None."""
        swapped_words = (
            word[: at - 1] + word[at] + word[at - 1] + word[at + 1 :]
            # A swap at place 1 would change the first letter, and digits must not move.
            for at in range(2, len(word))
            if not (word[at].isdigit() or word[at - 1].isdigit())
        )
        return next(filter(None, map(self._words.get, swapped_words)), None)

    def _find_name_by_edit(self, word: str) -> str | None:
        """Return an indexed class name that is one edited letter away from this word, or None."""
        # Equal hashes of different texts only cause a needless warning.
        similar = self._shorter.get(hash(word))
        if similar is not None:
            return similar
        for at, shorter in _iterate_without_one_letter(word):
            swapped = word[: at - 1] + word[at] + word[at - 1] + word[at + 1 :]
            similar = self._words.get(shorter) or self._replaced.get(hash((at, shorter)))
            # A swap at place 1 would change the first letter, and digits must not move.
            if similar is None and at > 1 and not word[at - 1].isdigit():
                similar = self._words.get(swapped)
            if similar is not None:
                return similar
        return None


def _iterate_without_one_letter(word: str) -> Iterator[tuple[int, str]]:
    """Yield (place, word without the letter there), except for the first letter and digits."""
    for at in range(1, len(word)):
        if not word[at].isdigit():
            yield at, word[:at] + word[at + 1 :]
