"""The process that decodes: `python -m core.ingest.decoder`, started and watched by `pool`.

It opens the archive itself, takes ranges of rows from standard input and writes pixels and verdicts into
files; one short line per range is all that it says. It imports neither torch nor the settings, and runs
under limits of memory and CPU time: an image that kills it costs one row of the report.
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
from core.ingest.members import Damaged, SizeMismatch, read
from core.ingest.resizing import Resizing

PENDING, GOOD, GOOD_FIRST_FRAME, BAD, LYING, GOOD_SMALL, GOOD_PROFILE_IGNORED = range(7)
SMALL_SIDE = 48
"""Pixels: an image is small whose longer side has fewer. Of several frames it is not said."""
REASON_BYTES = 192
DIGEST_BYTES = 16
CELL_BYTES = 16
"""The row in work plus one (uint64), and CPU seconds spent so far (float64)."""
_IMAGES_PER_RENEWAL = 8
"""The allowance of CPU time begins anew after so many images."""


@dataclass(frozen=True)
class Plan:
    """What to decode and where to put it.

    archive: file that holds the data; rows: number of images; columns: file of offsets, packed, sizes,
    crcs (uint64 [rows] each) and methods (uint8 [rows]), empty for an array; height, width, depth: of the
    images of an array (0 for files), which begin at `begin`; crop, interpolation, decoding: how files become images
    (`resizing`); pixels, verdicts, digests, reasons: result files with one row per image.
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
        """One line of JSON, as the decoding process reads it."""
        return json.dumps(asdict(self))


class _Decoder:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.resizing = Resizing(plan.crop, plan.interpolation, plan.decoding)
        self.row_bytes = plan.image_size * plan.image_size * plan.channels
        self.archive = os.open(plan.archive, os.O_RDONLY)
        self.columns = os.open(plan.columns, os.O_RDONLY) if plan.columns else -1
        self.pixels = os.open(plan.pixels, os.O_WRONLY)
        self.verdicts = os.open(plan.verdicts, os.O_WRONLY)
        self.digests = os.open(plan.digests, os.O_WRONLY)
        self.reasons = os.open(plan.reasons, os.O_WRONLY)

    def files(self, start: int, stop: int, at: mmap.mmap) -> None:
        """Decode the files of rows [start, stop); `at` always names the row in work, plus one, and the CPU
        seconds of this process at its beginning."""
        plan, count = self.plan, stop - start
        offsets, packed, sizes, crcs = (self._column(i, start, count) for i in range(4))
        methods = os.pread(self.columns, count, 32 * plan.rows + start)
        blank = bytes(self.row_bytes)
        rows, verdicts, digests = [], bytearray(count), []
        for i in range(count):
            struct.pack_into("<Qd", at, 0, start + i + 1, time.process_time())
            if i % _IMAGES_PER_RENEWAL == 0:
                images.renew_cpu(plan.cpu_s)
            pixels, digest, verdict = blank, b"", GOOD
            try:
                if sizes[i] > plan.max_file_bytes or packed[i] > plan.max_file_bytes:
                    raise Damaged(f"the file has {sizes[i]} bytes, more than {plan.max_file_bytes}")
                data = read(self.archive, offsets[i], packed[i], sizes[i], methods[i], crcs[i])
                square = images.open_square(
                    data, plan.image_size, plan.channels, plan.max_pixels, self.resizing
                )
                pixels = square.image.tobytes()
                digest = hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()
                verdict = GOOD_SMALL if square.longer_side < SMALL_SIDE else GOOD
                verdict = GOOD_FIRST_FRAME if square.has_frames else verdict
                verdict = GOOD_PROFILE_IGNORED if square.ignored_profile else verdict
            except (Damaged, ImageInvalid) as error:
                verdict = self._reject(start + i, str(error))
            except MemoryError:
                verdict = self._reject(start + i, "decoding takes too much memory")
            except SizeMismatch:
                verdict = LYING
            rows.append(pixels)
            verdicts[i] = verdict
            digests.append(digest.ljust(DIGEST_BYTES, b"\0"))
        self._write(start, b"".join(rows), bytes(verdicts), b"".join(digests))

    def rows(self, start: int, stop: int, at: mmap.mmap) -> None:
        """Bring the images of rows [start, stop) of an array to the wanted form."""
        import numpy as np

        plan, count = self.plan, stop - start
        struct.pack_into("<Q", at, 0, start + 1)
        one = plan.height * plan.width * plan.depth
        data = os.pread(self.archive, count * one, plan.begin + start * one)
        if len(data) != count * one:
            raise EOFError("the archive ends within the array")
        source = np.frombuffer(data, np.uint8).reshape(count, plan.height, plan.width, plan.depth)
        if (plan.height, plan.width, plan.depth) == (plan.image_size, plan.image_size, plan.channels):
            pixels = data
        else:
            size, channels = plan.image_size, plan.channels
            made = (images.square_array(image, size, channels, self.resizing) for image in source)
            pixels = b"".join(image.tobytes() for image in made)
        digests = (
            hashlib.blake2b(data[i * one : (i + 1) * one], digest_size=DIGEST_BYTES) for i in range(count)
        )
        verdict = GOOD_SMALL if max(plan.height, plan.width) < SMALL_SIDE else GOOD
        self._write(start, pixels, bytes([verdict]) * count, b"".join(d.digest() for d in digests))

    def _column(self, number: int, start: int, count: int) -> "array[int]":
        values = array("Q")
        values.frombytes(os.pread(self.columns, 8 * count, 8 * (number * self.plan.rows + start)))
        return values

    def _reject(self, row: int, reason: str) -> int:
        text = reason.encode()[:REASON_BYTES].ljust(REASON_BYTES, b"\0")
        os.pwrite(self.reasons, text, row * REASON_BYTES)
        return BAD

    def _write(self, start: int, pixels: bytes, verdicts: bytes, digests: bytes) -> None:
        """Verdicts last: a row that has one is complete."""
        _write_at(self.pixels, pixels, start * self.row_bytes)
        _write_at(self.digests, digests, start * DIGEST_BYTES)
        _write_at(self.verdicts, verdicts, start)


def _write_at(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count


def main() -> None:
    """Read the path of the progress cell, then plans (JSON) and ranges `start stop`; end with the input."""
    with open(sys.stdin.readline().rstrip("\n"), "r+b") as file:  # noqa: PTH123 - pathlib costs start-up
        cell = mmap.mmap(file.fileno(), CELL_BYTES)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    decoder: _Decoder | None = None
    for line in sys.stdin:
        if line.startswith("{"):
            plan = Plan(**json.loads(line))
            if decoder is None:
                # What decoders of images print goes nowhere: a file may have it print megabytes.
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                images.harden_process(plan.memory_bytes, plan.cpu_s)
            decoder = _Decoder(plan)
            continue
        assert decoder is not None, "a range came before its plan"
        start, stop = map(int, line.split())
        images.renew_cpu(decoder.plan.cpu_s)
        work = decoder.files if decoder.plan.columns else decoder.rows
        work(start, stop, cell)
        struct.pack_into("<Qd", cell, 0, 0, time.process_time())
        sys.stdout.write(line)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
