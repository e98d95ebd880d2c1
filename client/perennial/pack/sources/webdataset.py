"""WebDataset shards: tars in which the files of one key form a sample, such as `000123.jpg` and
`.cls`.
"""

import gzip
import json
import tarfile
import zlib
from array import array
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO

from perennial.pack import parts, tar
from perennial.pack.bad import MAX_BAD, BadEntryCollector
from perennial.pack.errors import PackError
from perennial.pack.files import ListedFileStates, SourceFolder
from perennial.pack.images import BatchImageEntry, ImageSource
from perennial.pack.labels import convert_label_to_stripped_nfc
from perennial.pack.names import IMAGE_SUFFIXES, build_sortable_numbered_name, is_junk_path
from perennial.pack.sources.numbers import NumberedClassNames
from perennial.pack.text import format_count_with_noun, format_first_names, quote_name

SHARD_SUFFIXES = (".tar", ".tar.gz", ".tgz")
CLASS_NAMES = "classnames.txt"
_LABEL_KEYS = ("label", "cls", "class", "class_name")
_MAX_LABEL_BYTES = 1 << 20
_LOOKED_AT = 3
"""Number of samples examined to detect a shard, since a bad one may be among them."""
_PIECE = 1 << 20


class ShardSample:
    """A sample of a WebDataset shard: position of its image, and its label; `wrong`: why it is bad."""

    __slots__ = ("bytes", "image", "key", "label", "offset", "wrong")

    def __init__(self, key: str, wrong: str = "") -> None:
        self.key, self.image, self.label = key, "", None  # type: tuple[str, str, str | int | None]
        self.offset = self.bytes = 0
        self.wrong = wrong


class ShardImages(ImageSource):
    """Labelled images in WebDataset shards (tars), ordered by shard and position."""

    def __init__(
        self,
        source: Path,
        *,
        names: Sequence[str] | None = None,
        max_bad: float = MAX_BAD,
        allow_outside: bool = False,
    ) -> None:
        """Read the shards' directories and labels.

        Args:
            names: class names, if labels are numbers. Default: the lines of a `classnames.txt`
                beside the shards, else the numbers themselves.
            max_bad: largest allowed share of bad samples.

        Raises:
            PackError: the shards cannot be used, or too many samples are bad.
        """
        folder = source if source.is_dir() else source.parent
        root = SourceFolder(folder, allow_outside)
        shards = find_webdataset_shards(root.list_files()) if source.is_dir() else [source.name]
        super().__init__(
            f"{format_count_with_noun(len(shards), 'WebDataset shard')} in {quote_name(source.name)}"
        )
        self._shards = [root.resolve_named_path(shard) for shard in shards]
        self._seen = ListedFileStates()
        self._shard_of, self._offsets, self._sizes = array("l"), array("q"), array("q")
        self._without: list[str] = []
        self._bad = BadEntryCollector(self.origin, max_bad)
        classes = NumberedClassNames(*_read_class_names(folder, names))
        part_of = parts.find_dataset_parts_of_files(shards)
        as_taken = parts.map_dataset_parts_to_splits(part_of, quote_name(source))
        for number, part in enumerate(part_of):
            # Before reading, so that a change during the reading is noticed as well.
            self._seen.record_file_state(self._shards[number])
            for sample in read_shard_samples(self._shards[number]):
                self._add_sample_image(sample, number, as_taken[part], classes)
        self.warnings = self._bad.check_bad_share_and_build_warning(len(self.rows))
        if not self.rows:
            raise PackError(
                f"The shards in {quote_name(source)} have no image "
                f"({', '.join(IMAGE_SUFFIXES[:4])} …) with a .cls or .json "
                "of the same key that holds its label."
            )
        if self._without:
            self.warnings.append(
                f"{format_count_with_noun(len(self._without), 'sample')} without an image or a label left "
                f"out: {format_first_names(self._without, 3)}."
            )

    def _add_sample_image(
        self, sample: ShardSample, shard: int, part: str, classes: NumberedClassNames
    ) -> None:
        where = f"The sample {quote_name(sample.key)} of {quote_name(self._shards[shard])}"
        if sample.wrong:
            self._bad.record_bad_entry(where, sample.wrong)
            return
        if not sample.image or sample.label is None:
            self._without.append(sample.key)
            return
        try:
            label = classes.get_class_name(sample.label, where)
        except PackError as error:
            # The list of bad entries already names the place.
            self._bad.record_bad_entry(where, str(error).removeprefix(where).strip())
            return
        self.rows.append(
            BatchImageEntry(
                build_sortable_numbered_name(len(self.rows), sample.image),
                convert_label_to_stripped_nfc(label),
                part,
            )
        )
        self._shard_of.append(shard)
        self._offsets.append(sample.offset)
        self._sizes.append(sample.bytes)

    def collect_image_byte_sizes(self) -> "array[int]":
        """Return the sizes of the shards' images, as the tar headers give them."""
        return self._sizes

    def iterate_image_contents(self, first: int) -> Iterator[Iterable[bytes]]:
        """Yield the bytes of the images shard by shard, reading each front to back."""
        at = first
        # Forwards through each shard: seeking back in a gzip file reads it from its beginning.
        while at < len(self.rows):
            shard = self._shard_of[at]
            path = self._shards[shard]
            with _open_shard(path) as (plain, file):
                self._seen.require_file_unchanged(shard, path, plain.fileno())
                while at < len(self.rows) and self._shard_of[at] == shard:
                    file.seek(self._offsets[at])
                    yield _read_member_pieces(file, self._sizes[at])
                    at += 1
                self._seen.require_file_unchanged(shard, path, plain.fileno())


