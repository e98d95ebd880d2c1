"""The decoding process: `python -m core.ingest.decoding.decoder`, started and watched by `pool`.

It opens the archive itself, receives ranges of rows on standard input and writes pixels and
verdicts to files. Its only output is one short line per range. It imports neither torch nor the
settings. It runs under limits of memory and CPU time, so that an image that kills it costs one row
of the report.
"""

import hashlib
import json
import mmap
import os
import struct
import sys
import time
from array import array
from dataclasses import asdict, dataclass

from core.errors import ImageInvalid
from core.ingest import images
from core.ingest.decoding.resizing import SquareResizingSettings
from core.ingest.members import (
    ArchiveFileUnpackedSizeMismatch,
    DamagedArchiveMember,
    read_archive_member,
)

PENDING, GOOD, GOOD_FIRST_FRAME, BAD, LYING, GOOD_SMALL, GOOD_PROFILE_IGNORED = range(7)
SMALL_SIDE = 48
"""An image is small if its longer side has fewer pixels; not reported for several frames."""
REASON_BYTES = 192
DIGEST_BYTES = 16
CELL_BYTES = 16
"""Size of the progress cell: current row plus one (uint64), and CPU seconds so far (float64)."""
_IMAGES_PER_RENEWAL = 8
"""Number of images after which the allowance of CPU time is renewed."""


@dataclass(frozen=True)
class DecodingPlan:
    """Instructions for decoder processes: which images to decode and where to write them.

    Attributes:
        archive: file with the data.
        rows: number of images.
        columns: file of offsets, packed, sizes, crcs (uint64 [rows] each) and methods (uint8
            [rows]); empty for an array.
        begin: offset of an array's first image.
        height, width, depth: size of an array's images; 0 for files.
        image_size, channels: size of the result.
        max_pixels, max_file_bytes: limits of one image.
        memory_bytes, cpu_s: limits of the process.
        pixels, verdicts, digests, reasons: result files with one row per image.
        crop, interpolation, decoding: conversion of files to images (`resizing`).
    """

    archive: str
    rows: int
    columns: str
    begin: int
    height: int
    width: int
    depth: int
    image_size: int
    channels: int
    max_pixels: int
    max_file_bytes: int
    memory_bytes: int
    cpu_s: int
    pixels: str
    verdicts: str
    digests: str
    reasons: str
    crop: float | None
    interpolation: str | None
    decoding: int

    def to_json(self) -> str:
        """Return the instructions for a decoder process as one line of JSON."""
        return json.dumps(asdict(self))


