"""Inspection of a batch's container before the batch is accepted.

It reads counts, sizes, names, layout and labels, the kinds of images, and a digest of them, but
decodes no image. `ingest` repeats the same walk, which gives it everything to find an image again.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from core.contract.reports.report import DuplicatesPolicy, EntryReason, FileReason, StoredReading
from core.errors import ArchiveInvalid, ArchiveTooLarge
from core.ingest.content import digest_batch_content
from core.ingest.first_look import (
    NOTHING,
    SampleImageCheckResult,
    check_first_bytes_of_sample_images,
)
from core.ingest.layout import USUAL, BatchReadingSettings, build_stored_reading_options
from core.ingest.limits import ArchiveLimits
from core.ingest.readers.registry import get_upload_reader_by_format_name


@dataclass(frozen=True)
class ArchiveSummary:
    """Contents that an archive's directory declares: files, classes and sizes, before any image is
    decoded.

    Attributes:
        classes: label → images, sorted by label.
        n_train, n_test: images of the archive's own parts.
        ignored: number of files left out.
        media_type: name of the archive's reader.
        layout: `split`, `folders`, `csv`, `table` or `npz`.
        has_test: whether the archive has a test part.
        notes: remarks for a person.
        ignored_files: the first files left out.
        warnings: sentences to check before the batch is learned.
        encoded: whether the images are files, which decoding may find damaged.
        reading: options with which the batch is read again.
        bad_entries: the first entries of a label table that were left out.
        bad_entries_count: number of these entries.
        first_look: findings in the images themselves.
        content: digest of images and labels, see `core.ingest.content`.
    """

    classes: dict[str, int]
    n_train: int
    n_test: int
    ignored: int
    media_type: str
    layout: str
    has_test: bool
    notes: tuple[str, ...] = ()
    ignored_files: tuple[FileReason, ...] = ()
    warnings: tuple[str, ...] = ()
    encoded: bool = True
    reading: StoredReading = field(default_factory=StoredReading)
    bad_entries: tuple[EntryReason, ...] = ()
    bad_entries_count: int = 0
    first_look: SampleImageCheckResult = NOTHING
    content: str | None = None


@contextmanager
def open_file_read_only(path: Path) -> Iterator[int]:
    """Open a local file read-only; yield the descriptor."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def summarise_archive_and_digest_content(
    path: Path,
    media_type: str,
    limits: ArchiveLimits,
    reading: BatchReadingSettings = USUAL,
    duplicates: DuplicatesPolicy = "keep",
) -> ArchiveSummary:
    """Read the directory of an uploaded archive, and every image's bytes once for the content
    digest.

    Args:
        path: the archive.
        media_type: name of its reader, as `detect_upload_format` returned it.
        limits: bounds on the archive.
        reading: options for the conversion of its files to classes.
        duplicates: policy for equal images.

    Raises ArchiveHostile, ArchiveTooLarge, ArchiveInvalid and LabelsInvalid; messages name the
    entry. Memory is bounded by the limits: about 400 bytes per entry.
    """
    with open_file_read_only(path) as fd:
        check_archive_size(fd, limits)
        reader = get_upload_reader_by_format_name(media_type).with_fallback_name_encoding(
            reading.options.names
        )
        contents = reader.list_contents(fd, limits).with_assigned_classes(limits, reading)
        fetch = reader.make_file_start_reader(fd, contents, limits)
        first_look = check_first_bytes_of_sample_images(
            contents, fetch, limits, in_order=reader.is_packed_whole
        )
        # Before the digest, which reads every image: most unusable batches end here.
        first_look.require_enough_readable_images(reading.options.max_bad)
        content = digest_batch_content(
            fd, contents, reader.make_file_block_reader(fd, contents, limits), limits, duplicates
        )
    layout = contents.layout
    # After the digest: a batch that is sent again has the labels that it was sent with.
    layout.replace_former_class_names(reading.former_names())
    classes, n_train, n_test = layout.count_images_by_class_and_part()
    return ArchiveSummary(
        classes,
        n_train,
        n_test,
        layout.ignored,
        media_type,
        layout.kind,
        n_test > 0,
        tuple(layout.notes),
        tuple(layout.ignored_files),
        (*layout.warnings, *first_look.build_left_out_warnings()),
        not contents.arrays,
        build_stored_reading_options(reading.options, layout),
        tuple(layout.bad_entries),
        layout.bad_entries_count,
        first_look,
        content,
    )


def check_archive_size(fd: int, limits: ArchiveLimits) -> None:
    """Raise ArchiveInvalid for an empty upload, ArchiveTooLarge for one beyond the size limit."""
    packed = os.fstat(fd).st_size
    if not packed:
        raise ArchiveInvalid("The body is empty; send an archive of images.")
    if packed > limits.body_bytes:
        raise ArchiveTooLarge(
            f"The archive has {packed} bytes; at most {limits.body_bytes} are accepted."
        )
