"""Words in folder names: parts of a batch, containers, dates, and numbered folders.

A word counts in any case, with numbers and with words such as `set` beside it: `Train`,
`training_set`, `train2017`, `trainset`. A container is a folder whose name says that it has files,
but nothing about their content: `images`, `data`, `uploads`.
"""

import re
from collections.abc import Collection, Iterable

TRAINING, TEST, VALIDATION = "training", "test", "validation"
PART_WORDS = {
    "train": TRAINING,
    "training": TRAINING,
    "test": TEST,
    "testing": TEST,
    "val": VALIDATION,
    "valid": VALIDATION,
    "validation": VALIDATION,
}
_FILES = "image img picture pic photo photograph data dataset file folder jpg jpeg png"
_CONTAINERS = frozenset(f"{_FILES} upload download raw all annotation label jpegimage dcim".split())
"""Single words, in the singular."""
_BESIDE = frozenset(f"{_FILES} set split part".split())
"""Words that may accompany that of a part, in the singular."""
_FILLING = frozenset(["my", "new", "copy", "of", "the", "untitled", "set", "split"])
"""Words without meaning beside that of a container."""
_PLAIN = re.compile(r"[A-Za-z0-9 _.()+-]+")
_TOKEN = re.compile(r"[a-z]+")
# `training` before `train`, which would leave `ingset` of `trainingset`.
_LONGEST_WORDS = sorted(PART_WORDS, key=len, reverse=True)
_MONTHS = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)"
)
_YEAR, _BETWEEN = r"(?:19|20)\d\d", r"[-_. ]?"
_MONTH, _DAY = r"(?:0[1-9]|1[0-2])", r"(?:0[1-9]|[12]\d|3[01])"
_DATE = re.compile(
    rf"{_YEAR}(?:{_BETWEEN}{_MONTH}(?:{_BETWEEN}{_DAY}(?:[-_T ]\d[-_:.\d]*)?)?)?"
    rf"|{_YEAR}{_BETWEEN}w(?:eek)?\d\d?"
    rf"|\d\d?[-_.]\d\d?[-_.](?:{_YEAR}|\d\d)"
    rf"|{_YEAR}{_BETWEEN}{_MONTHS}(?:{_BETWEEN}\d\d?)?"
    rf"|(?:\d\d?{_BETWEEN})?{_MONTHS}{_BETWEEN}{_YEAR}",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"(\D*)(\d+)(\D*)")
_OF_CAMERAS = re.compile(
    r"[1-9]\d\d(?:APPLE|ANDRO|CANON|_?CASIO|EOS\dD|GOPRO|KM\w{3}|LEICA|MEDIA|MSDCF|NCD\w{2}|NIKON|ND\w{3}|NZ\w{3}|OLYMP"
    r"|_?PANA|_?PENTX|PHOTO|RICOH|SIGMA|_FUJI|__DSC)",
    re.IGNORECASE,
)
"""Folders numbered by cameras and phones (DCF): `100APPLE`, `101CANON`."""
_CLASS_STEMS = frozenset(
    [
        "class",
        "cls",
        "label",
        "category",
        "cat",
        "species",
        "type",
        "kind",
        "breed",
        "id",
        "digit",
        "cluster",
    ]
)
"""Words before a number that most likely mark classes."""
# A single letter and a number may be a class, such as the WordNet id n01443537.
_SHORTEST_STEM = 2


def get_dataset_part_of_folder(folder: str) -> str | None:
    """Return TRAINING, TEST or VALIDATION if a folder is named like that dataset part, else None."""
    part_and_rest = _split_dataset_part_from_folder_name(folder)
    return part_and_rest[0] if part_and_rest is not None and not part_and_rest[1] else None


def find_dataset_parts_with_common_word(folders: Iterable[str]) -> dict[str, str]:
    """Return dataset parts by folder, for names that share a further word: `seg_train` and
    `seg_test`.

    The result is empty unless exactly one such word has a training part and another part.
    """
    by_rest: dict[tuple[str, ...], dict[str, str]] = {}
    for folder in folders:
        part_and_rest = _split_dataset_part_from_folder_name(folder)
        if part_and_rest is not None and part_and_rest[1]:
            by_rest.setdefault(part_and_rest[1], {})[folder] = part_and_rest[0]
    complete = [
        parts
        for parts in by_rest.values()
        if TRAINING in parts.values() and len(set(parts.values())) > 1
    ]
    return complete[0] if len(complete) == 1 and len(by_rest) == 1 else {}


