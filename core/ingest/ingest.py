"""A whole batch: the archive's images decoded in parallel into one training and one held-out dataset.

The result is a pure function of the archive's bytes, the wanted image form and the seed. An image that
cannot be decoded is a row of the report; a batch with more than 5 % of such files, or with a class that has
no usable training image, is rejected.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from core.errors import LabelsInvalid
from core.ingest import decoder
from core.ingest.dataset import Images, write_dataset
from core.ingest.decoder import DIGEST_BYTES, REASON_BYTES, Plan
from core.ingest.inspect import Contents, examine, opened
from core.ingest.layout import IGNORED, Layout
from core.ingest.limits import Limits
from core.ingest.members import DEFLATED, Members, unpack_to
from core.ingest.names import show
from core.ingest.npz import NpyArray, rows
from core.ingest.pool import Pool, Range, Stopped, TooManyDeadly, default_processes
from core.ingest.report import Decoded, judge, too_many_deadly, warn_leak
from core.ingest.split import held_out_of

__all__ = ["Ingested", "Stopped", "ingest"]

CPU_S = 60
"""CPU seconds that a decoder may spend on a few images."""
_RANGE_IMAGES = 256
_RANGE_BYTES = 8 << 20
_IMAGES_PER_PROCESS = 1500
"""Starting another decoder pays only when it has this many images to itself."""
_COPY_BYTES = 16 << 20
_MAX_LISTED = 20


@dataclass(frozen=True)
class Ingested:
    """train, held_out: dataset files (the held-out one may have no images); classes: label → kept images;
    class_list: what the datasets' labels index; report: see `ingest`; warnings: sentences for a person."""

    train: Path
    held_out: Path
    classes: dict[str, int]
    class_list: list[str]
    n_train: int
    n_held_out: int
    report: dict[str, Any]
    warnings: list[str]


