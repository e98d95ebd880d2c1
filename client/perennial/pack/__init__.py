"""Packing of existing data into a batch that can be sent: `open_batch(path)`.

Folders, CSV lists, WebDataset shards, Hugging Face parquet and imagefolder, COCO and YOLO become
one tar, generated while it is read. The same source yields the same bytes, from any byte on.
"""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perennial.pack.batch import PackedBatch
from perennial.pack.errors import ExtraMissing, PackError, SourceChanged, Undecided
from perennial.pack.kinds import ARCHIVE, FOLDER, KINDS, detect_data_set_kind
from perennial.pack.remote.address import is_remote_address
from perennial.pack.remote.bucket import BucketImages
from perennial.pack.sources.archive import ArchiveBatch
from perennial.pack.sources.memory import ImagesFromMapping
from perennial.pack.tar_batch import GeneratedTarBatch
from perennial.pack.text import quote_name

__all__ = ["ExtraMissing", "PackError", "PackedBatch", "SourceChanged", "Undecided", "open_batch"]


def open_batch(
    source: Path | str | bytes | Mapping[str, Any], *, kind: str | None = None, **options: Any
) -> PackedBatch:
    """Open a folder, file, bucket or mapping of labelled images as a batch to upload.

    Args:
        source: a file or folder; `s3://bucket/prefix`, `gs://…` or `az://…`; the bytes of an
            archive that the service reads; or {class: [images]}, an image being the bytes of its
            file or a path, or {"train": {class: [images]}, "test": {class: [images]}}.
        kind: kind of a file or folder, if ambiguous: folder, csv, webdataset, parquet, imagefolder,
            coco, yolo, urls or archive.
        options: `allow_outside=True` for paths and links that leave the folder (all kinds of files
            and folders); `max_bad=` the largest share of bad entries with which the others are sent
            (all kinds but archives); `names=[…]` of classes (webdataset); `image=`, `label=`
            columns (parquet), `label=` (imagefolder); `whole=True` for whole images instead of
            crops, `boxes="turned"` if boxes refer to images rotated by EXIF (coco, yolo); `images=`
            folder (coco); `layout="folders"`, `one_class=True`, `classes="level:1"`,
            `names_pattern=`, `table=`, `known_classes=[…]` (folder, buckets), `image=`, `label=`
            columns (folder, csv), see `perennial.pack.sources.folder`; `max_entries=`, `progress=` (urls,
            buckets); `allow_private=True` for URLs that lead to private addresses (urls);
            `endpoint=`, `profile=`, `anonymous=True` (buckets).

    Raises:
        PackError: the source is of no known kind, or the service would refuse it.
        Undecided: a folder can be read in several ways.
        ExtraMissing: an optional library is needed.
        TypeError: the kind has no such option.
    """
    if isinstance(source, bytes | Mapping):
        if options or kind not in (None, ARCHIVE if isinstance(source, bytes) else None):
            raise TypeError("kind and options are for files and folders")
        return (
            ArchiveBatch(source)
            if isinstance(source, bytes)
            else GeneratedTarBatch(ImagesFromMapping(source))
        )
    if isinstance(source, str) and is_remote_address(source):
        return _open_bucket_batch(source, kind, options)
    path = Path(source)
    if kind is not None and kind not in (*KINDS, ARCHIVE):
        raise PackError(
            f"There is no kind {quote_name(kind)}; possible are {', '.join(KINDS)} and {ARCHIVE}."
        )
    # Options of the folder's rules settle the kind: `detect_data_set_kind` might see a data set
    # instead.
    detected_kind = kind or (
        FOLDER
        if path.is_dir() and _should_use_service_reading_rules(options)
        else detect_data_set_kind(path)
    )
    if not path.exists():
        raise PackError(f"There is no file or folder {quote_name(path)}.")
    # Checked against the signature, because a TypeError of Python would not list what is possible.
    allowed_options = (
        []
        if detected_kind == ARCHIVE
        else list(inspect.signature(KINDS[detected_kind]).parameters)[1:]
    )
    unknown = [option for option in options if option not in allowed_options]
    if unknown:
        raise TypeError(
            f"{quote_name(path)} is of the kind {detected_kind}, which has no option "
            f"{', '.join(unknown)}; it has {', '.join(allowed_options) or 'none'}"
        )
    return (
        ArchiveBatch(path)
        if detected_kind == ARCHIVE
        else GeneratedTarBatch(KINDS[detected_kind](path, **options))
    )


def _should_use_service_reading_rules(options: Mapping[str, Any]) -> bool:
    """Return True if options require the service's own rules for reading folders."""
    return options.get("layout") == "folders" or bool(
        options.get("names_pattern") or options.get("table")
    )


def _open_bucket_batch(address: str, kind: str | None, options: Mapping[str, Any]) -> PackedBatch:
    """Open the images below a bucket's prefix as a batch. Raises as `open_batch`."""
    if kind not in (None, "folder"):
        raise PackError(
            f"A bucket is read as a folder of class folders, not as {quote_name(kind)}: copy it to "
            f"a disk, and send that."
        )
    # Without the first parameter, which is the address itself.
    allowed_options = list(inspect.signature(BucketImages).parameters)[1:]
    unknown = [option for option in options if option not in allowed_options]
    if unknown:
        raise TypeError(
            f"A bucket has no option {', '.join(unknown)}; it has {', '.join(allowed_options)}"
        )
    return GeneratedTarBatch(BucketImages(address, **options))
