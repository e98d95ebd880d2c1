"""Identification of a parquet file's image and label columns by their declared types.

The types are Arrow's, and the features of `datasets` in the schema's metadata under `huggingface`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perennial.pack.errors import PackError
from perennial.pack.extras import import_optional_module_or_raise
from perennial.pack.sources.numbers import NumberedClassNames
from perennial.pack.text import format_first_names, quote_name

BYTES, PATH = "bytes", "path"
_IMAGE_COLUMNS, _LABEL_COLUMNS = ("image", "img"), ("label", "labels", "class", "fine_label")


@dataclass(frozen=True)
class ParquetColumns:
    """Names of the image column and the label column in a parquet file.

    Attributes:
        image: name of the image column.
        is_struct: True if it has fields, with `bytes` among them.
        has_path: True if it also has a field `path`.
        label: name of the label column.
        names: names of the classes; None: labels are names themselves.
    """

    image: str
    is_struct: bool
    has_path: bool
    label: str
    names: Sequence[str] | None

    @property
    def label_and_path_columns(self) -> list[str]:
        """Names of the columns to read with pyarrow: the label's, and that of the image's path if
        there is one.
        """
        return [self.label, *([f"{self.image}.{PATH}"] if self.has_path else [])]

    @property
    def image_bytes_column(self) -> str:
        """Parquet column with the bytes of the images, as pyarrow names it."""
        return f"{self.image}.{BYTES}" if self.is_struct else self.image

    def select_image_bytes(self, batch: Any) -> Any:
        """Return the image bytes in a batch of parquet rows; null where a row has no image."""
        return (
            _get_parquet_struct_field(batch.column(self.image), BYTES)
            if self.is_struct
            else batch.column(self.image)
        )

    def get_image_paths(self, batch: Any) -> list[str | None]:
        """Return the path of each image in a batch of parquet rows, or None."""
        if not self.has_path:
            return [None] * batch.num_rows
        return list(_get_parquet_struct_field(batch.column(self.image), PATH).to_pylist())

    def get_class_of_label(
        self, label: object, classes: NumberedClassNames, where: str
    ) -> str | None:
        """Return the class name for a value of the label column; None for a missing label. Raises
        PackError.
        """
        # `label != label` is NaN, which pandas writes for a missing number.
        if label is None or label == -1 or label != label or label == "":
            return None
        # pandas turns whole numbers into floats if some are missing.
        if isinstance(label, float):
            if not label.is_integer():
                raise PackError(f"{where} has the label {label}, which is no whole number.")
            label = int(label)
        return classes.get_class_name(label if isinstance(label, int) else str(label), where)


def find_image_and_label_columns(
    schema: Any, path: str, image: str | None, label: str | None
) -> ParquetColumns:
    """Find the image and label columns of a parquet file. Raises PackError if that is not clear."""
    types = import_optional_module_or_raise("pyarrow", "A parquet file").types
    features = _read_dataset_features(schema)
    images = [
        name for name, feature in features.items() if _is_parquet_feature_of_kind(feature, "Image")
    ]
    labels = [
        name
        for name, feature in features.items()
        if _is_parquet_feature_of_kind(feature, "ClassLabel")
    ]
    image = _choose_image_or_label_column(
        image, images, _IMAGE_COLUMNS, "image", schema.names, path
    )
    label = _choose_image_or_label_column(
        label, labels, _LABEL_COLUMNS, "label", schema.names, path
    )
    fields = _list_image_struct_fields(types, schema.field(image).type, image, path)
    _require_one_label_per_row(types, schema, label, path)
    names = _get_class_names_of_feature(features[label], path) if label in labels else None
    return ParquetColumns(image, bool(fields), PATH in fields, label, names)


def _list_image_struct_fields(types: Any, kind: Any, image: str, path: str) -> list[str]:
    """Return the fields of an image column that is a struct; none if it contains bytes. Raises
    PackError.
    """
    if types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        if not any(field.name == BYTES and _is_binary_type(types, field.type) for field in fields):
            field_types = [f"{field.name} ({field.type})" for field in fields]
            raise PackError(
                f"The column {quote_name(image)} of {quote_name(path)} has no bytes, but "
                f"{format_first_names(field_types)}."
            )
        texts = [
            field.name
            for field in fields
            if field.name == BYTES or _is_text_type(types, field.type)
        ]
        return [name for name in texts if name in (BYTES, PATH)]
    if not _is_binary_type(types, kind):
        raise PackError(
            f"The column {quote_name(image)} of {quote_name(path)} is {kind}; images are bytes of "
            f"files."
        )
    return []


def _require_one_label_per_row(types: Any, schema: Any, label: str, path: str) -> None:
    """Raise PackError unless the label column has one label per row."""
    kind = schema.field(label).type
    # A dictionary is only an encoding: the labels are its values.
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_integer(kind) or types.is_floating(kind) or _is_text_type(types, kind):
        return
    where = f"The column {quote_name(label)} of {quote_name(path)} is {kind}"
    if types.is_nested(kind):
        single_label_columns = [
            field.name
            for field in schema
            if field.name != label
            and (types.is_integer(field.type) or _is_text_type(types, field.type))
        ]
        raise PackError(
            f"{where}: several labels for one image (multi-label). One is learned. Write a column "
            f"with one label a row"
            + (
                f", or name one of {format_first_names(single_label_columns)} with -o label=… (label=…)."
                if single_label_columns
                else "."
            )
        )
    raise PackError(f"{where}; labels are numbers or names.")


def _is_binary_type(types: Any, kind: Any) -> bool:
    # Older versions of pyarrow have no views.
    is_view = getattr(types, "is_binary_view", None)
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or (is_view and is_view(kind))
    )


def _is_text_type(types: Any, kind: Any) -> bool:
    is_view = getattr(types, "is_string_view", None)
    return bool(types.is_string(kind) or types.is_large_string(kind) or (is_view and is_view(kind)))


def _get_parquet_struct_field(values: Any, name: str) -> Any:
    """Return the values of a struct column's field, null where the struct is null."""
    # `flatten` applies the nulls of the struct, and `field` does not.
    return values.flatten()[[field.name for field in values.type].index(name)]


