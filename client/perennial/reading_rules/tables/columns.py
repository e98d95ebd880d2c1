"""Detection of a table's columns of images, labels and parts, by their contents."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from perennial.reading_rules.entries import (
    BatchReadingOptions,
    BatchReadingRemedy,
    UnreadableBatchError,
)
from perennial.reading_rules.names import quote_name
from perennial.reading_rules.tables.images import ImageNameIndex
from perennial.reading_rules.tables.records import SAMPLE, TableRecords
from perennial.reading_rules.tables.values import parse_dataset_part_word
from perennial.reading_rules.tables.words import format_column_names, quote_option_value_if_needed

_IMAGE_WORDS = (
    "path", "filepath", "file_path", "filename", "file_name", "file", "image_path", "image_file", "image_name", "image",
    "img_path", "img_name", "img", "image_id", "id", "url", "image_url", "name", "source", "photo", "picture",
)  # fmt: skip
"""Names of image columns in descending order of preference."""
_LABEL_WORDS = frozenset((
    "label", "class", "category", "target", "species", "breed", "tag", "choice", "annotation", "ground_truth",
    "groundtruth", "gt", "y", "truth", "class_name", "class_label", "class_id", "class_index", "label_name", "label_id",
    "label_index", "category_name", "category_id", "target_name", "target_class", "target_id", "species_name",
))  # fmt: skip
_PART_WORDS = frozenset(
    ("split", "set", "subset", "part", "partition", "data_set", "dataset", "usage", "ml_use")
)
_DETAIL_WORDS = frozenset((
    "width", "height", "size", "file_size", "filesize", "byte", "date", "datetime", "date_time", "created", "timestamp",
    "created_at", "modified", "camera", "author", "photographer", "license", "licence", "copyright", "md5", "sha1",
    "sha256", "hash", "checksum", "latitude", "longitude", "lat", "lon", "lng", "altitude", "extension", "mime_type",
    "user", "username", "index",
))  # fmt: skip
"""Columns that describe a file rather than its content."""
_ENDINGS = (
    ".png",
    ".jpg",
    ".jpeg",
    ".webp",
    ".bmp",
    ".tif",
    ".tiff",
    ".gif",
    ".avif",
    ".heic",
    ".heif",
)
_MOST_REMEDIES = 10
_FEW = 6
"""Number of entries from which on a column whose values all differ is not a label column."""

Find = Callable[[str], int]
"""Function that returns the number of the image that a text names; negative for none."""


class LabelTableColumnPositions(NamedTuple):
    """Positions of a label table's columns of image, label and part; `part` is -1 without one."""

    image: int
    label: int
    part: int


class NotALabelTable(Exception):
    """Error: a table has no column of images or no other column, so it is not a label table."""


def choose_table_columns(
    records: TableRecords,
    options: BatchReadingOptions,
    find: Find,
    images: ImageNameIndex,
    *,
    is_own: bool,
) -> LabelTableColumnPositions:
    """Choose the columns of image, label and part in a table that lists some of `images`.

    `find` finds an image by a name as this table writes it. `is_own` is true if the table is named
    as the label table, even if it lists no images.

    Raises NotALabelTable, and UnreadableBatchError if several columns fit; the message names them and the
    option.
    """
    sample = records.sample_entry_values()
    image, sample_images = _find_image_column_and_row_images(records, options, sample, find)
    if image < 0:
        # A table that is meant must not be passed over because its names are wrong.
        image = _find_named_image_column(records) if is_own else -1
    if image < 0:
        raise NotALabelTable
    part = _find_dataset_part_column(records, sample, {image})
    label = _choose_label_column(
        records,
        options,
        sample,
        {image, part},
        [images.get_name_of_image_folder(i) if i >= 0 else "" for i in sample_images],
        not (is_own or options.image_column or _has_column_mostly_image_endings(sample, image))
        and 2 * len({i for i in sample_images if i >= 0}) <= min(SAMPLE, len(images)),
    )
    return LabelTableColumnPositions(image, label, part)


def find_column_position_ignoring_case(records: TableRecords, name: str) -> int:
    """Return the position of the table column that an option names, or -1.

    Case matters only if two names differ by case.
    """
    if name in records.columns:
        return records.columns.index(name)
    lower = [column.lower() for column in records.columns]
    return lower.index(name.lower()) if lower.count(name.lower()) == 1 else -1


