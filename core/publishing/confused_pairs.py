"""Pairs of classes that a version confuses, found in predictions on held-out images."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from core.contract.jobs.job_result import LearnJobResult
from core.execution.result import JobProcessResult
from core.ingest.stored_predictions import (
    PredictionsByKnownClassCount,
    parse_predictions_by_known_class_count,
    read_predictions_written_by_job,
)

SHARE = 0.25
"""Minimum share, in [0, 1], of each class's held-out images predicted as the other class."""
LEAST_IMAGES = 5
"""Minimum number of images of each class predicted as the other class."""


@dataclass(frozen=True)
class ConfusedPair:
    """Two classes whose images a version often predicts as each other.

    Attributes:
        labels: the two classes.
        confused: images of each class that are predicted as the other.
        images: held-out images of each class.
        task: task of the classes if each task has its own, else 0.
    """

    labels: tuple[str, str]
    confused: tuple[int, int]
    images: tuple[int, int]
    task: int = 0


def find_confused_pairs_of_new_version(
    result: JobProcessResult[LearnJobResult],
) -> list[ConfusedPair]:
    """Return the pairs of classes that the new version confuses, the worst first.

    Predictions that are stored without true classes are ignored.
    """
    document = result.document
    if document.problem is not None:  # its predictions are no rows of classes
        return []
    heads = {head.task: head.classes for head in document.heads}
    answers_by_task: dict[int, list[PredictionsByKnownClassCount]] = {}
    predictions = read_predictions_written_by_job(result.folder, document.answers)
    for (version, task), data in predictions.items():
        ranked = parse_predictions_by_known_class_count(data) if version == "new" else None
        if ranked is not None and len(ranked.rows):
            # Without heads a class is the same in all tasks, so its images are summed up.
            answers_by_task.setdefault(task if heads else 0, []).append(ranked)
    confused = [
        pair
        for task, task_predictions in answers_by_task.items()
        for pair in find_confused_pairs(
            _count_true_and_predicted_class_pairs(task_predictions),
            heads[task] if task else document.classes,
            task,
        )
    ]
    return sorted(confused, key=_compute_min_confused_share, reverse=True)


def _count_true_and_predicted_class_pairs(
    predictions: list[PredictionsByKnownClassCount],
) -> Counter[tuple[int, int]]:
    """Count the images by (true class row, predicted class row)."""
    targets = np.concatenate([ranked.targets for ranked in predictions]).astype(np.int64)
    rows = np.concatenate([ranked.rows for ranked in predictions])
    # As one number each: numbers are counted faster than pairs.
    size = int(rows.max()) + 1
    pairs, counts = np.unique(targets * size + rows, return_counts=True)
    both = zip((pairs // size).tolist(), (pairs % size).tolist(), strict=True)
    return Counter(dict(zip(both, counts.tolist(), strict=True)))


def find_confused_pairs(
    counts: Counter[tuple[int, int]], classes: list[str], task: int = 0
) -> Iterable[ConfusedPair]:
    """Find pairs of confused classes among the predictions of one head.

    Args:
        counts: number of images by (true row, predicted row).
        classes: labels of the rows.
    """
    images: Counter[int] = Counter()
    for (truth, _), count in counts.items():
        images[truth] += count
    for (first, second), count in counts.items():
        mutual = (count, counts.get((second, first), 0))
        # Each pair is in the table twice, once in each direction.
        if first < second and all(
            confused >= LEAST_IMAGES and confused >= SHARE * images[row]
            for row, confused in zip((first, second), mutual, strict=True)
        ):
            yield ConfusedPair(
                (classes[first], classes[second]), mutual, (images[first], images[second]), task
            )


def _compute_min_confused_share(pair: ConfusedPair) -> float:
    """Return the smaller of the two classes' shares of images predicted as the other class."""
    return min(
        confused / images for confused, images in zip(pair.confused, pair.images, strict=True)
    )
