"""Stored answers: what a job writes is read again, files from before too."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save

from core.ingest.stored_predictions import (
    parse_predictions,
    parse_predictions_by_known_class_count,
    read_predictions_written_by_job,
)
from core.learning.evaluation import stored_predictions
from core.learning.problems.class_predictions import (
    ClassPredictions,
    choose_row_number_dtype,
    find_running_maximum_columns,
)
from core.learning.problems.classification import CLASSIFICATION


def write_predictions(folder: Path, scores: torch.Tensor) -> bytes:
    """Write the predictions of a version that gives these scores [N, C], and return the bytes as
    the service reads them.
    """
    integers = choose_row_number_dtype(scores.shape[1])
    leaders, counts = find_running_maximum_columns(scores)
    rows = scores.argmax(1).int().clone()
    answers = ClassPredictions(
        rows,
        torch.ones(len(rows)).half(),
        rows.clone().to(integers),
        leaders.to(integers),
        counts.to(integers),
    )
    files = stored_predictions.write_prediction_file(folder, {("new", 3): answers})
    return read_predictions_written_by_job(folder, files)["new", 3]


@pytest.mark.parametrize("classes", [1, 7, 300, 40_000])
def test_the_best_of_the_first_classes_is_their_argmax(tmp_path: Path, classes: int) -> None:
    scores = torch.randn(20, classes, generator=torch.Generator().manual_seed(classes)).round(
        decimals=1
    )
    answers = parse_predictions_by_known_class_count(write_predictions(tmp_path, scores))
    assert answers is not None
    for known in {1, (classes + 1) // 2, classes}:  # rounded scores: ties go to the lowest row
        assert (
            answers.choose_best_known_classes(known).tolist()
            == scores[:, :known].argmax(1).tolist()
        )


def test_a_file_without_images_has_no_best(tmp_path: Path) -> None:
    answers = parse_predictions_by_known_class_count(write_predictions(tmp_path, torch.zeros(0, 3)))
    assert answers is not None and answers.choose_best_known_classes(2).tolist() == []


def test_scores_that_are_no_numbers_lead_as_they_win() -> None:
    scores = torch.tensor([[0.0, float("nan"), 5.0], [float("-inf"), float("-inf"), 1.0]])
    leaders, counts = find_running_maximum_columns(scores)
    assert counts.tolist() == [2, 2] and leaders.tolist() == [0, 1, 0, 2]
    assert scores.argmax(1).tolist() == [1, 2]


def test_answers_from_before_are_read_and_have_no_ranking() -> None:
    rows = np.array([2, 0], np.int32)
    data = save({"rows": rows, "probabilities": np.ones(2, np.float16)})
    assert parse_predictions(data)[0].tolist() == [2, 0]
    assert parse_predictions_by_known_class_count(data) is None


@pytest.mark.parametrize(
    "broken", [{"leader_counts": [1, 2]}, {"leader_counts": [2, 0]}, {"targets": [0]}]
)
def test_rankings_that_do_not_fit_the_images_are_refused(
    broken: dict[str, list[int]],
) -> None:
    tensors = {"targets": [0, 1], "leaders": [0, 1], "leader_counts": [1, 1], **broken}
    arrays = {name: np.array(values, np.uint8) for name, values in tensors.items()}
    oldest = {"rows": np.zeros(2, np.int32), "probabilities": np.ones(2, np.float16)}
    with pytest.raises(ValueError, match="leaders do not belong"):
        parse_predictions_by_known_class_count(save({**arrays, **oldest}))


def test_a_snapshot_gives_its_answers_back_also_one_from_before() -> None:
    rows, probabilities = torch.zeros(2).int(), torch.ones(2).half()
    now = ClassPredictions(
        rows, probabilities, *(torch.ones(2, dtype=torch.uint8) for _ in range(3))
    )
    kept = {("new", 1): now, ("parent", 2): ClassPredictions(rows, probabilities)}
    tensors = stored_predictions.convert_predictions_to_snapshot_tensors(kept)
    back = stored_predictions.pop_predictions_from_snapshot(tensors, CLASSIFICATION)
    assert not tensors and back["new", 1].leaders is not None and back["parent", 2].leaders is None
