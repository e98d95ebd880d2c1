"""A digest of the images and labels of a batch, which is the same in any container.

It is made before the batch is accepted, without decoding: of each image its bytes, its label, and
whether it is of the archive's own test part. A zip, a tar and a folder that the client packs have
one digest where these are the same.

- Names, order, dates and packing of files do not count; how often an image is there does. Options
  of reading count by what they change: labels, parts and which images there are. So does the policy
  of duplicates: where equal images are dropped, they count once.
- Files that are left out, since the layout or a label table gives them no class, do not count:
  nothing is learned of them. Images that will turn out unreadable do: that is known only once they
  are decoded, and is the same each time.
- Rows of an npz are pixels and no files: they are other images than the PNG files that show the
  same.
- A file that cannot be unpacked, or is larger than any image may be, counts by its packed bytes.

SHA-256 throughout: a checksum that can be made to collide would call a new batch a known one.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator

from core.contract.reports.report import DuplicatesPolicy
from core.ingest.layout import IGNORED
from core.ingest.limits import ArchiveLimits
from core.ingest.members import ArchiveMembers, ArchiveMemberUnpackError
from core.ingest.reader import ArchiveContents, NpzImageArrayLocation

BLOCK = 1 << 20
_FORM = b"content 1\n"
"""Begins what is hashed: another form would have other digests."""
Blocks = Callable[[int], Iterator[bytes]]
"""The unpacked bytes of a member by its number, in blocks; raises ArchiveMemberUnpackError."""


def digest_batch_content(
    fd: int,
    contents: ArchiveContents,
    blocks: Blocks,
    limits: ArchiveLimits,
    duplicates: DuplicatesPolicy = "keep",
) -> str:
    """Compute a digest of a batch's images, classes and parts, 64 hex digits.

    Every image is read once, in the order of the archive. Memory: 100 bytes per image, and a block.

    Args:
        fd: of the archive.
        blocks: unpacks its members; numbers rise.
    """
    layout = contents.layout
    # With its length, so that no other label and image give the same bytes together.
    labels = [_prefix_with_length(label.encode()) for label in layout.classes]
    images = (
        _iterate_digests_of_array_images(fd, contents, blocks)
        if contents.arrays
        else _iterate_image_file_digests(fd, contents.members, layout.of, blocks, limits)
    )
    image_digests = []
    for row, image in images:
        part = b"test" if layout.test[row] else b"train"
        image_digests.append(hashlib.sha256(part + labels[layout.of[row]] + image).digest())
    batch_digest = hashlib.sha256(_FORM)
    # Sorted, because the order of files does not count.
    for image_digest in sorted(set(image_digests) if duplicates == "drop" else image_digests):
        batch_digest.update(image_digest)
    return batch_digest.hexdigest()


def _iterate_image_file_digests(
    fd: int, members: ArchiveMembers, labels: Iterable[int], blocks: Blocks, limits: ArchiveLimits
) -> Iterator[tuple[int, bytes]]:
    """Yield row and digest of each image that has a class."""
    for i, label in enumerate(labels):
        if label == IGNORED:
            continue
        # Not unpacked, because such a file costs more than any image and is rejected anyway.
        if max(members.sizes[i], members.packed[i]) > limits.max_image_file_bytes:
            yield i, _digest_packed_bytes_of_member(fd, members, i)
            continue
        # The prefix keeps digests of files, pixels and packed bytes apart.
        digest = hashlib.sha256(b"file")
        try:
            for block in blocks(i):
                digest.update(block)
        # A damaged file can still be compared with others, by its packed bytes.
        except ArchiveMemberUnpackError:
            yield i, _digest_packed_bytes_of_member(fd, members, i)
        else:
            yield i, digest.digest()


def _iterate_digests_of_array_images(
    fd: int, contents: ArchiveContents, blocks: Blocks
) -> Iterator[tuple[int, bytes]]:
    """Yield row and digest of each image in an npz's arrays; an array that cannot be unpacked has
    one digest.
    """
    first = 0
    for array in contents.arrays:
        count = array.shape[0]
        try:
            # Completed before the first is used: an array that ends early counts by its packed
            # bytes.
            digests = list(_digest_array_rows(array, blocks))
            if len(digests) != count:
                raise ArchiveMemberUnpackError
        except ArchiveMemberUnpackError:
            digests = [_digest_packed_bytes_of_member(fd, contents.members, array.member)] * count
        yield from enumerate(digests, first)
        first += count


def _digest_array_rows(array: NpzImageArrayLocation, blocks: Blocks) -> Iterator[bytes]:
    height, width, depth = (*array.shape[1:], 1)[:3]
    # With the shape, since the same bytes are another image in another shape.
    image_bytes, kind = height * width * depth, f"pixels {height} {width} {depth}\n".encode()
    buffer, skip = bytearray(), array.begin
    for block in blocks(array.member):
        buffer += block
        # The pixels of an array follow its npy header.
        if skip:
            dropped = min(skip, len(buffer))
            del buffer[:dropped]
            skip -= dropped
        complete_bytes = len(buffer) // image_bytes * image_bytes
        view = memoryview(buffer)
        digests = [
            hashlib.sha256(kind + view[at : at + image_bytes]).digest()
            for at in range(0, complete_bytes, image_bytes)
        ]
        # A bytearray cannot shrink while there is a view of it.
        view.release()
        del buffer[:complete_bytes]
        yield from digests


def _digest_packed_bytes_of_member(fd: int, members: ArchiveMembers, i: int) -> bytes:
    digest = hashlib.sha256(b"packed")
    at, end = members.offsets[i], members.offsets[i] + members.packed[i]
    while at < end and (block := os.pread(fd, min(BLOCK, end - at), at)):
        digest.update(block)
        at += len(block)
    return digest.digest()


def _prefix_with_length(text: bytes) -> bytes:
    return b"%d:%b" % (len(text), text)
