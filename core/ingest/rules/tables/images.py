"""Images of a batch by the names that tables write: a path, a file name alone, a name without its ending, a URL.

Every look-up is one of a few dictionaries, made when it is first needed: a hostile table costs no more than its rows.
"""

import posixpath
import re
import unicodedata
from collections.abc import Iterable, Sequence
from urllib.parse import unquote

from core.ingest.rules.entries import Part
from core.ingest.rules.names import show
from core.ingest.rules.tables.values import part_of

MISSING, AMBIGUOUS = -1, -2
_MOST_SEGMENTS = 32
_SCHEME_START = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*")
_DRIVE = re.compile(r"[A-Za-z]:/")
_LOCAL_FILES = re.compile(r"[?&]d=([^&#]*)")
_UPLOAD_START = re.compile(r"[0-9a-f]{8}-")
"""Text that Label Studio writes before the name of a file that was uploaded."""


class ImageNames:
    """The names of a batch's images, and which image a table's name means."""

    def __init__(self, names: Sequence[str], among: Iterable[int]) -> None:
        """`among`: numbers of the files that may be images."""
        self._names = names
        self._among = list(among)
        self._paths = {_normal(names[i]): i for i in self._among}
        self._stems: dict[str, int] = {}
        self._bases: dict[str, int] = {}
        self._base_stems: dict[str, int] = {}
        self._tails: dict[str, int] = {}
        self._in_parts: dict[str, int] = {}
        self._in_small: ImageNames | None = None

    def __len__(self) -> int:
        return len(self._among)

    def find(self, name: str, folder: str = "", part: Part = "") -> int:
        """The number of the image that `name` means in a table of `folder`, MISSING or AMBIGUOUS.

        `part`: of the table, which decides between images of several parts. Case counts only where several names differ
        by it.
        """
        found = self._find(name, folder, part)
        if found != MISSING:
            return found
        if self._in_small is None:
            self._in_small = _Small(self._names, self._among)
        return self._in_small._find(name.casefold(), folder.casefold(), part)

    def _find(self, name: str, folder: str, part: Part) -> int:
        found = self._paths.get(f"{folder}/{name}" if folder else name, MISSING)
        if found >= 0:
            return found
        path, is_far = _path_in(_normal(name))
        if not path or path == ".":
            return MISSING
        found = self._near(path, folder)
        if found >= 0:
            return found
        if "/" not in path:
            return self._below(path, part)
        return self._far(path, folder, part) if is_far else self._tail(path)

    def folder_of(self, number: int) -> str:
        """The name of the folder that an image lies in; empty at the top."""
        return self._names[number].rpartition("/")[0].rpartition("/")[2]

    def reason(self, name: str, code: int) -> str:
        """Return why a name means no image, as the end of a sentence; `code`: MISSING or AMBIGUOUS."""
        if code == AMBIGUOUS:
            return f"names {show(name)}, which several images are called: write the path of the one that is meant"
        return f"names {show(name)}, which is not in the batch"

    def _near(self, path: str, folder: str) -> int:
        """By the path from the table, from the folder above it, and from the top."""
        above = folder.rpartition("/")[0]
        for start in dict.fromkeys((folder, above, "")):
            whole = f"{start}/{path}" if start else path
            if "./" in path or "//" in path:
                whole = posixpath.normpath(whole)
            found = self._paths.get(whole, MISSING)
            if found < 0:
                found = self._stem(whole)
            if found >= 0:
                return found
        return MISSING

    def _far(self, path: str, folder: str, part: Part) -> int:
        """By the longest end of an absolute path or URL."""
        segments = [segment for segment in path.split("/") if segment not in ("", ".", "..")][
            -_MOST_SEGMENTS:
        ]
        for at in range(len(segments)):
            end = "/".join(segments[at:])
            found = self._near(end, folder)
            if found < 0 and len(segments) - at == 2:
                found = self._tail(end)
            if found >= 0:
                return found
        return self._below(segments[-1], part) if segments else MISSING

    def _tail(self, path: str) -> int:
        """By the name and the folder that it lies in."""
        if not self._tails:
            self._tails = _unique(("/".join(self._name(i).split("/")[-2:]), i) for i in self._among)
        return self._tails.get("/".join(path.split("/")[-2:]), MISSING)

    def _below(self, base: str, part: Part) -> int:
        """By the file name alone, with its ending or without."""
        if not self._bases:
            self._bases = _unique((self._name(i).rpartition("/")[2], i) for i in self._among)
        found = self._bases.get(base, MISSING)
        if found == MISSING:
            if not self._base_stems:
                self._base_stems = _unique((_stem(self._name(i).rpartition("/")[2]), i) for i in self._among)
            found = self._base_stems.get(base, MISSING)
        if found == AMBIGUOUS and part:
            found = self._in_part(base, part)
        if found == MISSING and _UPLOAD_START.match(base):
            found = self._below(base[9:], part)
        return found

    def _in_part(self, base: str, part: Part) -> int:
        if not self._in_parts:
            pairs = ((self._name(i), i) for i in self._among)
            self._in_parts = _unique(
                (f"{part_of_folder}/{shape}", i)
                for name, i in pairs
                for part_of_folder in {_part_of_path(name)}
                if part_of_folder
                for shape in {name.rpartition("/")[2], _stem(name.rpartition("/")[2])}
            )
        return self._in_parts.get(f"{part}/{base}", AMBIGUOUS)

    def _stem(self, path: str) -> int:
        if not self._stems:
            self._stems = _unique((_stem(self._name(i)), i) for i in self._among)
        return self._stems.get(path, MISSING)

    def _name(self, number: int) -> str:
        return _normal(self._names[number])


class _Small(ImageNames):
    """The same names in small letters, without those that differ by case alone."""

    def __init__(self, names: Sequence[str], among: Sequence[int]) -> None:
        small = {i: _normal(names[i]).casefold() for i in among}
        unique = _unique((name, i) for i, name in small.items())
        super().__init__(names, [i for i, name in small.items() if unique[name] >= 0])
        self._small = small
        self._paths = {small[i]: i for i in self._among}

    def _name(self, number: int) -> str:
        return self._small[number]


def _unique(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for key, number in pairs:
        found[key] = number if found.setdefault(key, number) == number else AMBIGUOUS
    return found


def _normal(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _stem(name: str) -> str:
    dot = name.rfind(".")
    return name[:dot] if dot > name.rfind("/") + 1 else name


def _path_in(name: str) -> tuple[str, bool]:
    """The path that a name says, with `/`, and whether it is absolute: then its first folders say little."""
    local = _LOCAL_FILES.search(name)
    if local and "/local-files/" in name:
        return unquote(local[1]).strip("/"), True
    scheme = _SCHEME_START.match(name)
    if scheme:
        return unquote(re.split(r"[?#]", name[scheme.end() :], maxsplit=1)[0]).strip("/"), True
    path = name.replace("\\", "/")
    if "%" in path and path.startswith("/"):
        path = unquote(path)
    if _DRIVE.match(path):
        return path[3:], True
    return path.removeprefix("./").strip("/"), path.startswith("/")


def _part_of_path(name: str) -> Part:
    """The part that a folder of the path is called by: `train`, `train_images`, `val2017`."""
    for folder in name.split("/")[:-1]:
        found = part_of(re.split(r"[^A-Za-z]", folder, maxsplit=1)[0])
        if found:
            return found
    return ""
