"""Predictions of a version on a task's held-out part, and its accuracy as counts.

The problem of the data decodes and scores outputs.

Evaluation is in eval mode, without augmentation, and in float32 on every device, as predictions
are. In the task scenario the task names the head; otherwise all known classes compete. A tie goes
to the lowest row, so a head of zeros predicts its first class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from core.learning.data.dataset import Dataset
from core.learning.evaluation.calibration.held_out import HeldOutLogits
from core.learning.networks import Network
from core.learning.networks.network import use_eval_mode
from core.learning.precision import InputNormaliser, use_full_precision
from core.learning.problems.class_predictions import (
    ClassPredictions,
    make_class_predictions,
    split_class_predictions,
)
from core.learning.problems.classification import CLASSIFICATION
from core.learning.problems.problem import PredictionBatch, Problem

BATCH = 256
PIXELS = 1 << 20
"""Maximum number of pixels in a batch, in one channel.

Batches of large images are smaller, or a pass would take gigabytes.
"""

DECODED_NUMBERS = 1 << 20
"""Logits decoded at once: the copies that decoding makes stay a small part of all logits."""

Predict = Callable[[Network, Tensor, int | None], Tensor]
Losses = Callable[[Network, Tensor, Tensor, int | None], Tensor]
"""Function that returns losses [B] of inputs x and targets y, rows of a head."""


@dataclass(frozen=True)
class CorrectPredictionCounts:
    """Result of an evaluation: correct predictions and images, in total and by class label.

    `measure`: the problem's primary measure; None where it is `correct` / `total`.
    """

    correct: int
    total: int
    per_class: dict[str, list[int]]
    measure: float | None = None


@dataclass(frozen=True)
class EvaluationImages:
    """Images whose predictions are scored, such as the validation part of a task.

    Attributes:
        images: uint8 [N, S, S, C], or features [N, D].
        targets: [N, …], the problem's targets for the head in use.
        problem: what a target is.
    """

    images: Tensor
    targets: Tensor
    problem: Problem[Any] = CLASSIFICATION


def can_predict_task(network: Network, task: int, outputs: Sequence[str]) -> bool:
    """Return true if a version can predict a task, and thus be measured on it.

    It must have the task's head, or all outputs that the task needs.
    """
    if network.scenario == "task":
        return task in network.head_classes and set(outputs) <= set(network.head_classes[task])
    return bool(outputs) and set(outputs) <= set(network.classes)


def score_network_on_task(
    network: Network, data: Dataset, task: int, predict: Predict, inputs: InputNormaliser
) -> Tensor:
    """Compute the score of each prediction of a version on a task's dataset, [N]."""
    return predict_and_score_dataset(network, data, task, predict, inputs)[1]


def predict_and_score_dataset(
    network: Network,
    data: Dataset,
    task: int,
    predict: Predict,
    inputs: InputNormaliser,
    temperature: float = 1.0,
) -> tuple[PredictionBatch, Tensor]:
    """Predict a dataset's images; return the predictions and their scores [N]."""
    head = task if network.scenario == "task" else None
    problem, targets = data.problem, data.convert_labels_to_targets(network.list_classes(head))
    parts, start = [], 0
    for outputs in _iterate_outputs_by_batch(network, data.images, head, predict, inputs):
        parts.append(problem.decode(outputs, targets[start : start + len(outputs)], temperature))
        start += len(outputs)
    predictions = problem.concatenate_predictions(parts, len(network.list_classes(head)))
    return predictions, problem.score(predictions, targets)


def compute_task_logits(
    network: Network, data: Dataset, task: int, predict: Predict, inputs: InputNormaliser
) -> HeldOutLogits:
    """Compute a version's logits on a task's dataset, with the target rows."""
    head = task if network.scenario == "task" else None
    classes = network.list_classes(head)
    parts = [
        part.float().cpu()
        for part in _iterate_outputs_by_batch(network, data.images, head, predict, inputs)
    ]
    return HeldOutLogits(
        torch.cat([torch.zeros(0, len(classes)), *parts]), data.convert_labels_to_targets(classes)
    )


def compute_logits_of_tasks(
    network: Network,
    parts: Mapping[int, Dataset],
    predict: Predict,
    inputs: InputNormaliser,
    alive: Callable[[], None],
) -> dict[int, HeldOutLogits]:
    """Compute a version's logits on the held-out dataset of each task.

    Features of many tasks pass in batches of all: most tasks have fewer images than a batch.

    Args:
        parts: task → its images, or features of them.
        alive: called after each part that passes on its own.
    """
    are_features = all(data.images.dim() == 2 for data in parts.values())
    if network.scenario == "task" or not are_features or not parts:
        logits: dict[int, HeldOutLogits] = {}
        for task, data in parts.items():
            logits[task] = compute_task_logits(network, data, task, predict, inputs)
            alive()
        return logits
    images = torch.cat([data.images for data in parts.values()])
    values = torch.cat(
        [
            part.float().cpu()
            for part in _iterate_outputs_by_batch(network, images, None, predict, inputs)
        ]
    )
    classes = network.list_classes(None)
    sizes = [len(data) for data in parts.values()]
    return {
        task: HeldOutLogits(of_task, data.convert_labels_to_targets(classes))
        for (task, data), of_task in zip(parts.items(), values.split(sizes), strict=True)  # type: ignore[no-untyped-call]
    }


