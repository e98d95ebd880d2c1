"""Ingest of a whole batch: images decoded in parallel into a training and a held-out dataset.

The result is a pure function of the archive's bytes, the image form and the seed. An image that
cannot be decoded is a row of the report; a batch with more than 5 % of such files, or with a class
that has no usable training image, is rejected.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from core.contract.jobs.trial import LEAST_FOR_SELECTION
from core.contract.reports.data_report import DataReport
from core.contract.reports.report import BatchReport, DuplicatesPolicy
from core.errors import LabelsInvalid
from core.ingest.dataset import Images, Labels, memory_map_image_dataset, write_image_dataset_file
from core.ingest.decoding.archive_decoding import UNMONITORED, ArchiveDecodingRun, DecodingCallbacks
from core.ingest.decoding.pool import DecoderPool, IngestStopped, choose_decoder_process_count
from core.ingest.decoding.resizing import USUAL, SquareResizingSettings
from core.ingest.findings import contradictions
from core.ingest.findings.batch_data import (
    build_class_balance_report,
    find_near_duplicates_in_batch,
)
from core.ingest.findings.equal_images import find_duplicates_and_label_conflicts
from core.ingest.findings.traces import ImageFingerprints, write_image_fingerprints
from core.ingest.inspect import check_archive_size, open_file_read_only
from core.ingest.layout import USUAL as USUAL_READING
from core.ingest.layout import BatchReadingSettings
from core.ingest.limits import ArchiveLimits
from core.ingest.names import quote_name
from core.ingest.readers.registry import get_upload_reader_by_format_name
from core.ingest.report import (
    ImageDecodingResults,
    add_held_out_in_training_warning,
    build_decoded_batch_report_and_mask,
)
from core.statistics import near_duplicates

__all__ = [
    "DecodingCallbacks",
    "IngestOptions",
    "IngestStopped",
    "IngestedBatch",
    "decode_archive_to_datasets",
]

_COPY_BYTES = 16 << 20
_MAX_LISTED = 20
TRAIN, HELD_OUT = "train.safetensors", "held_out.safetensors"
SELECTION = "selection.safetensors"
TRACES = "traces.safetensors"


@dataclass(frozen=True)
class IngestedBatch:
    """Files and counts of a decoded batch: datasets, fingerprints and report.

    Attributes:
        train, held_out: dataset files; the held-out one may have no images.
        selection: dataset file of the images set aside for trials; None without any.
        traces: file of `core.ingest.findings.traces`.
        classes: label → retained images.
        class_list: labels that the datasets' numbers index.
        report: see `decode_archive_to_datasets`.
        warnings: sentences for a person.
    """

    train: Path
    held_out: Path
    traces: Path
    classes: dict[str, int]
    class_list: list[str]
    n_train: int
    n_held_out: int
    report: BatchReport
    warnings: list[str]
    selection: Path | None = None
    n_selection: int = 0


@dataclass(frozen=True)
class IngestOptions:
    """Options for turning a batch into datasets: image size, held-out share and seed.

    Attributes:
        image_size: S in pixels.
        channels: 1 or 3.
        limits: bounds on the archive.
        resizing: how images of other sizes are resized.
        reading: how the archive's files become classes.
        allowed_classes: the only labels allowed, in the order that the datasets' labels index;
            None: the batch's sorted labels.
        held_out_share: share of each class that is held out if the archive has no test part.
        selection_share: share of each class's training images that is set aside for trials; 0: none.
        seed: key of the draw of held-out images.
        duplicates: treatment of equal images, before any are held out.
        processes: number of decoders; None: cores − 1.
    """

    image_size: int
    channels: int
    limits: ArchiveLimits
    resizing: SquareResizingSettings = USUAL
    reading: BatchReadingSettings = USUAL_READING
    allowed_classes: Sequence[str] | None = None
    held_out_share: float = 0.15
    selection_share: float = 0.0
    seed: int = 0
    duplicates: DuplicatesPolicy = "keep"
    processes: int | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (S, S, C) of one image in the datasets."""
        return self.image_size, self.image_size, self.channels

    def list_dataset_labels(self, classes: Iterable[str]) -> list[str]:
        """Return the class labels that a dataset's label numbers mean, for a batch with these
        classes.
        """
        return sorted(classes) if self.allowed_classes is None else list(self.allowed_classes)


