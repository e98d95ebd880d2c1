"""Look-up of a batch's images by the names in tables: paths, file names, stems and URLs.

Every look-up uses one of a few dictionaries, each made when first needed, so that a hostile table
costs no more than its rows.
"""

import posixpath
import re
import unicodedata
from collections.abc import Iterable, Sequence
from urllib.parse import unquote

from perennial.reading_rules.entries import Part
from perennial.reading_rules.names import quote_name
from perennial.reading_rules.tables.values import parse_dataset_part_word

MISSING, AMBIGUOUS = -1, -2
# Bounds the look-ups that a single hostile name costs.
_MOST_SEGMENTS = 32
_SCHEME_START = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
_DRIVE = re.compile(r"[A-Za-z]:/")
_LOCAL_FILES = re.compile(r"[?&]d=([^&#]*)")
_UPLOAD_START = re.compile(r"[0-9a-f]{8}-")
"""Prefix that Label Studio adds to the name of an uploaded file."""


class ImageNameIndex:
    """Index of a batch's images that finds the image which a label table's name means."""

    def __init__(self, names: Sequence[str], among: Iterable[int]) -> None:
        """Index the images' names for look-ups.

        Args:
            names: paths of all files.
            among: numbers of the files that may be images.
        """
        self._names = names
        self._among = list(among)
        self._paths = {_to_nfc(names[i]): i for i in self._among}
        self._stems: dict[str, int] = {}
        self._bases: dict[str, int] = {}
        self._base_stems: dict[str, int] = {}
        self._tails: dict[str, int] = {}
        self._in_parts: dict[str, int] = {}
        self._in_small: ImageNameIndex | None = None

    def __len__(self) -> int:
        return len(self._among)

    def find_image_number(self, name: str, folder: str = "", part: Part = "") -> int:
        """Return the number of the image that a table's name means, MISSING or AMBIGUOUS.

        `folder` is that of the table. `part` is the table's part, which decides between images of
        several parts. Case matters only if several names differ by case.
        """
        number = self._find_image_by_exact_case(name, folder, part)
        if number != MISSING:
            return number
        # Made only when a name was not found, since it doubles the memory of the names.
        if self._in_small is None:
            self._in_small = _LowerCaseImageNameIndex(self._names, self._among)
        return self._in_small._find_image_by_exact_case(name.casefold(), folder.casefold(), part)

    def _find_image_by_exact_case(self, name: str, folder: str, part: Part) -> int:
        # Before the name is taken apart: most tables have plain paths.
        number = self._paths.get(f"{folder}/{name}" if folder else name, MISSING)
        if number >= 0:
            return number
        path, is_far = _parse_image_path(_to_nfc(name))
        if not path or path == ".":
            return MISSING
        number = self._find_image_by_path(path, folder)
        if number >= 0:
            return number
        if "/" not in path:
            return self._find_image_by_name(path, part)
        # A relative path names its folder for certain, so a file name alone must not decide.
        return (
            self._find_image_by_path_suffix(path, folder, part)
            if is_far
            else self._find_image_by_folder_and_name(path)
        )

    def get_name_of_image_folder(self, number: int) -> str:
        """Return the name of the folder that contains an image; "" at the top."""
        return self._names[number].rpartition("/")[0].rpartition("/")[2]

    def describe_lookup_failure(self, name: str, code: int) -> str:
        """Return why a table's name means no image of the batch, as the end of a sentence.

        `code` is MISSING or AMBIGUOUS.
        """
        if code == AMBIGUOUS:
            return (
                f"names {quote_name(name)}, which several images are called: write the path of the "
                f"one that is meant"
            )
        return f"names {quote_name(name)}, which is not in the batch"

    def _find_image_by_path(self, path: str, folder: str) -> int:
        """Find an image by the path that a table gives, from the table, from the folder above it,
        or from the top.
        """
        above = folder.rpartition("/")[0]
        for start in dict.fromkeys((folder, above, "")):
            full_path = f"{start}/{path}" if start else path
            if "./" in path or "//" in path:
                full_path = posixpath.normpath(full_path)
            number = self._paths.get(full_path, MISSING)
            if number < 0:
                number = self._find_image_by_name_without_ending(full_path)
            if number >= 0:
                return number
        return MISSING

    def _find_image_by_path_suffix(self, path: str, folder: str, part: Part) -> int:
        """Find an image by the longest matching suffix of an absolute path or URL."""
        segments = [segment for segment in path.split("/") if segment not in ("", ".", "..")][
            -_MOST_SEGMENTS:
        ]
        for at in range(len(segments)):
            end = "/".join(segments[at:])
            number = self._find_image_by_path(end, folder)
            if number < 0 and len(segments) - at == 2:
                number = self._find_image_by_folder_and_name(end)
            if number >= 0:
                return number
        return self._find_image_by_name(segments[-1], part) if segments else MISSING

    def _find_image_by_folder_and_name(self, path: str) -> int:
        """Find an image by its name and the folder that contains it."""
        if not self._tails:
            self._tails = _index_names_marking_ambiguous_ones(
                ("/".join(self._get_name(i).split("/")[-2:]), i) for i in self._among
            )
        return self._tails.get("/".join(path.split("/")[-2:]), MISSING)

    def _find_image_by_name(self, base: str, part: Part) -> int:
        """Find an image by its file name alone, with or without its ending."""
        if not self._bases:
            self._bases = _index_names_marking_ambiguous_ones(
                (self._get_name(i).rpartition("/")[2], i) for i in self._among
            )
        number = self._bases.get(base, MISSING)
        if number == MISSING:
            # Built only here, since most tables name files with their endings.
            if not self._base_stems:
                self._base_stems = _index_names_marking_ambiguous_ones(
                    (_strip_file_ending(self._get_name(i).rpartition("/")[2]), i)
                    for i in self._among
                )
            number = self._base_stems.get(base, MISSING)
        if number == AMBIGUOUS and part:
            number = self._find_image_in_dataset_part(base, part)
        if number == MISSING and _UPLOAD_START.match(base):
            number = self._find_image_by_name(base[9:], part)
        return number

    def _find_image_in_dataset_part(self, base: str, part: Part) -> int:
        if not self._in_parts:
            pairs = ((self._get_name(i), i) for i in self._among)
            self._in_parts = _index_names_marking_ambiguous_ones(
                (f"{part_of_folder}/{shape}", i)
                for name, i in pairs
                for part_of_folder in {_find_part_in_folder_name_prefixes(name)}
                if part_of_folder
                for shape in {name.rpartition("/")[2], _strip_file_ending(name.rpartition("/")[2])}
            )
        return self._in_parts.get(f"{part}/{base}", AMBIGUOUS)

    def _find_image_by_name_without_ending(self, path: str) -> int:
        if not self._stems:
            self._stems = _index_names_marking_ambiguous_ones(
                (_strip_file_ending(self._get_name(i)), i) for i in self._among
            )
        return self._stems.get(path, MISSING)

    def _get_name(self, number: int) -> str:
        return _to_nfc(self._names[number])