def find_folders_combining_class_and_part(folders: Iterable[str]) -> list[str]:
    """Return folders whose names combine a class and a dataset part: `cat_train` and `cat_test`."""
    by_rest: dict[tuple[str, ...], dict[str, str]] = {}
    for folder in folders:
        part_and_rest = _split_dataset_part_from_folder_name(folder)
        if part_and_rest is not None and part_and_rest[1]:
            by_rest.setdefault(part_and_rest[1], {})[folder] = part_and_rest[0]
    return sorted(
        folder for parts in by_rest.values() if len(set(parts.values())) > 1 for folder in parts
    )


def is_generic_folder_name(folder: str) -> bool:
    """Return True if a folder's name is a word for files or dataset parts, not for a class."""
    if get_dataset_part_of_folder(folder) is not None or _OF_CAMERAS.fullmatch(folder.strip()):
        return True
    words = _split_folder_name_into_words(folder)
    meaning = [word for word in words if word not in _FILLING]
    # A name of fillings alone, such as `new`, may be that of a class.
    return bool(meaning) and all(
        word in _CONTAINERS or _find_dataset_part_named_by_word(word) is not None
        for word in meaning
    )


def is_date_folder_name(folder: str) -> bool:
    """Return True if a folder is named by a date.

    Examples are `2024`, `2024-05`, `20240517`, `17.05.2024`, `May 2024` and `2024-W05`.
    """
    return bool(_DATE.fullmatch(folder.strip()))


def are_dated_or_numbered_folder_names(folders: Collection[str]) -> bool:
    """Return True if folders are named like batches: by dates, or by a word and numbers (`week-01`
    …).
    """
    return bool(folders) and (
        all(is_date_folder_name(folder) for folder in folders)
        or are_folder_names_differing_by_number(folders)
    )


def are_folder_names_differing_by_number(folders: Collection[str]) -> bool:
    """Return True if several folders differ only in a number after a word that names no class."""
    stems = set()
    for folder in folders:
        match = _NUMBERED.fullmatch(folder.strip().casefold())
        if match is None:
            return False
        stems.add((match[1].strip(" _-.#"), match[3].strip(" _-.#")))
    if len(stems) != 1 or len(folders) < 2:
        return False
    word = "".join(stems.pop())
    return sum(map(str.isalpha, word)) >= _SHORTEST_STEM and word not in _CLASS_STEMS


def _split_dataset_part_from_folder_name(folder: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the only dataset part that a folder's name mentions and its other words, or None."""
    parts, other_words = [], []
    for word in _split_folder_name_into_words(folder):
        part = _find_dataset_part_named_by_word(word)
        if part is not None:
            parts.append(part)
        elif word not in _BESIDE:
            other_words.append(word)
    return (parts[0], tuple(other_words)) if len(parts) == 1 else None


def _find_dataset_part_named_by_word(word: str) -> str | None:
    """Return the dataset part that a word such as `train`, `trainset` or `trainingimage` means, or
    None.
    """
    for part_word in _LONGEST_WORDS:
        if word.startswith(part_word) and (word == part_word or word[len(part_word) :] in _BESIDE):
            return PART_WORDS[part_word]
    return None


def _split_folder_name_into_words(folder: str) -> list[str]:
    """Return the words of a folder's name in lower case and singular, without numbers.

    The result is empty for a name in other scripts.
    """
    name = folder.strip()
    # Letters beyond ASCII would divide a word into wrong ones.
    if not _PLAIN.fullmatch(name):
        return []
    return [_to_singular_if_known_word(word) for word in _TOKEN.findall(name.lower())]


def _to_singular_if_known_word(word: str) -> str:
    single = word.removesuffix("s")
    # Only of known words: `glass` and `bus` are in the singular.
    is_known = (
        single in _CONTAINERS
        or single in _BESIDE
        or single == "test"
        or _is_compound_dataset_part_word(single)
    )
    return single if is_known else word


def _is_compound_dataset_part_word(word: str) -> bool:
    return word not in PART_WORDS and _find_dataset_part_named_by_word(word) is not None
