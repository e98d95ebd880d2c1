"""Predictions of a version on a task's held-out part, and its accuracy as counts.

Evaluation is in eval mode, without augmentation, and in float32 on every device, as predictions
are. In the task scenario the task names the head; otherwise all known classes compete. A tie goes
to the lowest row, so a head of zeros predicts its first class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from core.learn.calibration.held_out import Logits
from core.learn.dataset import Dataset
from core.learn.networks import Network
from core.learn.networks.network import in_eval
from core.learn.precision import Inputs, full_precision

BATCH = 256
PIXELS = 1 << 20
"""Maximum number of pixels in a batch, in one channel.

Batches of large images are smaller, or a pass would take gigabytes.
"""

Predict = Callable[[Network, Tensor, int | None], Tensor]
Losses = Callable[[Network, Tensor, Tensor, int | None], Tensor]
"""Function that returns losses [B] of inputs x and targets y, rows of a head."""


@dataclass(frozen=True)
class Result:
    """Correct predictions and images, in total and by class label."""

    correct: int
    total: int
    per_class: dict[str, list[int]]


@dataclass(frozen=True)
class Answers:
    """Predictions of a version for N images, on the CPU.

    The last leader below row k is the best of the first k classes, which an older version knew. The
    last three have the smallest integer type that holds the head's rows; None in older files
    without them.

    Attributes:
        rows: int32 [N], predicted rows of the head: indices into `Network.classes_of`.
        probabilities: float16 [N], of the predicted row, in the softmax of the method's logits over
            the version's temperature.
        targets: [N], the true rows.
        leaders: the rows of each image that score higher than all rows before them, ascending,
            image after image.
        leader_counts: [N], number of leaders of each image.
    """

    rows: Tensor
    probabilities: Tensor
    targets: Tensor | None = None
    leaders: Tensor | None = None
    leader_counts: Tensor | None = None

    def mask_correct(self, targets: Tensor) -> Tensor:
        """Return bool [N], true where the predicted row is the target, int64 [N]."""
        return self.rows == targets


def can_answer(network: Network, task: int, classes: Sequence[str]) -> bool:
    """Return true if a version can be measured on a task.

    It must have the task's head, or know all of its classes.
    """
    if network.scenario == "task":
        return task in network.head_classes and set(classes) <= set(network.head_classes[task])
    return bool(classes) and set(classes) <= set(network.classes)


def correct_on_task(
    network: Network, data: Dataset, task: int, predict: Predict, inputs: Inputs
) -> Tensor:
    """Return bool [N], true for images of `data` with a correct prediction.

    `data.names` are class labels.
    """
    return answers_on_task(network, data, task, predict, inputs)[1]


def answers_on_task(
    network: Network,
    data: Dataset,
    task: int,
    predict: Predict,
    inputs: Inputs,
    temperature: float = 1.0,
) -> tuple[Answers, Tensor]:
    """Return the predictions on `data`, and bool [N], true for correct ones.

    `data.names` are class labels.
    """
    head = task if network.scenario == "task" else None
    targets = data.to_targets(network.classes_of(head))
    parts, start = [], 0
    for logits in _predict_batches(network, data.images, head, predict, inputs):
        parts.append(answers_of(logits, targets[start : start + len(logits)], temperature))
        start += len(logits)
    predictions = _join_answers(parts, len(network.classes_of(head)))
    return predictions, predictions.mask_correct(targets)


def answers_of(logits: Tensor, targets: Tensor, temperature: float) -> Answers:
    """Return the predictions of logits [N, classes], with the softmax of logits / temperature.

    targets: int64 [N], the true rows.
    """
    leaders, counts = find_running_maxima(logits)
    integers = smallest_integers(logits.shape[1])
    return Answers(
        *pick_rows(logits, temperature),
        targets.to(integers),
        leaders.to(integers).cpu(),
        counts.to(integers).cpu(),
    )


def pick_rows(logits: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the rows with the highest logits, int32 [N], and their probabilities, float16 [N].

    Both are on the CPU.
    """
    row = logits.argmax(1, keepdim=True)
    probabilities = (logits.float() / temperature).softmax(1).gather(1, row)
    # Half precision is enough to show a probability, and a quarter of the bytes is stored.
    return row.squeeze(1).int().cpu(), probabilities.squeeze(1).half().cpu()