class _RowRangeDecoder:
    def __init__(self, plan: DecodingPlan) -> None:
        self.plan = plan
        self.resizing = SquareResizingSettings(plan.crop, plan.interpolation, plan.decoding)
        self.row_bytes = plan.image_size * plan.image_size * plan.channels
        self.archive = os.open(plan.archive, os.O_RDONLY)
        self.columns = os.open(plan.columns, os.O_RDONLY) if plan.columns else -1
        self.pixels = os.open(plan.pixels, os.O_WRONLY)
        self.verdicts = os.open(plan.verdicts, os.O_WRONLY)
        self.digests = os.open(plan.digests, os.O_WRONLY)
        self.reasons = os.open(plan.reasons, os.O_WRONLY)

    def decode_files(self, start: int, stop: int, at: mmap.mmap) -> None:
        """Decode the image files of rows [start, stop).

        The cell `at` always has the current row, plus one, and the CPU seconds of this process at
        its start.
        """
        plan, count = self.plan, stop - start
        offsets, packed, sizes, crcs = (
            self._read_column_of_archive_member_list(i, start, count) for i in range(4)
        )
        methods = os.pread(self.columns, count, 32 * plan.rows + start)
        blank = bytes(self.row_bytes)
        rows, verdicts, digests = [], bytearray(count), []
        for i in range(count):
            struct.pack_into("<Qd", at, 0, start + i + 1, time.process_time())
            if i % _IMAGES_PER_RENEWAL == 0:
                images.extend_process_cpu_limit(plan.cpu_s)
            # A rejected image has a row as well, so that the others stay at their places.
            pixels, digest, verdict = blank, b"", GOOD
            try:
                # The archive's directory may declare any size; memory is limited by this one.
                if sizes[i] > plan.max_file_bytes or packed[i] > plan.max_file_bytes:
                    raise DamagedArchiveMember(
                        f"the file has {sizes[i]} bytes, more than {plan.max_file_bytes}"
                    )
                data = read_archive_member(
                    self.archive, offsets[i], packed[i], sizes[i], methods[i], crcs[i]
                )
                square = images.decode_square_image(
                    data, plan.image_size, plan.channels, plan.max_pixels, self.resizing
                )
                pixels = square.image.tobytes()
                digest = hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()
                verdict = GOOD_SMALL if square.longer_side < SMALL_SIDE else GOOD
                verdict = GOOD_FIRST_FRAME if square.has_frames else verdict
                verdict = GOOD_PROFILE_IGNORED if square.ignored_profile else verdict
            except (DamagedArchiveMember, ImageInvalid) as error:
                verdict = self._reject_image_row(start + i, str(error))
            # The limit of address space, see `limit_decoding_process_resources`.
            except MemoryError:
                verdict = self._reject_image_row(start + i, "decoding takes too much memory")
            except ArchiveFileUnpackedSizeMismatch:
                verdict = LYING
            rows.append(pixels)
            verdicts[i] = verdict
            digests.append(digest.ljust(DIGEST_BYTES, b"\0"))
        self._write_decoded_rows(start, b"".join(rows), bytes(verdicts), b"".join(digests))

    def convert_array_rows_to_squares(self, start: int, stop: int, at: mmap.mmap) -> None:
        """Convert the images of rows [start, stop) in an npz's array to squares."""
        # Imported here: loading NumPy takes half of the start, and decoders of files do without.
        import numpy as np

        plan, count = self.plan, stop - start
        struct.pack_into("<Q", at, 0, start + 1)
        image_bytes = plan.height * plan.width * plan.depth
        data = os.pread(self.archive, count * image_bytes, plan.begin + start * image_bytes)
        if len(data) != count * image_bytes:
            raise EOFError("the archive ends within the array")
        source = np.frombuffer(data, np.uint8).reshape(count, plan.height, plan.width, plan.depth)
        if (plan.height, plan.width, plan.depth) == (
            plan.image_size,
            plan.image_size,
            plan.channels,
        ):
            pixels = data
        else:
            size, channels = plan.image_size, plan.channels
            squares = (
                images.convert_to_square_array(image, size, channels, self.resizing)
                for image in source
            )
            pixels = b"".join(image.tobytes() for image in squares)
        digests = (
            hashlib.blake2b(data[i * image_bytes : (i + 1) * image_bytes], digest_size=DIGEST_BYTES)
            for i in range(count)
        )
        verdict = GOOD_SMALL if max(plan.height, plan.width) < SMALL_SIDE else GOOD
        self._write_decoded_rows(
            start, pixels, bytes([verdict]) * count, b"".join(d.digest() for d in digests)
        )

    def _read_column_of_archive_member_list(
        self, number: int, start: int, count: int
    ) -> "array[int]":
        values = array("Q")
        values.frombytes(os.pread(self.columns, 8 * count, 8 * (number * self.plan.rows + start)))
        return values

    def _reject_image_row(self, row: int, reason: str) -> int:
        text = reason.encode()[:REASON_BYTES].ljust(REASON_BYTES, b"\0")
        os.pwrite(self.reasons, text, row * REASON_BYTES)
        return BAD

    def _write_decoded_rows(
        self, start: int, pixels: bytes, verdicts: bytes, digests: bytes
    ) -> None:
        """Write decoded image rows, their verdicts last, so that a row with a verdict is complete."""
        _write_at_offset(self.pixels, pixels, start * self.row_bytes)
        _write_at_offset(self.digests, digests, start * DIGEST_BYTES)
        _write_at_offset(self.verdicts, verdicts, start)


def _write_at_offset(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        # `pwrite` may write fewer bytes than it is given.
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count


def main() -> None:
    """Run a decoder process: decode the images of each range that the pool requests on stdin.

    The first line is the path of the progress file. Each further line is a plan in JSON, which
    applies to the ranges after it, or a range of image numbers `start stop`, which is echoed to
    stdout when its images are decoded.
    """
    with open(sys.stdin.readline().rstrip("\n"), "r+b") as file:  # noqa: PTH123 - pathlib costs start-up
        cell = mmap.mmap(file.fileno(), CELL_BYTES)
    # The pool allows more time for the start than for an image, so it must know when that ends.
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    decoder: _RowRangeDecoder | None = None
    for message in sys.stdin:
        if message.startswith("{"):
            plan = DecodingPlan(**json.loads(message))
            # Once, because limits of a process can only be lowered.
            if decoder is None:
                # Discard the output of image decoders: a file may make them print megabytes.
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                images.limit_decoding_process_resources(plan.memory_bytes, plan.cpu_s)
            decoder = _RowRangeDecoder(plan)
            continue
        assert decoder is not None, "a range came before its plan"
        start, stop = map(int, message.split())
        images.extend_process_cpu_limit(decoder.plan.cpu_s)
        work = (
            decoder.decode_files if decoder.plan.columns else decoder.convert_array_rows_to_squares
        )
        work(start, stop, cell)
        # 0: no image is in work, so that a death now blames none.
        struct.pack_into("<Qd", cell, 0, 0, time.process_time())
        # The range itself says that it is done.
        sys.stdout.write(message)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