def make_class_predictions_of_tasks(
    logits: Mapping[int, HeldOutLogits], temperature: float
) -> dict[int, ClassPredictions]:
    """Return the predictions of each task's logits, with the softmax of logits / temperature.

    Tasks are decoded many at once, and each image has the prediction that it has alone: most tasks
    have few images.

    Args:
        logits: task → its logits. Heads of consecutive tasks may differ in width.
    """
    predictions: dict[int, ClassPredictions] = {}
    for group in _group_tasks_to_decode(logits):
        parts = [logits[task] for task in group]
        decoded = make_class_predictions(
            torch.cat([part.values for part in parts]),
            torch.cat([part.targets for part in parts]),
            temperature,
        )
        split = split_class_predictions(decoded, [len(part.targets) for part in parts])
        predictions |= dict(zip(group, split, strict=True))
    return predictions


def _group_tasks_to_decode(logits: Mapping[int, HeldOutLogits]) -> Iterator[list[int]]:
    """Yield groups of consecutive tasks whose heads are equally wide, of few logits in all."""
    group: list[int] = []
    numbers, width = 0, 0
    for task, part in logits.items():
        size = part.values.numel()
        if group and (part.values.shape[1] != width or numbers + size > DECODED_NUMBERS):
            yield group
            group, numbers = [], 0
        group.append(task)
        numbers, width = numbers + size, part.values.shape[1]
    if group:
        yield group


def compute_mean_loss(
    network: Network, data: Dataset, task: int, losses: Losses, inputs: InputNormaliser
) -> float:
    """Compute the mean loss over a dataset's images, in eval mode; nan without images."""
    head = task if network.scenario == "task" else None
    targets = data.convert_labels_to_targets(network.list_classes(head))
    # In float64 on the CPU: the sum does not depend on the device.
    total = torch.zeros((), dtype=torch.float64)
    with use_eval_mode(network), use_full_precision(inputs.device), torch.inference_mode():
        size = choose_evaluation_batch_size(data.images)
        for x, y in zip(data.images.split(size), targets.split(size), strict=True):  # type: ignore[no-untyped-call]
            total += losses(network, inputs(x), y.to(inputs.device), head).double().sum().cpu()
    return float(total) / len(data) if len(data) else float("nan")


def choose_evaluation_batch_size(images: Tensor) -> int:
    """Choose the number of images [N, S, S, C], or features [N, D], to evaluate in one pass."""
    if images.dim() == 2:
        return BATCH
    return max(1, min(BATCH, PIXELS // (images.shape[1] * images.shape[2])))


def count_correct_by_class(data: Dataset, scores: Tensor) -> CorrectPredictionCounts:
    """Count correct predictions by scores [N], in total and by class."""
    problem, right = data.problem, data.problem.mask_right_scores(scores)
    per_class = problem.count_right_by_class(right, data.labels, data.names)
    # A mean of right or wrong is the quotient of the counts, so it is not stored twice.
    is_share = scores.dtype == torch.bool or not len(scores)
    measure = None if is_share else problem.measure(scores)
    return CorrectPredictionCounts(int(right.sum()), len(data), per_class, measure)


def score_network_on_images(
    network: Network,
    part: EvaluationImages,
    head: int | None,
    predict: Predict,
    inputs: InputNormaliser,
) -> Tensor:
    """Score a network's predictions of images, [N], on the CPU.

    The network's training modes are restored afterwards.

    Args:
        network: the network.
        part: the images with their targets.
        head: the head's task; None for a single head.
        predict: the prediction function.
        inputs: conversion of images to inputs.
    """
    scores, start = [], 0
    for outputs in _iterate_outputs_by_batch(network, part.images, head, predict, inputs):
        targets = part.targets[start : start + len(outputs)]
        scores.append(part.problem.score_outputs(outputs, targets))
        start += len(outputs)
    return torch.cat(scores) if scores else torch.zeros(0, dtype=torch.bool)


def _iterate_outputs_by_batch(
    network: Network, images: Tensor, head: int | None, predict: Predict, inputs: InputNormaliser
) -> Iterator[Tensor]:
    """Yield the network's outputs [B, C] for images, batch after batch, in eval mode."""
    with use_eval_mode(network), use_full_precision(inputs.device), torch.inference_mode():
        for part in images.split(choose_evaluation_batch_size(images)):  # type: ignore[no-untyped-call]
            yield predict(network, inputs(part), head)
