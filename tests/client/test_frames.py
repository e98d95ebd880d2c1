"""Answers as DataFrames."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas
import pytest
import sample_answers
import stub

from perennial import types
from perennial.pack.errors import ExtraMissing
from perennial.shapes import convert_from_json

METRICS: dict[str, Any] = {
    **sample_answers.find_sample_answer("GET", "/v1/models/birds/metrics"),
    "rows": [
        {"version": n, "task": n or None, "parent": None, "status": "published"} for n in range(3)
    ],
    "columns": [{"task": n, "name": None, "classes": [], "n": 9} for n in (1, 2)],
    "accuracy_matrix": [[None, None], [0.5, None], [0.25, 1.0]],
}


def test_metrics_are_a_matrix_of_versions_and_tasks() -> None:
    frame = convert_from_json(types.Metrics, METRICS).to_pandas()
    assert (frame.index.name, frame.columns.name) == ("version", "task")
    assert list(frame.index) == [0, 1, 2] and list(frame.columns) == [1, 2]
    assert frame.loc[2].to_list() == [0.25, 1.0]
    assert frame.isna().to_numpy().tolist() == [[True, True], [False, True], [False, False]]
    assert set(frame.dtypes.astype(str)) == {"float64"}


def test_metrics_of_nothing_are_an_empty_matrix() -> None:
    empty = {**METRICS, "rows": [], "columns": [], "accuracy_matrix": []}
    assert convert_from_json(types.Metrics, empty).to_pandas().shape == (0, 0)


def test_predictions_are_a_row_for_each_image() -> None:
    said = {"code": "image-invalid", "detail": "It is no image."}
    right = {"name": "a", "label": "cat.x", "probability": 0.5, "probabilities": {"cat.x": 0.5}}
    answer = {
        "version": 1,
        "task": None,
        "engine": None,
        "predictions": [right, {"name": "b", "error": said}],
    }
    frame = convert_from_json(types.Predict, answer).to_pandas()
    assert list(frame.columns) == ["name", "label", "probability", "sure", "probabilities", "error"]
    assert list(frame["name"]) == ["a", "b"] and frame["label"][0] == "cat.x"
    assert frame["probabilities"][0] == {"cat.x": 0.5} and frame["error"][1] == "It is no image."


def test_a_comparison_is_a_row_for_each_class() -> None:
    answer = sample_answers.find_sample_answer("GET", "/v1/models/birds/compare")
    found = convert_from_json(types.Compare, answer)
    assert list(found.to_pandas()["label"]) == [one.label for one in found.classes]


def test_a_list_has_its_items_as_rows_with_times_and_fields_of_fields() -> None:
    job = {
        **sample_answers.find_sample_answer("GET", "/v1/jobs/job_1"),
        "created_at": "2026-11-23T14:35:00.5Z",
        "started_at": None,
        "finished_at": "2026-11-23T14:36:00Z",
    }
    with stub.run_stub_with_client(
        lambda _: stub.Said(body={"items": [job, job], "next_cursor": None})
    ) as (
        _,
        client,
    ):
        frame = client.jobs.list().to_pandas()
    assert len(frame) == 2 and "progress.step" in frame.columns
    assert frame["created_at"][0] == pandas.Timestamp("2026-11-23T14:35:00.5Z")
    assert frame["started_at"].isna().all()


def test_an_empty_list_has_its_columns() -> None:
    with stub.run_stub_with_client(
        lambda _: stub.Said(body={"items": [], "next_cursor": None})
    ) as (
        _,
        client,
    ):
        frame = client.versions.list("birds").to_pandas()
    assert frame.empty and {"number", "status", "mean_accuracy"} <= set(frame.columns)


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'perennial-client\[pandas\]'"):
        convert_from_json(types.Metrics, METRICS).to_pandas()


def test_an_answer_that_is_shown_asks_for_no_other_library(tmp_path: Path) -> None:
    program = (
        "import sys, perennial.notebook, perennial.comparison, perennial.frames, "
        "perennial.pictures\nprint([name for name in ('pandas', 'PIL', 'IPython', 'numpy') if name "
        "in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