def _find_image_column_and_row_images(
    records: TableRecords, options: BatchReadingOptions, sample: list[Sequence[object]], find: Find
) -> tuple[int, list[int]]:
    """Return the table column that names the most images, and each sampled row's image; -1 without
    any.

    Each image counts once.
    """
    chosen = (
        find_column_position_ignoring_case(records, options.image_column)
        if options.image_column
        else -1
    )
    # Another table may have the column; the search reports an option that none of them fits.
    if options.image_column and chosen < 0:
        raise NotALabelTable
    best, best_found, best_key = -1, list[int](), (0, 0)
    candidates: list[tuple[int, list[int]]] = []
    for at in _find_possible_image_columns(records, sample) if chosen < 0 else [chosen]:
        row_images = [_find_image_named_by_cell(row[at], find) for row in sample]
        different = len({i for i in row_images if i >= 0})
        if not different:
            continue
        key = (different, -_get_rank_of_image_column_name(records.columns[at]))
        if 2 * different >= len(sample) or is_image_column_name(records.columns[at]) or chosen >= 0:
            candidates.append((at, row_images))
            if key > best_key:
                best, best_found, best_key = at, row_images, key
    if best < 0:
        return chosen, [-1] * len(sample)
    rivals = [
        at
        for at, row_images in candidates
        if len({i for i in row_images if i >= 0}) == best_key[0]
        and _do_columns_name_different_images(row_images, best_found)
    ]
    if rivals:
        names = [records.columns[at] for at in sorted([best, *rivals])]
        raise _build_ambiguous_columns_error(records, names, "of images", "image")
    return best, best_found


def _find_named_image_column(records: TableRecords) -> int:
    """Return the column whose header names images, if another header names labels; -1 for none."""
    image_columns = [
        at for at, column in enumerate(records.columns) if is_image_column_name(column)
    ]
    has_labels = any(_is_label_column_name(column) for column in records.columns)
    return (
        min(image_columns, key=lambda at: _get_rank_of_image_column_name(records.columns[at]))
        if image_columns and has_labels
        else -1
    )


def _find_possible_image_columns(
    records: TableRecords, sample: list[Sequence[object]]
) -> list[int]:
    """Return the columns of a table that may contain image names.

    If some have values with the ending of an image, only those are returned.
    """
    columns = range(len(records.columns))
    return [at for at in columns if _has_column_mostly_image_endings(sample, at)] or list(columns)


def _has_column_mostly_image_endings(sample: list[Sequence[object]], column: int) -> bool:
    """Return True if most values of a column end like image files."""
    # At least one, or an empty sample would have endings.
    return 2 * sum(_has_image_ending(row[column]) for row in sample) >= max(1, len(sample))


def _has_image_ending(value: object) -> bool:
    # A URL may have a query after the ending.
    return isinstance(value, str) and value.partition("?")[0].strip().lower().endswith(_ENDINGS)


def _find_image_named_by_cell(value: object, find: Find) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return -1
    text = str(value).strip()
    return find(text) if 0 < len(text) <= 1024 else -1


def _do_columns_name_different_images(first: list[int], second: list[int]) -> bool:
    return any(a >= 0 and b >= 0 and a != b for a, b in zip(first, second, strict=True))


def _get_rank_of_image_column_name(column: str) -> int:
    word = _normalise_column_name(column)
    return _IMAGE_WORDS.index(word) if word in _IMAGE_WORDS else len(_IMAGE_WORDS)


def is_image_column_name(column: str) -> bool:
    """Return True if a column has a name that is usual for image names."""
    return _normalise_column_name(column) in _IMAGE_WORDS


def _normalise_column_name(column: str) -> str:
    word = re.sub(r"[^a-z0-9]+", "_", column.strip().lower()).strip("_")
    return (
        "class"
        if word == "classes"
        else "category"
        if word == "categories"
        else word.removesuffix("s") or word
    )


def _is_label_column_name(column: str) -> bool:
    word = _normalise_column_name(column)
    return (
        word in _LABEL_WORDS
        or f"{word}s" in _LABEL_WORDS
        or word.endswith(("_label", "_class", "_category"))
    )


def _find_dataset_part_column(
    records: TableRecords, sample: list[Sequence[object]], excluded: set[int]
) -> int:
    for at, column in enumerate(records.columns):
        word = _normalise_column_name(column)
        if at not in excluded and (word in _PART_WORDS or f"{word}s" in _PART_WORDS):
            words = [parse_dataset_part_word(str(row[at] or "")) for row in sample]
            is_of_parts = sum(word is not None for word in words) * 2 >= len(words)
            # A column `split` cannot mean anything else.
            if words and (is_of_parts or word == "split"):
                return at
    return -1