def ingest(
    archive: Path,
    media_type: str,
    out_dir: Path,
    image_size: int,
    channels: int,
    limits: Limits,
    *,
    allowed_classes: list[str] | None = None,
    held_out_share: float = 0.15,
    seed: int = 0,
    processes: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    stop: Callable[[], bool] = lambda: False,
) -> Ingested:
    """Decode `archive` to `out_dir`/train.safetensors and held_out.safetensors.

    media_type: as `sniff` returned it; image_size: S in pixels; channels: 1 or 3; allowed_classes: the only
    labels allowed, whose order the datasets' labels then index (else the batch's sorted labels);
    held_out_share: of each class, when the archive has no test part; processes: decoders, default cores − 1;
    progress(done, total) in images; stop(): True ends the ingest with Stopped.

    The report is {"rejected": [{"path", "reason"}], "rejected_count", "ignored", "duplicates", "notes"}.
    Raises Rejected (with the report in `extra`), ArchiveHostile, ArchiveTooLarge, ArchiveInvalid,
    LabelsInvalid; nothing is left in `out_dir` then.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="ingest-", dir=out_dir))
    train, held_out = out_dir / "train.safetensors", out_dir / "held_out.safetensors"
    pool = Pool(scratch, max(1, default_processes() if processes is None else processes))
    complete = False
    try:
        pool.start()  # it loads its libraries while the directory is read
        with opened(archive) as fd:
            unpacked = scratch / "unpacked"
            if media_type == "gzip":
                copy = os.open(unpacked, os.O_WRONLY | os.O_CREAT, 0o600)
                try:
                    contents = examine(fd, media_type, limits, copy)
                finally:
                    os.close(copy)
            else:
                contents = examine(fd, media_type, limits)
            source = unpacked if media_type == "gzip" else archive.absolute()
            classes = contents.layout.classes
            class_list = sorted(classes) if allowed_classes is None else list(allowed_classes)
            _check_allowed(classes, class_list)
            job = _Job(scratch, image_size, channels, limits, pool, progress, stop)
            decoded = (
                job.decode_arrays(fd, source, contents)
                if contents.npz
                else job.decode_files(source, contents)
            )
        report, good = judge(decoded, contents.layout)
        number_of = {label: number for number, label in enumerate(class_list)}
        numbers = np.array([number_of[label] for label in classes], np.int64)
        present = set(classes)
        labels = numbers[decoded.labels]
        warnings: list[str] = []
        if decoded.test.any():
            held = decoded.test
            warn_leak(decoded, good, warnings)
        else:
            held = np.zeros(len(labels), np.bool_)
            held[good] = held_out_of(labels[good], decoded.digests[good], held_out_share, seed)
        shape = (image_size, image_size, channels)
        for path, part in ((train, good & ~held), (held_out, good & held)):
            index = np.flatnonzero(part)
            write_dataset(path, labels[index], shape, _blocks(decoded.pixels, shape, index))
        kept = np.bincount(labels[good], minlength=len(class_list))
        without = [name for name, n in zip(class_list, np.bincount(labels[good & held], minlength=len(class_list)),
                                           strict=True) if not n and name in present]  # fmt: skip
        if without and (held_out_share > 0 or decoded.test.any()):
            warnings.append(f"No held-out image of {_listed(without)}: accuracy there is not measured.")
        complete = True
        return Ingested(
            train,
            held_out,
            {name: int(n) for name, n in zip(class_list, kept, strict=True) if name in present},
            class_list,
            int((good & ~held).sum()),
            int((good & held).sum()),
            report,
            warnings,
        )
    finally:
        pool.close()
        shutil.rmtree(scratch, ignore_errors=True)
        if not complete:
            train.unlink(missing_ok=True)
            held_out.unlink(missing_ok=True)


@dataclass
class _Job:
    """One decoding run: makes the result files, plans the ranges, runs the pool."""

    scratch: Path
    image_size: int
    channels: int
    limits: Limits
    pool: Pool
    progress: Callable[[int, int], None]
    stop: Callable[[], bool]

    def decode_files(self, source: Path, contents: Contents) -> Decoded:
        members, layout = contents.members, contents.layout
        of = np.array(layout.of, np.int64)
        index = np.flatnonzero(of != IGNORED)
        columns = self.scratch / "columns"
        packed = _write_columns(columns, members, index)

        def name(i: int) -> str:
            return members.names[int(index[i])]

        plan = self._plan(source, len(index), str(columns.absolute()), 0, (0, 0, 0))
        self._run([(plan, _ranges(packed, 0))], name, layout)
        test = np.frombuffer(bytes(layout.test), np.uint8)[index].astype(np.bool_)
        return self._result(name, of[index], test)

    def decode_arrays(self, fd: int, source: Path, contents: Contents) -> Decoded:
        npz, members = contents.npz, contents.members
        assert npz is not None
        layout = contents.layout
        total = len(layout.of)
        jobs = []
        for item, first in rows(npz):
            at, begin = source, members.offsets[item.index] + item.header_bytes
            if members.methods[item.index] == DEFLATED:
                at, begin = self.scratch / f"array-{first}", item.header_bytes
                _unpack(fd, members, item, at)
            height, width, depth = (*item.shape[1:], 1)[:3]
            one = height * width * depth
            # Rows count through both arrays: the second one begins `first` rows before its own data.
            plan = self._plan(at, total, "", begin - first * one, (height, width, depth))
            jobs.append((plan, _ranges(np.full(item.shape[0], one, np.int64), first)))
        split = npz.images.shape[0]

        def name(i: int) -> str:
            return f"images[{i}]" if i < split else f"test_images[{i - split}]"

        self._run(jobs, name, layout)
        test = np.frombuffer(bytes(layout.test), np.uint8).astype(np.bool_)
        return self._result(name, np.array(layout.of, np.int64), test)

    def _plan(self, source: Path, count: int, columns: str, begin: int, shape: tuple[int, int, int]) -> Plan:
        row_bytes = self.image_size * self.image_size * self.channels
        paths = {}
        for name, bytes_ in (
            ("pixels", row_bytes),
            ("verdicts", 1),
            ("digests", DIGEST_BYTES),
            ("reasons", REASON_BYTES),
        ):
            path = self.scratch / name
            if not path.exists():
                with path.open("wb") as file:
                    file.truncate(count * bytes_)
            paths[name] = str(path.absolute())
        return Plan(
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
            max_file_bytes=self.limits.image_bytes,
            memory_bytes=self.limits.decoder_bytes,
            cpu_s=CPU_S,
            **paths,
        )

    def _run(self, jobs: list[tuple[Plan, list[Range]]], names: Callable[[int], str], layout: Layout) -> None:
        total = sum(b - a for _, ranges in jobs for a, b in ranges)
        before = 0
        self.pool.processes = min(self.pool.processes, max(1, total // _IMAGES_PER_PROCESS))
        for plan, ranges in jobs:
            count = sum(b - a for a, b in ranges)
            if not count:
                continue

            def report(done: int, _: int, before: int = before) -> None:
                self.progress(before + done, total)

            try:
                self.pool.run(plan, ranges, report, self.stop)
            except TooManyDeadly as error:
                raise too_many_deadly(self.pool.deadly, names, layout) from error
            before += count

    def _result(
        self, names: Callable[[int], str], labels: npt.NDArray[np.int64], test: npt.NDArray[np.bool_]
    ) -> Decoded:
        return Decoded(
            names,
            labels,
            test,
            np.fromfile(self.scratch / "verdicts", np.uint8),
            np.fromfile(self.scratch / "digests", np.uint8).reshape(-1, DIGEST_BYTES),
            self.scratch / "reasons",
            self.scratch / "pixels",
        )


def _check_allowed(classes: list[str], class_list: list[str]) -> None:
    unknown = sorted(set(classes) - set(class_list))
    if unknown:
        raise LabelsInvalid(
            f"The model does not know {_listed(unknown)}; its classes are fixed: {_listed(class_list)}."
        )


def _listed(labels: list[str]) -> str:
    more = f" and {len(labels) - _MAX_LISTED} more" if len(labels) > _MAX_LISTED else ""
    return ", ".join(show(label) for label in labels[:_MAX_LISTED]) + more


def _write_columns(path: Path, members: Members, index: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Write the decoder's columns of the rows `index`; returns the packed bytes of each."""
    with path.open("wb") as file:
        for column in (members.offsets, members.packed, members.sizes, members.crcs):
            file.write(np.frombuffer(column, np.uint64)[index].tobytes())
        file.write(np.frombuffer(bytes(members.methods), np.uint8)[index].tobytes())
    return np.frombuffer(members.packed, np.uint64)[index].astype(np.int64)


