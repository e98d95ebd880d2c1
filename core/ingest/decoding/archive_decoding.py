"""Decoding of one archive's images in worker processes: sources, ranges, and results.

Results are files of the scratch folder with one row per image: pixels, verdict, digest and, for a
rejected image, the reason. The decoders write them in place.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from core.ingest.decoding import decoder
from core.ingest.decoding.decoder import DIGEST_BYTES, REASON_BYTES, DecodingPlan
from core.ingest.decoding.pool import DecoderPool, DecodingTooSlow, Range, TooManyCrashingImages
from core.ingest.decoding.resizing import SquareResizingSettings
from core.ingest.inspect import open_file_read_only
from core.ingest.layout import IGNORED, ArchiveLayout
from core.ingest.limits import ArchiveLimits
from core.ingest.members import DEFLATED, ArchiveMembers, copy_unpacked_archive_member
from core.ingest.reader import ArchiveContents
from core.ingest.report import (
    ImageDecodingResults,
    build_refusal_of_crashing_images,
    build_refusal_of_slow_images,
)

CPU_S = 60
"""CPU seconds that a decoder may spend on a few images."""
_RANGE_IMAGES = 256
_RANGE_BYTES = 8 << 20
_IMAGES_PER_PROCESS = 1500
"""Least number of images per decoder; with fewer, starting another one does not pay."""


@dataclass(frozen=True)
class DecodingCallbacks:
    """Callbacks by which a long decoding run reports progress and learns that it should stop.

    Attributes:
        progress: called with images done and images in all.
        stop: called often; True ends the run with IngestStopped.
    """

    progress: Callable[[int, int], None] = lambda done, total: None
    stop: Callable[[], bool] = lambda: False


UNMONITORED = DecodingCallbacks()


@dataclass
class ArchiveDecodingRun:
    """One run that decodes an archive's images with a pool of processes, into result files.

    Attributes:
        scratch: folder for the result files.
        image_size, channels: size of the result.
        resizing: conversion of files to images.
        limits: bounds on the archive.
        pool: the decoders.
        monitor: gets the progress in images, and may end the run with IngestStopped.
    """

    scratch: Path
    image_size: int
    channels: int
    resizing: SquareResizingSettings
    limits: ArchiveLimits
    pool: DecoderPool
    monitor: DecodingCallbacks

    def decode_archive(self, source: Path, contents: ArchiveContents) -> ImageDecodingResults:
        """Decode every image of an uploaded archive; `source` is the file that its offsets refer
        to.

        Raises IngestStopped; Rejected if too many images kill decoders or decoding takes far too
        long.
        """
        return (
            self._decode_arrays(source, contents)
            if contents.arrays
            else self._decode_files(source, contents)
        )

    def _decode_files(self, source: Path, contents: ArchiveContents) -> ImageDecodingResults:
        members, layout = contents.members, contents.layout
        class_numbers = np.array(layout.of, np.int64)
        index = np.flatnonzero(class_numbers != IGNORED)
        columns = self.scratch / "columns"
        packed = _write_member_columns_for_decoder(columns, members, index)

        def get_row_name(i: int) -> str:
            return members.names[int(index[i])]

        plan = self._create_result_files_and_plan(
            source, len(index), str(columns.absolute()), 0, (0, 0, 0)
        )
        self._run_decoder_pool([(plan, _divide_rows_into_ranges(packed, 0))], get_row_name, layout)
        test = np.frombuffer(bytes(layout.test), np.uint8)[index].astype(np.bool_)
        return self._collect_decoding_results(get_row_name, class_numbers[index], test)

    def _decode_arrays(self, source: Path, contents: ArchiveContents) -> ImageDecodingResults:
        members, layout = contents.members, contents.layout
        jobs, names, first = [], [], 0
        for array in contents.arrays:
            at, begin = source, members.offsets[array.member] + array.begin
            # Decoders read rows in any order, which a deflated member does not allow.
            if members.methods[array.member] == DEFLATED:
                at, begin = self.scratch / f"array-{array.member}", array.begin
                _unpack_npz_array_member(source, members, array.member, at)
            height, width, depth = (*array.shape[1:], 1)[:3]
            image_bytes = height * width * depth
            # Row numbers continue across arrays, so a later array's origin is `first` rows before
            # its data.
            plan = self._create_result_files_and_plan(
                at, len(layout.of), "", begin - first * image_bytes, (height, width, depth)
            )
            jobs.append(
                (
                    plan,
                    _divide_rows_into_ranges(np.full(array.shape[0], image_bytes, np.int64), first),
                )
            )
            names.append((first, array.name))
            first += array.shape[0]

        def get_row_name(i: int) -> str:
            # The array of a row is the last one that begins at it or before.
            before, called = next(pair for pair in reversed(names) if i >= pair[0])
            return f"{called}[{i - before}]"

        self._run_decoder_pool(jobs, get_row_name, layout)
        test = np.frombuffer(bytes(layout.test), np.uint8).astype(np.bool_)
        return self._collect_decoding_results(get_row_name, np.array(layout.of, np.int64), test)

    def _create_result_files_and_plan(
        self, source: Path, count: int, columns: str, begin: int, shape: tuple[int, int, int]
    ) -> DecodingPlan:
        row_bytes = self.image_size * self.image_size * self.channels
        paths = {}
        for name, bytes_ in (
            ("pixels", row_bytes),
            ("verdicts", 1),
            ("digests", DIGEST_BYTES),
            ("reasons", REASON_BYTES),
        ):
            path = self.scratch / name
            # All arrays of an npz share these files.
            if not path.exists():
                with path.open("wb") as file:
                    # Sparse: rows take no room on the disk before they are decoded.
                    file.truncate(count * bytes_)
            paths[name] = str(path.absolute())
        return DecodingPlan(
            archive=str(source.absolute()),
            rows=count,
            columns=columns,
            begin=begin,
            height=shape[0],
            width=shape[1],
            depth=shape[2],
            image_size=self.image_size,
            channels=self.channels,
            max_pixels=self.limits.image_pixels,
            max_file_bytes=self.limits.max_image_file_bytes,
            memory_bytes=self.limits.decoder_memory_bytes,
            cpu_s=CPU_S,
            crop=self.resizing.crop,
            interpolation=self.resizing.interpolation,
            decoding=self.resizing.decoding,
            **paths,
        )

    def _run_decoder_pool(
        self,
        jobs: list[tuple[DecodingPlan, list[Range]]],
        names: Callable[[int], str],
        layout: ArchiveLayout,
    ) -> None:
        total = sum(b - a for _, ranges in jobs for a, b in ranges)
        before = 0
        self.pool.processes = min(self.pool.processes, max(1, total // _IMAGES_PER_PROCESS))
        for plan, ranges in jobs:
            count = sum(b - a for a, b in ranges)
            # An array without images has no data to map or read.
            if not count:
                continue

            # The default binds `before` now; the variable goes on to the next plan.
            def report_progress(done: int, _: int, before: int = before) -> None:
                self.monitor.progress(before + done, total)

            try:
                self.pool.decode_ranges(plan, ranges, report_progress, self.monitor.stop)
            except TooManyCrashingImages as error:
                raise build_refusal_of_crashing_images(self.pool.crashed, names, layout) from error
            except DecodingTooSlow as error:
                raise build_refusal_of_slow_images(self.pool.crashed, names, layout) from error
            before += count

    def _collect_decoding_results(
        self,
        names: Callable[[int], str],
        labels: npt.NDArray[np.int64],
        test: npt.NDArray[np.bool_],
    ) -> ImageDecodingResults:
        return ImageDecodingResults(
            names,
            labels,
            test,
            np.fromfile(self.scratch / "verdicts", np.uint8),
            np.fromfile(self.scratch / "digests", np.uint8).reshape(-1, DIGEST_BYTES),
            self.scratch / "reasons",
            self.scratch / "pixels",
        )


def _write_member_columns_for_decoder(
    path: Path, members: ArchiveMembers, index: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Write offsets, sizes and checksums of the rows `index` to a file for the decoders; return the
    packed sizes.
    """
    with path.open("wb") as file:
        for column in (members.offsets, members.packed, members.sizes, members.crcs):
            file.write(np.frombuffer(column, np.uint64)[index].tobytes())
        file.write(np.frombuffer(bytes(members.methods), np.uint8)[index].tobytes())
    return np.frombuffer(members.packed, np.uint64)[index].astype(np.int64)


def _divide_rows_into_ranges(packed: npt.NDArray[np.int64], first: int) -> list[Range]:
    """Divide image rows, numbered from `first`, into ranges of at most 256 images and about 8 MiB."""
    ranges: list[Range] = []
    start = range_bytes = 0
    for i, count in enumerate(packed.tolist()):
        if i > start and (i - start >= _RANGE_IMAGES or range_bytes + count > _RANGE_BYTES):
            ranges.append((first + start, first + i))
            start, range_bytes = i, 0
        range_bytes += count
    if start < len(packed):
        ranges.append((first + start, first + len(packed)))
    return ranges


def _unpack_npz_array_member(source: Path, members: ArchiveMembers, i: int, path: Path) -> None:
    out = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        with open_file_read_only(source) as fd:
            copy_unpacked_archive_member(fd, members, i, out)
    finally:
        os.close(out)


assert decoder.PENDING == 0  # truncated result files consist of zeros