class _LowerCaseImageNameIndex(ImageNameIndex):
    """Index of a batch's image names in lower case, without those that differ only by case."""

    def __init__(self, names: Sequence[str], among: Sequence[int]) -> None:
        small = {i: _to_nfc(names[i]).casefold() for i in among}
        unique = _index_names_marking_ambiguous_ones((name, i) for i, name in small.items())
        super().__init__(names, [i for i, name in small.items() if unique[name] >= 0])
        self._small = small
        self._paths = {small[i]: i for i in self._among}

    def _get_name(self, number: int) -> str:
        return self._small[number]


def _index_names_marking_ambiguous_ones(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for key, number in pairs:
        numbers[key] = number if numbers.setdefault(key, number) == number else AMBIGUOUS
    return numbers


def _to_nfc(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _strip_file_ending(name: str) -> str:
    # A dot that begins a file's name is not that of an ending.
    dot = name.rfind(".")
    return name[:dot] if dot > name.rfind("/") + 1 else name


def _parse_image_path(name: str) -> tuple[str, bool]:
    """Parse an image's name in a table: return the path, with `/`, and True if it is absolute.

    The first folders of an absolute path do not identify a file of the batch.
    """
    # Label Studio names files of its own disk by a query, `?d=PATH`.
    local = _LOCAL_FILES.search(name)
    if local and "/local-files/" in name:
        return unquote(local[1]).strip("/"), True
    scheme = _SCHEME_START.match(name)
    if scheme:
        return unquote(re.split(r"[?#]", name[scheme.end() :], maxsplit=1)[0]).strip("/"), True
    path = name.replace("\\", "/")
    # Only paths of a server are quoted; a file's own name may have a percent sign.
    if "%" in path and path.startswith("/"):
        path = unquote(path)
    if _DRIVE.match(path):
        return path[3:], True
    return path.removeprefix("./").strip("/"), path.startswith("/")


def _find_part_in_folder_name_prefixes(name: str) -> Part:
    """Return the dataset part that a folder's name means: `train`, `train_images`, `val2017`."""
    for folder in name.split("/")[:-1]:
        part = parse_dataset_part_word(re.split(r"[^A-Za-z]", folder, maxsplit=1)[0])
        if part:
            return part
    return ""