def _ranges(packed: npt.NDArray[np.int64], first: int) -> list[Range]:
    """Cut rows, numbered from `first`, into ranges of at most 256 images and about 8 MiB."""
    ranges: list[Range] = []
    start = used = 0
    for i, count in enumerate(packed.tolist()):
        if i > start and (i - start >= _RANGE_IMAGES or used + count > _RANGE_BYTES):
            ranges.append((first + start, first + i))
            start, used = i, 0
        used += count
    if start < len(packed):
        ranges.append((first + start, first + len(packed)))
    return ranges


def _unpack(fd: int, members: Members, item: NpyArray, path: Path) -> None:
    i = item.index
    out = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        unpack_to(
            fd,
            members.offsets[i],
            members.packed[i],
            members.sizes[i],
            members.methods[i],
            members.names[i],
            out,
        )
    finally:
        os.close(out)


def _blocks(pixels: Path, shape: tuple[int, int, int], index: npt.NDArray[np.int64]) -> Iterator[Images]:
    one = int(np.prod(shape))
    if not index.size:
        return
    source = np.memmap(pixels, np.uint8, "r").reshape(-1, *shape)
    step = max(1, _COPY_BYTES // one)
    for at in range(0, len(index), step):
        yield source[index[at : at + step]]


assert decoder.PENDING == 0  # result files start as zeros