def decode_archive_to_datasets(
    archive: Path,
    media_type: str,
    out_dir: Path,
    options: IngestOptions,
    monitor: DecodingCallbacks = UNMONITORED,
) -> IngestedBatch:
    """Decode an uploaded archive to the datasets train.safetensors and held_out.safetensors in
    `out_dir`.

    Args:
        media_type: as `detect_upload_format` returned it.
        monitor: reports progress in images; may end the ingest with IngestStopped.

    Returns:
        The ingested batch. Its report is a `BatchReport` with the conflicts within the batch.

    Raises:
        Rejected: the batch is unusable; `extra` has the report.
        ArchiveHostile, ArchiveTooLarge, ArchiveInvalid, LabelsInvalid: the archive cannot be read.
        IngestStopped: `monitor.stop` returned True. No dataset file is left in `out_dir` after any error.
    """
    limits, reading = options.limits, options.reading
    out_dir.mkdir(parents=True, exist_ok=True)
    # In `out_dir`, whose disk has room for the same pixels.
    scratch = Path(tempfile.mkdtemp(prefix="ingest-", dir=out_dir))
    processes = choose_decoder_process_count() if options.processes is None else options.processes
    pool = DecoderPool(scratch, max(1, processes))
    complete = False
    try:
        # Starts early: decoders load their libraries while the directory is read
        pool.start_decoder()
        with open_file_read_only(archive) as fd:
            check_archive_size(fd, limits)
            reader = get_upload_reader_by_format_name(media_type).with_fallback_name_encoding(
                reading.options.names
            )
            listed, source = reader.open_archive(fd, archive.absolute(), limits, scratch)
            contents = listed.with_assigned_classes(limits, reading)
        contents.layout.replace_former_class_names(reading.former_names())
        classes = contents.layout.classes
        # Before decoding, which may take hours that a wrong label would waste.
        _require_classes_in_fixed_list(classes, options.list_dataset_labels(classes))
        decoding = ArchiveDecodingRun(
            scratch,
            options.image_size,
            options.channels,
            options.resizing,
            limits,
            pool,
            monitor,
        )
        decoded = decoding.decode_archive(source, contents)
        report, good = build_decoded_batch_report_and_mask(
            decoded, contents.layout, options.duplicates, reading.options.max_bad
        )
        batch = _split_and_write_datasets(out_dir, options, decoded, good, report, classes)
        complete = True
        return batch
    finally:
        # First, because decoders write to the folder that is removed.
        pool.kill_decoders()
        shutil.rmtree(scratch, ignore_errors=True)
        if not complete:
            for name in (TRAIN, HELD_OUT, SELECTION, TRACES):
                (out_dir / name).unlink(missing_ok=True)


def _split_and_write_datasets(
    out_dir: Path,
    options: IngestOptions,
    decoded: ImageDecodingResults,
    good: npt.NDArray[np.bool_],
    report: BatchReport,
    classes: list[str],
) -> IngestedBatch:
    """Write the training and held-out datasets of the images marked `good`."""
    shape, class_list = options.shape, options.list_dataset_labels(classes)
    number_of = {label: number for number, label in enumerate(class_list)}
    numbers = np.array([number_of[label] for label in classes], np.int64)
    # A model's fixed classes may include some that this batch lacks.
    present = set(classes)
    labels = numbers[decoded.labels]
    warnings: list[str] = []
    if decoded.test.any():
        add_held_out_in_training_warning(decoded, good, warnings)
    is_held_out = _choose_held_out_images(
        decoded, good, labels, options.held_out_share, options.seed
    )
    is_selected = draw_trial_selection_images(
        labels, decoded.digests, good & ~is_held_out, options.selection_share, options.seed
    )
    train, held_out, selection = out_dir / TRAIN, out_dir / HELD_OUT, out_dir / SELECTION
    is_trained = good & ~is_held_out & ~is_selected
    for path, part in (
        (train, is_trained),
        (held_out, good & is_held_out),
        *([(selection, is_selected)] if is_selected.any() else []),
    ):
        index = np.flatnonzero(part)
        write_image_dataset_file(
            path, labels[index], shape, _iterate_image_blocks(decoded.pixels, shape, index)
        )
    images_per_class = np.bincount(labels[good], minlength=len(class_list))
    of_held = np.bincount(labels[good & is_held_out], minlength=len(class_list))
    measured = dict(zip(class_list, of_held.tolist(), strict=True))
    without = [name for name in class_list if not measured[name] and name in present]
    counts = {
        name: int(n)
        for name, n in zip(class_list, images_per_class, strict=True)
        if name in present
    }
    # Images set aside for trials are in no list that a person sees.
    report["data"] = _write_fingerprints_and_make_data_report(
        out_dir, decoded, good & ~is_selected, is_held_out, class_list, report
    )
    # After the data report, which adds the conflicts to the report.
    conflict = contradictions.describe_label_conflicts(report)
    if conflict:
        warnings.insert(0, conflict)
    report["data"] |= build_class_balance_report(
        {name: {"images": n, "held_out": measured[name]} for name, n in counts.items()}
    )
    # With a share of 0, nothing was meant to be measured.
    if without and (options.held_out_share > 0 or decoded.test.any()):
        warnings.append(
            f"No held-out image of {_format_labels(without)}: accuracy there is not measured."
        )
    return IngestedBatch(
        train,
        held_out,
        out_dir / TRACES,
        counts,
        class_list,
        int(is_trained.sum()),
        int((good & is_held_out).sum()),
        report,
        warnings,
        selection if is_selected.any() else None,
        int(is_selected.sum()),
    )


