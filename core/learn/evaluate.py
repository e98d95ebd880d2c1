"""Answers of a version on a task's held-out part, and its accuracy as counts.

Evaluation is in eval mode, without augmentation, and in float32 on every device, as predictions are. In the
task scenario the task names the head; otherwise all known classes compete. A tie goes to the lowest row, so a
head of zeros predicts its first class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from core.learn.calibration.held_out import Logits
from core.learn.dataset import Dataset
from core.learn.networks import Network
from core.learn.networks.network import in_eval
from core.learn.precision import Inputs

BATCH = 256
PIXELS = 1 << 22
"""Pixels of a batch in one channel: batches of large images are smaller, or a pass would take gigabytes."""

Predict = Callable[[Network, Tensor, int | None], Tensor]
Losses = Callable[[Network, Tensor, Tensor, int | None], Tensor]
"""Losses [B] of inputs x and targets y, rows of a head."""


@dataclass(frozen=True)
class Result:
    """Correct predictions and images, in total and by class label."""

    correct: int
    total: int
    per_class: dict[str, list[int]]


@dataclass(frozen=True)
class Answers:
    """What a version says of N images, on the CPU.

    rows: int32 [N], of the head that was asked: indices into `Network.classes_of`. probabilities: float16 [N], that
    of this row, the softmax of what the method says over the version's temperature.
    """

    rows: Tensor
    probabilities: Tensor

    def right(self, targets: Tensor) -> Tensor:
        """bool [N]: for which images the row is the target, int64 [N]."""
        return self.rows == targets


def can_answer(network: Network, task: int, classes: Sequence[str]) -> bool:
    """Whether a version can be measured on a task: it has the task's head, or knows all of its classes."""
    if network.scenario == "task":
        return task in network.head_classes and set(classes) <= set(network.head_classes[task])
    return bool(classes) and set(classes) <= set(network.classes)


def correct_on_task(network: Network, data: Dataset, task: int, predict: Predict, inputs: Inputs) -> Tensor:
    """bool [N]: for which images of `data` (its `names` are labels) the predicted class is the label."""
    return answers_on_task(network, data, task, predict, inputs)[1]


def answers_on_task(
    network: Network, data: Dataset, task: int, predict: Predict, inputs: Inputs, temperature: float = 1.0
) -> tuple[Answers, Tensor]:
    """The answers on `data` (its `names` are labels), and bool [N]: which of them are right."""
    head = task if network.scenario == "task" else None
    targets = data.targets(network.classes_of(head))
    parts = [answers_of(said, temperature) for said in _said(network, data.images, head, predict, inputs)]
    rows = [torch.zeros(0, dtype=torch.int32), *(part.rows for part in parts)]
    probabilities = [torch.zeros(0, dtype=torch.float16), *(part.probabilities for part in parts)]
    answers = Answers(torch.cat(rows), torch.cat(probabilities))
    return answers, answers.right(targets)


def answers_of(logits: Tensor, temperature: float) -> Answers:
    """What logits [N, classes] answer; the probability is that of the softmax of logits / temperature."""
    row = logits.argmax(1, keepdim=True)
    probabilities = (logits.float() / temperature).softmax(1).gather(1, row)
    return Answers(row.squeeze(1).int().cpu(), probabilities.squeeze(1).half().cpu())


def logits_on_task(network: Network, data: Dataset, task: int, predict: Predict, inputs: Inputs) -> Logits:
    """What a version says of `data` (its `names` are labels), and which rows are right."""
    head = task if network.scenario == "task" else None
    classes = network.classes_of(head)
    said = [part.float().cpu() for part in _said(network, data.images, head, predict, inputs)]
    return Logits(torch.cat([torch.zeros(0, len(classes)), *said]), data.targets(classes))


def mean_loss(network: Network, data: Dataset, task: int, losses: Losses, inputs: Inputs) -> float:
    """Mean loss over the images of a held-out part, in eval mode; nan without images."""
    head = task if network.scenario == "task" else None
    targets = data.targets(network.classes_of(head))
    total = torch.zeros((), dtype=torch.float64)
    with in_eval(network), torch.inference_mode():
        size = batch_size(data.images)
        for x, y in zip(data.images.split(size), targets.split(size), strict=True):  # type: ignore[no-untyped-call]
            total += losses(network, inputs(x), y.to(inputs.device), head).double().sum().cpu()
    return float(total) / len(data) if len(data) else float("nan")


def batch_size(images: Tensor) -> int:
    """How many of these images [N, S, S, C] are measured in one pass."""
    return max(1, min(BATCH, PIXELS // (images.shape[1] * images.shape[2])))


def count_correct(data: Dataset, right: Tensor) -> Result:
    """The mask of `correct_on_task` as counts."""
    classes = len(data.names)
    total = torch.bincount(data.labels, minlength=classes).tolist()
    correct = torch.bincount(data.labels[right], minlength=classes).tolist()
    per_class = {name: [correct[i], total[i]] for i, name in enumerate(data.names) if total[i]}
    return Result(int(right.sum()), len(data), per_class)


def correct_predictions(
    network: Network, images: Tensor, targets: Tensor, head: int | None, predict: Predict, inputs: Inputs
) -> Tensor:
    """bool [N] on the CPU: whether the predicted row of the head is the target, int64 [N].

    images: uint8 [N, S, S, C]. The network's training modes are as before afterwards.
    """
    found = [said.argmax(1).cpu() for said in _said(network, images, head, predict, inputs)]
    return torch.cat(found) == targets if found else torch.zeros(0, dtype=torch.bool)


def _said(
    network: Network, images: Tensor, head: int | None, predict: Predict, inputs: Inputs
) -> Iterator[Tensor]:
    """What the method says of these images, [B, C] of a batch after the other; in eval mode."""
    with in_eval(network), torch.inference_mode():
        for part in images.split(batch_size(images)):  # type: ignore[no-untyped-call]
            yield predict(network, inputs(part), head)