def _choose_label_column(
    records: TableRecords,
    options: BatchReadingOptions,
    sample: list[Sequence[object]],
    excluded: set[int],
    folders: list[str],
    are_few: bool,
) -> int:
    """Return the column of a label table that contains the labels.

    `folders` are those of the sampled entries' images. `are_few` is true if the table names few
    images, by numbers or other words that may mean something else.
    """
    if options.label_column:
        chosen = find_column_position_ignoring_case(records, options.label_column)
        if chosen < 0:
            raise NotALabelTable
        return chosen
    candidates = [at for at in range(len(records.columns)) if at not in excluded]
    if not candidates:
        raise NotALabelTable
    named = [at for at in candidates if _is_label_column_name(records.columns[at])]
    fitting = named or candidates
    if are_few and not named:
        raise NotALabelTable
    if len(named) > 1:
        fitting = _prefer_label_column_with_words(fitting, sample)
    if len(fitting) > 1 or not named:
        folder_columns = [at for at in fitting if _is_image_folder_column(at, sample, folders)]
        # Columns that all repeat the folder are equal, so any of them will do.
        fitting = folder_columns[:1] or fitting
    if len(fitting) > 1:
        raise _build_ambiguous_columns_error(
            records, [records.columns[at] for at in fitting], "of labels", "label"
        )
    (label,) = fitting
    _refuse_decimal_labels(records, label, sample)
    if not named and not _is_image_folder_column(label, sample, folders):
        _refuse_unlikely_labels(records, label, sample, folders)
    return label


def _prefer_label_column_with_words(
    columns: list[int], sample: list[Sequence[object]]
) -> list[int]:
    """Return only the first column with words, if all label columns are equivalent.

    Examples are `class_id` and `class_name`. If the columns are not equivalent, all are returned.
    """
    first = columns[0]
    for column in columns[1:]:
        pairs = {(str(row[first]), str(row[column])) for row in sample}
        if not len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs}):
            return columns
    word_columns = [
        at for at in columns if not all(str(row[at]).replace(".", "").isdigit() for row in sample)
    ]
    return word_columns[:1] or columns[:1]


def _is_image_folder_column(
    column: int, sample: list[Sequence[object]], folders: list[str]
) -> bool:
    """Return True if a column has the names of the images' folders in nearly all rows."""
    matches = sum(
        str(row[column]).strip() == folder
        for row, folder in zip(sample, folders, strict=True)
        if folder
    )
    return 0 < 0.95 * len(sample) <= matches


def _refuse_unlikely_labels(
    records: TableRecords, label: int, sample: list[Sequence[object]], folders: list[str]
) -> None:
    """Raise UnreadableBatchError if a table's only column beside the images can hardly be labels.

    It may not if it differs in each row, or contradicts folders that look like classes.
    """
    name, file = records.columns[label], records.file.name
    settles = (
        f"If it is the label, say -o label={quote_option_value_if_needed(name)}; to take folders as classes, "
        f"-o layout=folders"
    )
    if len(sample) >= _FEW and len({str(row[label]) for row in sample}) == len(sample):
        raise UnreadableBatchError(
            f"The column {quote_name(name)} of {quote_name(file)} differs in each row. {settles}.",
            "labels",
        )
    if records.header and _normalise_column_name(name) in _DETAIL_WORDS:
        raise UnreadableBatchError(
            f"The column {quote_name(name)} of {quote_name(file)} seems to tell of the files, and not of "
            f"what they show. {settles}.",
            "labels",
        )
    if (
        records.header
        and len(
            {folder for folder in folders if folder and parse_dataset_part_word(folder) is None}
        )
        > 1
    ):
        raise UnreadableBatchError(
            f"{quote_name(file)} names images that lie in several folders, and its column {quote_name(name)} "
            f"says something else. "
            f"{settles}.",
            "labels",
        )


def _refuse_decimal_labels(
    records: TableRecords, label: int, sample: list[Sequence[object]]
) -> None:
    """Raise UnreadableBatchError if most labels are different decimal numbers: each would be a class."""
    values = {text for row in sample if (text := str(row[label]).strip())}
    if (
        len(values) > max(2, len(sample) // 2)
        and sum(map(_has_nonzero_decimals, values)) > len(values) // 2
    ):
        name = records.columns[label]
        raise UnreadableBatchError(
            f"The column {quote_name(name)} of {quote_name(records.file.name)} has numbers with decimals, "
            f"nearly each another: classes are learned, and no numbers. If each is a class, say -o "
            f"label={quote_option_value_if_needed(name)}.",
            "labels",
        )


def _has_nonzero_decimals(text: str) -> bool:
    integer_part, dot, decimals = text.removeprefix("-").partition(".")
    return (
        bool(dot)
        and integer_part.isdecimal()
        and decimals.isdecimal()
        and bool(decimals.strip("0"))
    )


def _build_ambiguous_columns_error(
    records: TableRecords, names: list[str], kind: str, option: str
) -> UnreadableBatchError:
    example = quote_option_value_if_needed(names[0])
    return UnreadableBatchError(
        f"{quote_name(records.file.name)} has several columns that may be the one {kind}: "
        f"{format_column_names(names)}. Say which with -o {option}={example} (?{option}={example}).",
        "labels",
        [
            BatchReadingRemedy(option, name, f"Take {quote_name(name)} as the column {kind}")
            for name in names[:_MOST_REMEDIES]
        ],
    )