def find_webdataset_shards(names: Iterable[str]) -> list[str]:
    """Return the WebDataset shards among a folder's files, by name."""
    return [name for name in names if name.endswith(SHARD_SUFFIXES) and not is_junk_path(name)]


def looks_like_webdataset_shard(path: str) -> bool:
    """Return True if a tar is a WebDataset shard: a first sample has an image and a label."""
    try:
        first = list(islice(read_shard_samples(path), _LOOKED_AT))
    except PackError:
        return False
    return any(sample.image and sample.label is not None for sample in first)


def read_shard_samples(path: str) -> Iterator[ShardSample]:
    """Yield the samples of a WebDataset shard, and a bad sample for each damaged header.

    Concatenated tars in one file are read one after another.

    Raises:
        PackError: the shard is damaged.
    """
    try:
        with _open_shard(path) as (_, file):
            at: int | None = 0
            while at is not None:
                file.seek(at)
                end = yield from _read_tar_samples(file, path)
                at = yield from _find_next_tar_reporting_damage(file, end, path)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise PackError(f"The shard {quote_name(path)} is damaged, or no tar: {error}.") from error


_Bytes = IO[bytes] | gzip.GzipFile


def _read_tar_samples(file: _Bytes, path: str) -> Generator[ShardSample, None, int]:
    """Yield the WebDataset samples of the tar at the current position; return its end."""
    current: ShardSample | None = None
    # Never compressed here: `_open_shard` has unpacked it already.
    with tarfile.open(fileobj=file, mode="r:") as shard:
        while (member := shard.next()) is not None:
            shard.members = []  # type: ignore[attr-defined]  # else it keeps every header: 1 kB a file
            if not member.isreg() or is_junk_path(member.name):
                continue
            folder, slash, base = member.name.rpartition("/")
            # As in WebDataset, the key ends at the first dot of the base name.
            stem, _, suffix = base.partition(".")
            key = folder + slash + stem
            # The files of a sample follow one another, so another key ends the sample.
            if current is None or current.key != key:
                if current is not None:
                    yield current
                current = ShardSample(key)
            _add_tar_member_to_shard_sample(current, member, f".{suffix.lower()}", shard, path)
        end = int(shard.offset)
    if current is not None:
        yield current
    return end