def _join_answers(parts: list[Answers], classes: int) -> Answers:
    """Concatenate predictions of one head with `classes` classes."""
    # An empty part, so that a task without images has tensors of the right types.
    none = torch.zeros(0, dtype=smallest_integers(classes))
    empty = Answers(
        torch.zeros(0, dtype=torch.int32), torch.zeros(0, dtype=torch.float16), none, none, none
    )
    listed = [empty, *parts]
    names = [field.name for field in fields(Answers)]
    return Answers(*(torch.cat([getattr(part, name) for part in listed]) for name in names))


def logits_on_task(
    network: Network, data: Dataset, task: int, predict: Predict, inputs: Inputs
) -> Logits:
    """Return a version's logits on `data`, with the true rows. `data.names` are class labels."""
    head = task if network.scenario == "task" else None
    classes = network.classes_of(head)
    parts = [
        part.float().cpu() for part in _predict_batches(network, data.images, head, predict, inputs)
    ]
    return Logits(torch.cat([torch.zeros(0, len(classes)), *parts]), data.to_targets(classes))


def find_running_maxima(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Find the columns that score higher than all columns before them, ascending, for each row.

    `argmax` of the first k columns is the last such column below k: both take the lowest of equal
    scores.

    Args:
        scores: [B, C].

    Returns:
        The columns of all rows one after the other, and their number by row [B].
    """
    scores = scores.nan_to_num(
        nan=math.inf, posinf=math.inf, neginf=-math.inf
    )  # argmax treats nan as the greatest value
    # The first column has none before it, so it always leads.
    leads = torch.ones_like(scores, dtype=torch.bool)
    leads[:, 1:] = scores[:, 1:] > scores.cummax(1).values[:, :-1]
    return leads.nonzero()[:, 1], leads.sum(1)


def smallest_integers(classes: int) -> torch.dtype:
    """Choose the smallest integer type that holds a head's rows and their number."""
    # At most 255: the number of leaders, up to the number of rows, must fit as well.
    if classes <= torch.iinfo(torch.uint8).max:
        return torch.uint8
    return torch.int16 if classes <= torch.iinfo(torch.int16).max else torch.int32


def mean_loss(network: Network, data: Dataset, task: int, losses: Losses, inputs: Inputs) -> float:
    """Return the mean loss over the images of a held-out part, in eval mode; nan without images."""
    head = task if network.scenario == "task" else None
    targets = data.to_targets(network.classes_of(head))
    # In float64 on the CPU: the sum does not depend on the device.
    total = torch.zeros((), dtype=torch.float64)
    with in_eval(network), full_precision(inputs.device), torch.inference_mode():
        size = batch_size(data.images)
        for x, y in zip(data.images.split(size), targets.split(size), strict=True):  # type: ignore[no-untyped-call]
            total += losses(network, inputs(x), y.to(inputs.device), head).double().sum().cpu()
    return float(total) / len(data) if len(data) else float("nan")


def batch_size(images: Tensor) -> int:
    """Return the number of images [N, S, S, C], or features [N, D], to measure in one pass."""
    if images.dim() == 2:
        return BATCH
    return max(1, min(BATCH, PIXELS // (images.shape[1] * images.shape[2])))


def count_correct(data: Dataset, right: Tensor) -> Result:
    """Count the mask of `correct_on_task`, in total and by class."""
    classes = len(data.names)
    total = torch.bincount(data.labels, minlength=classes).tolist()
    correct = torch.bincount(data.labels[right], minlength=classes).tolist()
    per_class = {name: [correct[i], total[i]] for i, name in enumerate(data.names) if total[i]}
    return Result(int(right.sum()), len(data), per_class)


def correct_predictions(
    network: Network,
    images: Tensor,
    targets: Tensor,
    head: int | None,
    predict: Predict,
    inputs: Inputs,
) -> Tensor:
    """Return bool [N] on the CPU, true where the predicted row of the head is the target.

    The network's training modes are restored afterwards.

    Args:
        network: the network.
        images: uint8 [N, S, S, C].
        targets: int64 [N].
        head: the head's task; None for a single head.
        predict: the prediction function.
        inputs: conversion of images to inputs.
    """
    predicted = [
        logits.argmax(1).cpu()
        for logits in _predict_batches(network, images, head, predict, inputs)
    ]
    return torch.cat(predicted) == targets if predicted else torch.zeros(0, dtype=torch.bool)


def _predict_batches(
    network: Network, images: Tensor, head: int | None, predict: Predict, inputs: Inputs
) -> Iterator[Tensor]:
    """Yield the predicted scores of these images [B, C], batch after batch, in eval mode."""
    with in_eval(network), full_precision(inputs.device), torch.inference_mode():
        for part in images.split(batch_size(images)):  # type: ignore[no-untyped-call]
            yield predict(network, inputs(part), head)
