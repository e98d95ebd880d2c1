"""Digest of a batch's content: equal for the same images with the same labels in any container.

It is computed before the batch is accepted, without decoding. It covers each image's bytes, its
label, and whether it is in the archive's own test part. A zip, a tar and a folder packed by the
client have the same digest if these are equal.

- Names, order, dates and packing of files do not matter; the number of repetitions of an image
  does. Options of reading matter by their effect: labels, parts and the set of images. So does the
  policy for duplicates: where equal images are dropped, they count once.
- Files that are left out, because the layout or a label table gives them no class, do not matter,
  since nothing is learned from them. Images that will prove unreadable do, because that is known
  only after decoding, and is the same each time.
- Rows of an npz are pixels, not files: they differ from PNG files with the same content.
- A file that cannot be unpacked, or is larger than an image may be, is represented by its packed
  bytes.

SHA-256 is used throughout: with a checksum that allows collisions, a new batch could be mistaken
for a known one.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator

from core.ingest.layout import IGNORED
from core.ingest.limits import Limits
from core.ingest.members import Members, Unpackable
from core.ingest.reader import Contents, ImageArray
from core.protocol.report import DuplicatesPolicy

BLOCK = 1 << 20
_FORM = b"content 1\n"
"""Prefix of the hashed data; a different form would give different digests."""
Blocks = Callable[[int], Iterator[bytes]]
"""Function that yields a member's unpacked bytes in blocks, by its number; raises Unpackable."""


def digest_content(
    fd: int, contents: Contents, blocks: Blocks, limits: Limits, duplicates: DuplicatesPolicy = "keep"
) -> str:
    """Return the digest of a batch with known layout, 64 hexadecimal digits.

    Every image is read once, in the order of the archive. Memory: 100 bytes per image, and a block.

    Args:
        fd: descriptor of the archive.
        contents: its files with their layout.
        blocks: unpacks its members, with rising numbers.
        limits: bounds on the archive.
        duplicates: policy for equal images.
    """
    layout = contents.layout
    labels = [_sized(label.encode()) for label in layout.classes]
    images = (
        _array_rows(fd, contents, blocks)
        if contents.arrays
        else _files(fd, contents.members, layout.of, blocks, limits)
    )
    digests = []
    for row, image in images:
        part = b"test" if layout.test[row] else b"train"
        digests.append(hashlib.sha256(part + labels[layout.of[row]] + image).digest())
    whole = hashlib.sha256(_FORM)
    for digest in sorted(set(digests) if duplicates == "drop" else digests):
        whole.update(digest)
    return whole.hexdigest()


def _files(
    fd: int, members: Members, of: Iterable[int], blocks: Blocks, limits: Limits
) -> Iterator[tuple[int, bytes]]:
    """Yield row and digest of each image that has a class."""
    for i, label in enumerate(of):
        if label == IGNORED:
            continue
        if max(members.sizes[i], members.packed[i]) > limits.image_bytes:
            yield i, _digest_packed(fd, members, i)
            continue
        digest = hashlib.sha256(b"file")
        try:
            for block in blocks(i):
                digest.update(block)
        except Unpackable:
            yield i, _digest_packed(fd, members, i)
        else:
            yield i, digest.digest()


def _array_rows(fd: int, contents: Contents, blocks: Blocks) -> Iterator[tuple[int, bytes]]:
    """Yield row and digest of each image of the arrays.

    If an array cannot be unpacked, all its rows have the same digest.
    """
    first = 0
    for array in contents.arrays:
        count = array.shape[0]
        try:
            digests = list(_rows(array, blocks))
            if len(digests) != count:
                raise Unpackable
        except Unpackable:
            digests = [_digest_packed(fd, contents.members, array.member)] * count
        yield from enumerate(digests, first)
        first += count


def _rows(array: ImageArray, blocks: Blocks) -> Iterator[bytes]:
    height, width, depth = (*array.shape[1:], 1)[:3]
    image_bytes, kind = height * width * depth, f"pixels {height} {width} {depth}\n".encode()
    buffer, skip = bytearray(), array.begin
    for block in blocks(array.member):
        buffer += block
        if skip:
            dropped = min(skip, len(buffer))
            del buffer[:dropped]
            skip -= dropped
        whole = len(buffer) // image_bytes * image_bytes
        view = memoryview(buffer)
        digests = [
            hashlib.sha256(kind + view[at : at + image_bytes]).digest() for at in range(0, whole, image_bytes)
        ]
        view.release()
        del buffer[:whole]
        yield from digests


def _digest_packed(fd: int, members: Members, i: int) -> bytes:
    digest = hashlib.sha256(b"packed")
    at, end = members.offsets[i], members.offsets[i] + members.packed[i]
    while at < end and (block := os.pread(fd, min(BLOCK, end - at), at)):
        digest.update(block)
        at += len(block)
    return digest.digest()


def _sized(text: bytes) -> bytes:
    return b"%d:%b" % (len(text), text)
