"""Classes that a version takes for each other, found in its answers."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from core.contract.jobs.job_result import LearnJobResult
from core.execution.result import JobProcessResult
from core.learning.evaluation import stored_predictions
from core.learning.problems.class_predictions import (
    ClassPredictions,
    choose_row_number_dtype,
    find_running_maximum_columns,
)
from core.publishing.confused_pairs import find_confused_pairs, find_confused_pairs_of_new_version
from tests.core.publishing.test_biased_head import make_job_result

CLASSES = ["cat", "dog", "owl"]


def make_confused_predictions(
    pairs: dict[tuple[int, int], int], width: int = 3
) -> ClassPredictions:
    """Return predictions in which images of one row are answered with another."""
    targets = torch.tensor(np.repeat([truth for truth, _ in pairs], list(pairs.values())))
    rows = torch.tensor(np.repeat([row for _, row in pairs], list(pairs.values())))
    scores = torch.zeros(len(rows), width).scatter(1, rows[:, None], 1.0)
    leaders, counts = find_running_maximum_columns(scores)
    kept = (part.to(choose_row_number_dtype(width)) for part in (targets, leaders, counts))
    return ClassPredictions(rows.int(), torch.ones(len(rows)).half(), *kept)


def write_result_folder(
    path: Path, by_task: dict[int, ClassPredictions], **more: Any
) -> JobProcessResult[LearnJobResult]:
    files = [
        file.to_json()
        for file in stored_predictions.write_prediction_file(
            path, {("new", t): a for t, a in by_task.items()}
        )
    ]
    document = make_job_result(1, 1, None, classes=CLASSES, answers=files, **more)
    return JobProcessResult(document, [], path)


@pytest.mark.parametrize(
    ("pairs", "confused"),
    [
        ({(0, 0): 15, (0, 1): 5, (1, 1): 15, (1, 0): 5}, True),
        ({(0, 0): 16, (0, 1): 4, (1, 1): 15, (1, 0): 5}, False),  # four images
        ({(0, 0): 16, (0, 1): 5, (1, 1): 15, (1, 0): 5}, False),  # less than a quarter
        ({(0, 0): 10, (0, 1): 10, (1, 1): 20}, False),  # in one direction
        ({(0, 1): 20, (1, 0): 20}, True),
    ],
)
def test_a_quarter_and_five_images_of_both_are_needed(pairs: Any, confused: bool) -> None:
    assert bool(list(find_confused_pairs(Counter(pairs), CLASSES))) is confused


def test_answers_of_all_tasks_are_counted_together_and_the_worst_pair_comes_first(
    tmp_path: Path,
) -> None:
    found = write_result_folder(
        tmp_path,
        {
            1: make_confused_predictions({(0, 0): 12, (0, 1): 8, (1, 1): 10, (1, 0): 4}),
            2: make_confused_predictions({(1, 0): 3, (1, 2): 9, (2, 2): 10, (2, 1): 11}),
        },
    )
    pairs = find_confused_pairs_of_new_version(found)
    assert [pair.labels for pair in pairs] == [("dog", "owl"), ("cat", "dog")]
    assert (pairs[1].confused, pairs[1].images) == ((8, 7), (20, 26))


def test_heads_of_their_own_are_counted_apart(tmp_path: Path) -> None:
    heads = [{"task": 1, "classes": ["cat", "dog"]}, {"task": 2, "classes": ["owl", "elk"]}]
    confused = make_confused_predictions({(0, 1): 6, (0, 0): 2, (1, 0): 6, (1, 1): 2}, 2)
    found = write_result_folder(
        tmp_path,
        {1: make_confused_predictions({(0, 0): 9, (1, 1): 9}, 2), 2: confused},
        heads=heads,
    )
    assert [(pair.labels, pair.task) for pair in find_confused_pairs_of_new_version(found)] == [
        (("owl", "elk"), 2)
    ]


def test_answers_from_before_the_true_classes_were_kept_say_nothing(tmp_path: Path) -> None:
    rows = torch.zeros(20, dtype=torch.int32)
    found = write_result_folder(tmp_path, {1: ClassPredictions(rows, torch.ones(20).half())})
    assert find_confused_pairs_of_new_version(found) == []


def test_pairs_of_all_tasks_are_those_that_counting_one_by_one_gives(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    by_task, counts = {}, Counter[tuple[int, int]]()
    for task in range(1, 8):
        drawn = torch.randint(0, 3, (40, 2), generator=generator).tolist()
        by_task[task] = make_confused_predictions(Counter(map(tuple, drawn)))
        counts.update(map(tuple, drawn))
    told = find_confused_pairs_of_new_version(write_result_folder(tmp_path, by_task))
    assert len(told) == 3
    assert sorted(told, key=str) == sorted(find_confused_pairs(counts, CLASSES), key=str)