def _find_next_tar_reporting_damage(
    file: _Bytes, end: int, path: str
) -> Generator[ShardSample, None, int | None]:
    """Find the start of a further tar concatenated after `end`; None if there is none.

    `tarfile` also stops at a damaged header. Reading then continues at the next valid one, and a
    bad sample reports the gap.
    """
    file.seek(end)
    at, damaged = end, False
    while block := file.read(_PIECE):
        # Tars end with padding, often much of it, so zeros are passed in whole pieces.
        if block.count(0) == len(block):
            at += len(block)
            continue
        for begin in range(0, len(block), tar.BLOCK):
            candidate = block[begin : begin + tar.BLOCK]
            if tar.is_tar_header(candidate):
                return at + begin
            if candidate.count(0) != len(candidate) and not damaged:
                damaged = True
                yield ShardSample(
                    f"at byte {at + begin}",
                    f"has a damaged header, or is no part of a tar of {quote_name(path)}",
                )
        at += len(block)
    return None


def _add_tar_member_to_shard_sample(
    sample: ShardSample, member: tarfile.TarInfo, suffix: str, shard: tarfile.TarFile, path: str
) -> None:
    """Add a tar member to its WebDataset sample as image or label; the first image counts."""
    if suffix in IMAGE_SUFFIXES and not sample.image:
        sample.image, sample.offset, sample.bytes = member.name, member.offset_data, member.size
    # .cls is the label alone; .json may hold much else.
    elif suffix in (".cls", ".json") and (sample.label is None or suffix == ".cls"):
        file = shard.extractfile(member)
        if file is None or member.size > _MAX_LABEL_BYTES:
            sample.wrong = f"has a label of {member.size:,} bytes, {quote_name(member.name)}"
            return
        try:
            sample.label = _parse_webdataset_label(file.read(), suffix, quote_name(member.name))
        except PackError as error:
            sample.wrong = str(error)


def _parse_webdataset_label(data: bytes, suffix: str, where: str) -> str | int | None:
    """Parse the label in a `.cls` or `.json` member of a WebDataset shard. Raises PackError."""
    try:
        text = data.decode("utf-8-sig").strip()
        value = json.loads(text) if suffix == ".json" else text
    except (ValueError, RecursionError) as error:
        raise PackError(f"has {where}, which is no label: {error}") from error
    if isinstance(value, dict):
        value = next((value[key] for key in _LABEL_KEYS if key in value), None)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or isinstance(value, str) or type(value) is int:
        return value
    several = " (multi-label)" if isinstance(value, list) else ""
    raise PackError(
        f"has the label {quote_name(str(value))}{several} in {where}; it must be one number or name"
    )


def _read_class_names(
    folder: Path, names: Sequence[str] | None
) -> tuple[Sequence[str] | None, str]:
    if names is not None:
        return names, "names="
    for names_file in (folder / CLASS_NAMES, folder.parent / CLASS_NAMES):
        if names_file.is_file():
            return [
                name_line.strip()
                for name_line in names_file.read_text("utf-8").splitlines()
                if name_line.strip()
            ], quote_name(names_file)
    return None, ""


@contextmanager
def _open_shard(path: str) -> Iterator[tuple[IO[bytes], IO[bytes] | gzip.GzipFile]]:
    """Open a WebDataset shard, decompressing it if necessary; yield the file and its tar bytes."""
    with Path(path).open("rb") as plain:
        # By content, because names such as .tar do not always tell the truth.
        packed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        if packed:
            with gzip.GzipFile(fileobj=plain) as unpacked:
                yield plain, unpacked
        else:
            yield plain, plain


def _read_member_pieces(file: IO[bytes] | gzip.GzipFile, size: int) -> Iterator[bytes]:
    while size > 0 and (piece := file.read(min(size, _PIECE))):
        size -= len(piece)
        yield piece