def _choose_held_out_images(
    decoded: ImageDecodingResults,
    good: npt.NDArray[np.bool_],
    labels: npt.NDArray[np.int64],
    share: float,
    seed: int,
) -> npt.NDArray[np.bool_]:
    """Return a mask [N] of held-out images: the archive's own test part, or a share of each class."""
    if decoded.test.any():
        return decoded.test
    is_held_out = np.zeros(len(labels), np.bool_)
    is_held_out[good] = draw_held_out_rows(labels[good], decoded.digests[good], share, seed)
    return is_held_out


def draw_held_out_rows(
    labels: npt.NDArray[np.int64], digests: npt.NDArray[np.uint8], share: float, seed: int
) -> npt.NDArray[np.bool_]:
    """Draw a share of the rows as held-out, stratified by label; return a mask [N].

    Within each class, the images are ordered by a keyed hash of their bytes, and the first ones are
    held out. This is a pure function of the archive and the seed, independent of any library's
    random generator.

    Args:
        labels: int64 [N].
        digests: uint8 [N, 16], of the images.
        share: share in [0, 1).
        seed: key of the hash.

    A class of n ≥ 2 images gives max(1, round(share·n)) of them, at most n − 1. A class of one
    image gives none; share 0 gives none.
    """
    chosen = np.zeros(len(labels), np.bool_)
    if share <= 0:
        return chosen
    key = seed.to_bytes(16, "little", signed=True)
    order = np.argsort(labels, kind="stable")
    bounds = np.flatnonzero(np.diff(labels[order])) + 1
    for rows in np.split(order, bounds):
        # Adding a half rounds it up; round() would go to the even number.
        held_out = min(max(1, int(share * len(rows) + 0.5)), len(rows) - 1)
        if held_out > 0:
            # The row decides between equal images, whose digests are equal.
            ranked = sorted(
                (hashlib.blake2b(digests[row].tobytes(), digest_size=8, key=key).digest(), int(row))
                for row in rows
            )
            chosen[[row for _, row in ranked[:held_out]]] = True
    return chosen


def draw_trial_selection_images(
    labels: npt.NDArray[np.int64],
    digests: npt.NDArray[np.uint8],
    candidates: npt.NDArray[np.bool_],
    share: float,
    seed: int,
) -> npt.NDArray[np.bool_]:
    """Draw images that are set aside to compare trials and never learned; return a mask [N].

    Each class of `LEAST_FOR_SELECTION` candidates or more gives max(1, round(share · n)) of them,
    drawn by a keyed hash of their bytes. All images with the bytes of a drawn one are set aside, so
    that none of them is learned.

    Args:
        labels: int64 [N].
        digests: uint8 [N, 16], of the images.
        candidates: bool [N]: the training images.
        share: share in [0, 1).
        seed: key of the hash.
    """
    counts = np.bincount(labels[candidates], minlength=int(labels.max(initial=-1)) + 1)
    rows = np.flatnonzero(candidates & (counts[labels] >= LEAST_FOR_SELECTION))
    is_selected = np.zeros(len(labels), np.bool_)
    if share <= 0 or not len(rows):
        return is_selected
    # Another key than that of the held-out images, which are gone from the front of that order.
    drawn = draw_held_out_rows(labels[rows], digests[rows], share, seed + 1)
    keys = {digests[row].tobytes() for row in rows[drawn]}
    same = [row for row in np.flatnonzero(candidates) if digests[row].tobytes() in keys]
    is_selected[same] = True
    # A class whose images are all equal would have none left to learn from.
    remaining_counts = np.bincount(labels[candidates & ~is_selected], minlength=len(counts))
    is_selected &= remaining_counts[labels] > 0
    return is_selected


