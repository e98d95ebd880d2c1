"""WebDataset shards: tars in which files of one key are one sample, `000123.jpg` beside `000123.cls` or `.json`."""

import gzip
import json
import tarfile
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from perennial.pack import parts
from perennial.pack.errors import PackError
from perennial.pack.files import Root, Seen
from perennial.pack.images import Image, Images
from perennial.pack.labels import normal_label
from perennial.pack.names import IMAGE_SUFFIXES, is_junk, numbered
from perennial.pack.numbers import ClassNames
from perennial.pack.text import count, listed, show

SHARD_SUFFIXES = (".tar", ".tar.gz", ".tgz")
CLASS_NAMES = "classnames.txt"
_LABEL_KEYS = ("label", "cls", "class", "class_name")
_MAX_LABEL_BYTES = 1 << 20
_PIECE = 1 << 20


class Sample:
    """The files of one key: where its image lies, and its label."""

    __slots__ = ("bytes", "image", "key", "label", "offset")

    def __init__(self, key: str) -> None:
        self.key, self.image, self.label = key, "", None  # type: tuple[str, str, str | int | None]
        self.offset = self.bytes = 0


class ShardImages(Images):
    """The images of shards, in the order of the sorted shards' names and then of each shard's own."""

    def __init__(
        self,
        source: Path,
        *,
        names: Sequence[str] | None = None,
        allow_outside: bool = False,
    ) -> None:
        """Read the shards' directories and labels.

        names: of the classes, where labels are numbers; default the lines of a `classnames.txt` beside the shards,
        else the numbers themselves. Raises PackError.
        """
        folder = source if source.is_dir() else source.parent
        root = Root(folder, allow_outside)
        shards = shards_among(root.walk()) if source.is_dir() else [source.name]
        super().__init__(f"{count(len(shards), 'WebDataset shard')} in {show(source.name)}")
        self._shards = [root.path(shard) for shard in shards]
        self._seen = Seen()
        self._shard_of, self._offsets, self._sizes = array("l"), array("q"), array("q")
        self._without: list[str] = []
        classes = ClassNames(*_class_names(folder, names))
        part_of = parts.parts_of(shards)
        as_taken = parts.joined(part_of, show(source))
        for number, part in enumerate(part_of):
            self._seen.add(self._shards[number])
            for sample in samples_of(self._shards[number]):
                self._add(sample, number, as_taken[part], classes)
        if not self.rows:
            raise PackError(
                f"The shards in {show(source)} have no image ({', '.join(IMAGE_SUFFIXES[:4])} …) with a .cls or .json "
                "of the same key that holds its label."
            )
        if self._without:
            self.warnings.append(
                f"{count(len(self._without), 'sample')} without an image or a label left out: "
                f"{listed(self._without, 3)}."
            )

    def _add(self, sample: Sample, shard: int, part: str, classes: ClassNames) -> None:
        if not sample.image or sample.label is None:
            self._without.append(sample.key)
            return
        where = f"The sample {show(sample.key)} of {show(self._shards[shard])}"
        label = classes.label(sample.label, where)
        self.rows.append(Image(numbered(len(self.rows), sample.image), normal_label(label), part))
        self._shard_of.append(shard)
        self._offsets.append(sample.offset)
        self._sizes.append(sample.bytes)

    def sizes(self) -> "array[int]":
        """As the shards' headers say."""
        return self._sizes

    def contents(self, first: int) -> Iterator[Iterable[bytes]]:
        """Shard by shard, front to back."""
        at = first
        while at < len(self.rows):
            shard = self._shard_of[at]
            path = self._shards[shard]
            with _opened(path) as (plain, file):
                self._seen.check(shard, path, plain.fileno())
                while at < len(self.rows) and self._shard_of[at] == shard:
                    file.seek(self._offsets[at])
                    yield _pieces(file, self._sizes[at])
                    at += 1
                self._seen.check(shard, path, plain.fileno())


def shards_among(names: Iterable[str]) -> list[str]:
    """Those of a folder's files that end like shards."""
    return [name for name in names if name.endswith(SHARD_SUFFIXES) and not is_junk(name)]


def looks_like_shard(path: str) -> bool:
    """Whether a tar's first files have one key with an image and a label."""
    try:
        first = next(samples_of(path), None)
    except PackError:
        return False
    return first is not None and bool(first.image) and first.label is not None


def samples_of(path: str) -> Iterator[Sample]:
    """The samples of one shard. Raises PackError for a damaged one and for labels that cannot be read."""
    current: Sample | None = None
    try:
        with _opened(path) as (_, file), tarfile.open(fileobj=file, mode="r:") as shard:
            while (member := shard.next()) is not None:
                shard.members = []  # type: ignore[attr-defined]  # else it keeps every header: 1 kB a file
                if not member.isreg() or is_junk(member.name):
                    continue
                folder, slash, base = member.name.rpartition("/")
                stem, _, suffix = base.partition(".")
                key = folder + slash + stem
                if current is None or current.key != key:
                    if current is not None:
                        yield current
                    current = Sample(key)
                _take(current, member, f".{suffix.lower()}", shard, path)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise PackError(f"The shard {show(path)} is damaged, or no tar: {error}.") from error
    if current is not None:
        yield current


def _take(sample: Sample, member: tarfile.TarInfo, suffix: str, shard: tarfile.TarFile, path: str) -> None:
    """What a file says of its sample; of several images the first counts."""
    if suffix in IMAGE_SUFFIXES and not sample.image:
        sample.image, sample.offset, sample.bytes = member.name, member.offset_data, member.size
    elif suffix in (".cls", ".json") and (sample.label is None or suffix == ".cls"):
        file = shard.extractfile(member)
        if file is None or member.size > _MAX_LABEL_BYTES:
            raise PackError(
                f"{show(member.name)} of {show(path)} has {member.size:,} bytes; a label has fewer."
            )
        sample.label = _label(file.read(), suffix, f"{show(member.name)} of {show(path)}")


def _label(data: bytes, suffix: str, where: str) -> str | int | None:
    try:
        text = data.decode("utf-8").strip()
        found = json.loads(text) if suffix == ".json" else text
    except ValueError as error:
        raise PackError(f"{where} is no label: {error}.") from error
    if isinstance(found, dict):
        found = next((found[key] for key in _LABEL_KEYS if key in found), None)
    if found is None or isinstance(found, str) or type(found) is int:
        return found
    raise PackError(f"{where} has the label {show(str(found))}; it must be a number or a name.")


def _class_names(folder: Path, names: Sequence[str] | None) -> tuple[Sequence[str] | None, str]:
    if names is not None:
        return names, "names="
    for beside in (folder / CLASS_NAMES, folder.parent / CLASS_NAMES):
        if beside.is_file():
            return [line.strip() for line in beside.read_text("utf-8").splitlines() if line.strip()], show(
                beside
            )
    return None, ""


@contextmanager
def _opened(path: str) -> Iterator[tuple[IO[bytes], IO[bytes] | gzip.GzipFile]]:
    """A shard, unpacked where it is packed: (the file itself, its bytes as a tar)."""
    with Path(path).open("rb") as plain:
        packed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        if packed:
            with gzip.GzipFile(fileobj=plain) as unpacked:
                yield plain, unpacked
        else:
            yield plain, plain


def _pieces(file: IO[bytes] | gzip.GzipFile, size: int) -> Iterator[bytes]:
    while size > 0 and (piece := file.read(min(size, _PIECE))):
        size -= len(piece)
        yield piece
