"""Responses as pandas DataFrames. Requires pandas: `pip install 'perennial-client[pandas]'`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from perennial._types import Compare, Metrics, Predict, Prediction
from perennial.pack.extras import import_optional_module_or_raise
from perennial.shapes import DataFrameResponse, ResponseObject

DataFrame = Any
"""pandas.DataFrame; Any, because pandas is optional and has no types of its own."""
_TIMES = "_at"
"""Suffix of fields that are RFC 3339 times."""


def build_data_frame_of_response(response: DataFrameResponse) -> DataFrame:
    """Convert a tabular API response to a pandas DataFrame.

    `Metrics`: rows are versions, columns are tasks, NaN where not measured. `Predict`: one row per
    image in order, with `error` for unusable ones. `Compare`: one row per class.

    Raises:
        ExtraMissing: pandas is not installed.
        TypeError: the response is not a table.
    """
    if isinstance(response, Metrics):
        return _build_accuracy_frame(response)
    if isinstance(response, Predict):
        return _build_prediction_frame(response)
    if isinstance(response, Compare):
        return build_data_frame_of_items(response.classes)
    raise TypeError(f"A {type(response).__name__} is no table.")


def build_data_frame_of_items(items: Sequence[Any], kind: Any = None) -> DataFrame:
    """Convert API objects to a DataFrame, one row each; nested fields become `progress.step`
    columns.

    Times (`created_at`) become timestamps in UTC; lists stay lists.

    Args:
        items: responses, or JSON objects.
        kind: their type, whose fields are the columns of an empty list.

    Raises:
        ExtraMissing: pandas is not installed.
    """
    pandas = import_optional_module_or_raise("pandas", "A DataFrame", "pandas")
    rows = [
        _flatten_nested_fields(item.to_dict() if isinstance(item, ResponseObject) else item)
        for item in items
    ]
    # An empty list has its columns too, so that code that selects one does not fail.
    if not rows and dataclasses.is_dataclass(kind):
        return pandas.DataFrame(
            # `extra` is no field of the JSON, so rows have no such column either.
            columns=[field.name for field in dataclasses.fields(kind) if field.name != "extra"]
        )
    frame = pandas.DataFrame(rows)
    for name in [column for column in frame.columns if str(column).endswith(_TIMES)]:
        # Without a format, pandas would expect all values in the form of the first one.
        frame[name] = pandas.to_datetime(frame[name], utc=True, format="ISO8601")
    return frame


def _build_accuracy_frame(metrics: Metrics) -> DataFrame:
    pandas = import_optional_module_or_raise("pandas", "A DataFrame", "pandas")
    index = pandas.Index([row.version for row in metrics.rows], name="version")
    columns = pandas.Index([column.task for column in metrics.columns], name="task")
    cells = [
        [float("nan") if one is None else one for one in row] for row in metrics.accuracy_matrix
    ]
    # With a type, a matrix without rows has numbers as well, and code that computes with it works.
    return pandas.DataFrame(cells, index=index, columns=columns, dtype="float64")


def _build_prediction_frame(response: Predict) -> DataFrame:
    """Return one row per image; probabilities stay in one column, since labels may be any text."""
    pandas = import_optional_module_or_raise("pandas", "A DataFrame", "pandas")
    names = ("name", "label", "probability", "sure", "probabilities")
    rows = [
        {
            **{name: getattr(one, name, None) for name in names},
            "error": None if isinstance(one, Prediction) else one.error.detail,
        }
        for one in response.predictions
    ]
    return pandas.DataFrame(rows, columns=[*names, "error"])


def _flatten_nested_fields(item: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in item.items():
        if isinstance(value, Mapping):
            row |= _flatten_nested_fields(value, f"{prefix}{name}.")
        else:
            row[f"{prefix}{name}"] = value
    return row