def _write_fingerprints_and_make_data_report(
    out_dir: Path,
    decoded: ImageDecodingResults,
    good: npt.NDArray[np.bool_],
    is_held_out: npt.NDArray[np.bool_],
    class_list: list[str],
    report: BatchReport,
) -> DataReport:
    """Find near duplicates in the datasets in `out_dir`, and write the fingerprints of their
    images.

    Contradictions within the batch become fields of `report`.
    """
    # The order of the datasets: the training part first.
    rows = np.concatenate([np.flatnonzero(good & ~is_held_out), np.flatnonzero(good & is_held_out)])
    parts = [memory_map_image_dataset(out_dir / part) for part in (TRAIN, HELD_OUT)]
    train, held_out = (near_duplicates.hash_images_perceptually(images) for images, _ in parts)
    pixels = np.concatenate(
        [contradictions.digest_pixels_of_each_image(images) for images, _ in parts]
    )
    labels = np.concatenate([part_labels for _, part_labels in parts]).astype(np.int64)
    names = [decoded.names(row) for row in rows.tolist()]
    traces = ImageFingerprints(train, held_out, names, pixels, labels, class_list)
    write_image_fingerprints(out_dir / TRACES, traces)
    # Without classes and parts: bytes that are repeated anywhere are no near duplicates.
    nothing = np.zeros(len(rows), np.int64)
    same = find_duplicates_and_label_conflicts(
        decoded.digests[rows], nothing, nothing.astype(np.bool_), np.ones(len(rows), np.bool_)
    )
    duplicates = find_near_duplicates_in_batch(traces, same.repeated)
    report.update(
        contradictions.find_label_contradictions_in_batch(
            traces, make_reader_of_image_pixels(parts), rows
        ).to_report()
    )
    return {"conflicts": report["conflicts_count"], "near_duplicates": duplicates}


def make_reader_of_image_pixels(parts: Sequence[tuple[Images, Labels]]) -> Callable[[int], Images]:
    """Return a function that maps an image's row among the fingerprints to its pixels.

    Args:
        parts: images and labels of both parts; rows count through the first, then the second.
    """
    (train, _), (held_out, _) = parts

    def read_image_pixels(row: int) -> Images:
        picture: Images = train[row] if row < len(train) else held_out[row - len(train)]
        return picture

    return read_image_pixels


def _require_classes_in_fixed_list(classes: list[str], class_list: list[str]) -> None:
    unknown = sorted(set(classes) - set(class_list))
    if unknown:
        raise LabelsInvalid(
            f"The model does not know {_format_labels(unknown)}; its classes are fixed: "
            f"{_format_labels(class_list)}."
        )


def _format_labels(labels: list[str]) -> str:
    more = f" and {len(labels) - _MAX_LISTED} more" if len(labels) > _MAX_LISTED else ""
    return ", ".join(quote_name(label) for label in labels[:_MAX_LISTED]) + more


def _iterate_image_blocks(
    pixels: Path, shape: tuple[int, int, int], index: npt.NDArray[np.int64]
) -> Iterator[Images]:
    image_bytes = int(np.prod(shape))
    # An empty file cannot be mapped.
    if not index.size:
        return
    source = np.memmap(pixels, np.uint8, "r").reshape(-1, *shape)
    # In pieces, because indexing copies and a part may be larger than the memory.
    step = max(1, _COPY_BYTES // image_bytes)
    for at in range(0, len(index), step):
        yield source[index[at : at + step]]
