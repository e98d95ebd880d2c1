"""Detection of a source's kind, and the table of kinds by name."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from perennial._formats import FORMATS
from perennial.formats import FIRST_BYTES
from perennial.pack.bad import MAX_BAD
from perennial.pack.errors import PackError
from perennial.pack.files import SourceFolder
from perennial.pack.images import ImageSource
from perennial.pack.names import CSV_NAME, is_image_path
from perennial.pack.remote.fetching import MAX_ENTRIES, Progress
from perennial.pack.remote.url_list import LIST_SUFFIXES, looks_like_url_list
from perennial.pack.sources.archive import looks_like_archive
from perennial.pack.sources.coco import find_coco_annotation_files, looks_like_coco, open_coco_boxes
from perennial.pack.sources.csv_file import TableImages
from perennial.pack.sources.folder import FolderImages
from perennial.pack.sources.imagefolder import (
    METADATA,
    MetadataImages,
    find_imagefolder_metadata_files,
)
from perennial.pack.sources.parquet import SUFFIX as PARQUET_SUFFIX
from perennial.pack.sources.parquet import ParquetImages, find_parquet_files
from perennial.pack.sources.webdataset import (
    SHARD_SUFFIXES,
    ShardImages,
    find_webdataset_shards,
    looks_like_webdataset_shard,
)
from perennial.pack.sources.yolo import find_yolo_yaml_files, looks_like_yolo_yaml, open_yolo_boxes
from perennial.pack.text import format_count_with_noun, format_first_names, quote_name
from perennial.reading_rules.foreign import (
    find_unsupported_file_kind,
    group_unsupported_files_by_kind,
)
from perennial.reading_rules.label_files import find_possible_label_files

ARCHIVE, FOLDER = "archive", "folder"
_TABLES = (".json", ".jsonl", ".ndjson", ".manifest", ".labels")


def _open_csv_source(
    source: Path,
    *,
    image: str = "",
    label: str = "",
    max_bad: str | float = "",
    allow_outside: bool = False,
) -> ImageSource:
    table = source / CSV_NAME if source.is_dir() else source
    return TableImages(
        table, image=image, label=label, max_bad=max_bad, allow_outside=allow_outside
    )


def _open_url_list(
    source: Path,
    *,
    allow_private: bool = False,
    max_entries: int = MAX_ENTRIES,
    max_bad: float = MAX_BAD,
    progress: Progress | None = None,
) -> ImageSource:
    # Import the HTTP code only when needed, since it takes a moment.
    from perennial.pack.remote.urls import UrlImages

    return UrlImages(
        source,
        allow_private=allow_private,
        max_entries=max_entries,
        max_bad=max_bad,
        progress=progress,
    )


KINDS: dict[str, Callable[..., ImageSource]] = {
    FOLDER: FolderImages,
    "csv": _open_csv_source,
    "webdataset": ShardImages,
    "parquet": ParquetImages,
    "imagefolder": MetadataImages,
    "coco": open_coco_boxes,
    "yolo": open_yolo_boxes,
    "urls": _open_url_list,
}
"""Name → function that opens a source: (path, **options of the kind) → Images."""

_WHAT = (
    "a folder of class folders (folder), a table of images and labels (csv), WebDataset shards "
    "(webdataset), Hugging Face parquet (parquet) or metadata.csv beside images (imagefolder), "
    "COCO (coco), YOLO (yolo), a list of https:// URLs and labels (urls), and a "
    f"{FORMATS} that the service reads itself (archive)"
)


def detect_data_set_kind(source: Path) -> str:
    """Detect the kind of data set at a path, such as folder, COCO, YOLO or parquet.

    Raises:
        PackError: the path does not exist, or looks like no kind or several; the message names what
            was found and what is possible.
    """
    if not source.exists():
        raise PackError(f"There is no file or folder {quote_name(source)}.")
    return _detect_folder_kind(source) if source.is_dir() else _detect_file_kind(source)


def _detect_file_kind(file: Path) -> str:
    name = file.name.lower()
    try:
        with file.open("rb") as opened:
            first = opened.read(FIRST_BYTES)
    except OSError as error:
        raise PackError(f"The file {quote_name(file)} cannot be read: {error.strerror}.") from error
    if name.endswith(PARQUET_SUFFIX) or first.startswith(b"PAR1"):
        return "parquet"
    # Before the tables, because a list of URLs may be a .csv as well.
    if name.endswith(LIST_SUFFIXES) and looks_like_url_list(file):
        return "urls"
    if name.endswith((".csv", ".tsv")):
        return "csv"
    if name.endswith((".yaml", ".yml")) and looks_like_yolo_yaml(file):
        return "yolo"
    if name.endswith(".json") and looks_like_coco(str(file)):
        return "coco"
    if name.endswith(_TABLES):
        return "csv"
    # Before the archives: a shard is a tar, which the service cannot read as a batch.
    if name.endswith(SHARD_SUFFIXES) and looks_like_webdataset_shard(str(file)):
        return "webdataset"
    kind = find_unsupported_file_kind(file.name, first)
    if kind is not None:
        raise PackError(
            f"The file {quote_name(file)} is {kind.description}. {kind.format_conversion_advice(str(file))}."
        )
    if looks_like_archive(first):
        return ARCHIVE
    begin = f"begins with {quote_name(first[:16].decode('latin-1'))}" if first else "is empty"
    raise PackError(
        f"The file {quote_name(file)} is of no known kind: it {begin}. Possible are {_WHAT}."
    )


def _detect_folder_kind(folder: Path) -> str:
    # labels.csv is the service's own format, so it decides before any look at the rest.
    if (folder / CSV_NAME).is_file():
        return "csv"
    # Names alone are examined here; the kind itself refuses files outside the folder.
    root = SourceFolder(folder, allow_outside=True)
    names = list(root.list_files())
    kinds = [
        kind
        for kind, is_match in (
            (
                "webdataset",
                any(
                    looks_like_webdataset_shard(root.resolve_named_path(shard))
                    for shard in find_webdataset_shards(names)[:1]
                ),
            ),
            ("parquet", bool(find_parquet_files(names))),
            ("imagefolder", bool(find_imagefolder_metadata_files(names))),
            ("coco", bool(find_coco_annotation_files(root, names))),
            ("yolo", bool(find_yolo_yaml_files(folder))),
        )
        if is_match
    ]
    if len(kinds) > 1:
        raise PackError(
            f"The folder {quote_name(folder)} looks like {' and like '.join(kinds)}: say which "
            f"with kind=."
        )
    if kinds:
        return kinds[0]
    # Loose images without folders or a label file have no labels.
    images = [name for name in names if is_image_path(name)]
    if any("/" in name for name in images) or (
        images and find_possible_label_files(names, range(len(names)))
    ):
        return FOLDER
    raise PackError(
        f"The folder {quote_name(folder)} is of no known kind: {_describe_folder_content(folder, names)}. "
        f"Possible are {_WHAT}."
    )


def _describe_folder_content(folder: Path, names: list[str]) -> str:
    if not names:
        return (
            "it is empty, but for hidden files and links"
            if any(folder.iterdir())
            else "it is empty"
        )
    for kind, indices in group_unsupported_files_by_kind(names).items():
        first = names[indices[0]]
        advice = kind.format_conversion_advice(str(folder / first))
        return f"{quote_name(first)} in it is {kind.description}. {advice}"
    endings = Counter(Path(name).suffix.lower() or "no ending" for name in names)
    hint = (
        f"; images need class folders, a {CSV_NAME} or a {METADATA[0]}. If the folder is one class, "
        f"send the folder that it lies in"
        if any(map(is_image_path, names))
        else ""
    )
    return (
        f"it holds {format_count_with_noun(len(names), 'file')}, most of them "
        f"{format_first_names([e for e, _ in endings.most_common(3)])}{hint}"
    )