def _read_dataset_features(schema: Any) -> dict[str, dict[str, Any]]:
    """Return the `datasets` features that a parquet file's metadata describes, by column."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"][
            "features"
        ]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    items = features.items() if isinstance(features, dict) else ()
    return {
        name: feature
        for name, feature in items
        if isinstance(feature, dict) and name in schema.names
    }


def _get_class_names_of_feature(feature: dict[str, Any], path: str) -> Sequence[str] | None:
    """Return the class names of a `datasets` ClassLabel feature. Raises PackError if they are
    invalid.
    """
    names = feature.get("names")
    if names is not None and not (
        isinstance(names, list) and all(isinstance(name, str) for name in names)
    ):
        raise PackError(
            f"The names of classes in the schema of {quote_name(path)} are no list of texts."
        )
    return names


def _is_parquet_feature_of_kind(feature: dict[str, Any], kind: str) -> bool:
    return feature.get("_type") == kind


def _choose_image_or_label_column(
    requested: str | None,
    by_type: list[str],
    usual: Sequence[str],
    what: str,
    columns: list[str],
    path: str,
) -> str:
    if requested is not None and requested in columns:
        return requested
    # A usual name is a guess, which counts only if no column declares the type.
    candidates = by_type or [name for name in usual if name in columns][:1]
    if requested is None and len(candidates) == 1:
        return candidates[0]
    problem = (
        f"several columns of {what}s"
        if requested is None and candidates
        else f"no column {quote_name(requested or what)}"
    )
    raise PackError(
        f"{quote_name(path)} has {problem}; its columns are {format_first_names(columns, 20)}. Say which "
        f"with {what}=."
    )
