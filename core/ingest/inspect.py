"""Before a batch is accepted: what its container's directory says.

Counts, sizes, names, layout and labels; no image is decoded. The same walk is repeated by `ingest`, which
gets everything that it needs to find an image again.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from core.errors import ArchiveHostile, ArchiveInvalid, ArchiveTooLarge, UnsupportedType
from core.ingest import tar_stream, zip_directory
from core.ingest.layout import Layout, arrange
from core.ingest.limits import MAX_CSV_BYTES, Limits
from core.ingest.members import Damaged, LyingSize, Members, read
from core.ingest.names import show
from core.ingest.npz import Npz, read_npz


@dataclass(frozen=True)
class Directory:
    """What an archive claims to hold.

    classes: label → images, sorted by label; n_train, n_test: images of the archive's own parts;
    ignored: files left out; layout: `split`, `folders`, `csv` or `npz`; notes: remarks for a person;
    ignored_files: the first files left out, {"path", "reason"}; warnings: what a person should look at.
    """

    classes: dict[str, int]
    n_train: int
    n_test: int
    ignored: int
    media_type: str
    layout: str
    has_test: bool
    notes: tuple[str, ...] = ()
    ignored_files: tuple[dict[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contents:
    """The checked files of an archive; with `copy_to` offsets of a gzip refer to the unpacked copy."""

    members: Members
    layout: Layout
    npz: Npz | None


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A read-only descriptor of a local file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def inspect(path: Path, media_type: str, limits: Limits) -> Directory:
    """Read the container's directory of the archive at `path`.

    `media_type`: `zip`, `tar`, `gzip` or `npz`, as `sniff` returned it. Raises ArchiveHostile,
    ArchiveTooLarge, ArchiveInvalid and LabelsInvalid; messages name the entry. Memory is bounded by the
    limits: about 300 bytes per entry.
    """
    with opened(path) as fd:
        contents = examine(fd, media_type, limits)
    layout = contents.layout
    classes, n_train, n_test = layout.counts()
    return Directory(
        classes,
        n_train,
        n_test,
        layout.ignored,
        media_type,
        layout.kind,
        n_test > 0,
        tuple(layout.notes),
        tuple(layout.ignored_files),
        tuple(layout.warnings),
    )


def examine(fd: int, media_type: str, limits: Limits, copy_to: int | None = None) -> Contents:
    """The checked contents of the archive at `fd`; raises as `inspect` does.

    `copy_to`: descriptor that receives the unpacked tar of a gzip, so that its files can be read again.
    """
    packed = os.fstat(fd).st_size
    if not packed:
        raise ArchiveInvalid("The body is empty; send an archive of images.")
    if packed > limits.body_bytes:
        raise ArchiveTooLarge(f"The archive has {packed} bytes; at most {limits.body_bytes} are accepted.")
    if media_type in ("tar", "gzip"):
        kept: dict[int, bytes] = {}
        source = (
            tar_stream.FileSource(fd) if media_type == "tar" else tar_stream.GzipSource(fd, limits, copy_to)
        )
        members = tar_stream.scan(source, limits, kept.__setitem__)
        return Contents(members, arrange(members.names, limits, kept.__getitem__), None)
    if media_type not in ("zip", "npz"):
        raise UnsupportedType(f"{show(media_type)} is no archive that can be read.")
    members = zip_directory.scan(fd, limits, check_ratio=media_type == "zip")
    if media_type == "npz":
        npz = read_npz(fd, members, limits)
        return Contents(members, npz.layout, npz)
    return Contents(members, arrange(members.names, limits, lambda i: _small_file(fd, members, i)), None)


def _small_file(fd: int, members: Members, i: int) -> bytes:
    name = members.names[i]
    if members.sizes[i] > MAX_CSV_BYTES:
        raise ArchiveTooLarge(f"The entry {show(name)} is larger than {MAX_CSV_BYTES} bytes.")
    try:
        return read(
            fd, members.offsets[i], members.packed[i], members.sizes[i], members.methods[i], members.crcs[i]
        )
    except LyingSize as error:
        raise ArchiveHostile(f"The entry {show(name)} does not unpack to its declared size.") from error
    except Damaged as error:
        raise ArchiveInvalid(f"The entry {show(name)} is unreadable: {error}.") from error
