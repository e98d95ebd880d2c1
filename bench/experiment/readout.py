"""What a learned network answers on test sets, as integer counts per class.

From the logits of one head over all classes two protocols are read: class-incremental (all known
classes compete) and task-incremental (the classes of the image's own task compete). Ties go to the
lowest row. Always in eval mode, without augmentation and in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from core.learning.data.dataset import Dataset
from core.learning.methods.method import Method
from core.learning.networks import Network
from core.learning.precision import InputNormaliser
from core.learning.state import load_tensors

BATCH = 256


@dataclass(frozen=True)
class TaskTestImages:
    """Test images of one task, in a dataset file."""

    number: int
    file: Path
    classes: list[str]


@dataclass(frozen=True)
class TrainedBaseHeadAndTestImages:
    """Head, classes and test images of a trained base, to measure what is retained of it."""

    head: Path
    test: TaskTestImages


@torch.inference_mode()
def evaluate_by_protocol(
    network: Network,
    method: Method,
    inputs: InputNormaliser,
    tests: list[TaskTestImages],
    protocols: list[str],
) -> list[dict[str, Any]]:
    """Evaluate a network on test sets under each protocol; return a row of counts for each."""
    network.eval()
    rows = []
    for test in tests:
        data = Dataset.read_dataset_file(test.file, test.classes)
        head = test.number if network.scenario == "task" else None
        logits = _compute_in_batches(
            data, inputs, lambda x, head=head: method.predict_logits(network, x, head)
        )
        targets = data.convert_labels_to_targets(network.list_classes(head))
        task_classes = targets.unique()
        for protocol in protocols:
            within = protocol == "task" and head is None
            predictions = (
                task_classes[logits[:, task_classes].argmax(1)] if within else logits.argmax(1)
            )
            rows.append(
                {
                    "readout": protocol,
                    "test": test.number,
                    **_count_correct_images(data, predictions == targets),
                }
            )
    return rows


@torch.inference_mode()
def count_correct_on_base_test_images(
    network: Network, inputs: InputNormaliser, old: TrainedBaseHeadAndTestImages
) -> dict[str, Any]:
    """Count correct predictions on the base's test images with the base's own head.

    As the source-task accuracy of Varno et al. 2020.
    """
    network.eval()
    data = Dataset.read_dataset_file(old.test.file, old.test.classes)
    part = load_tensors(old.head)
    weight, bias = (part[f"head.{name}"].to(inputs.device) for name in ("weight", "bias"))
    logits = _compute_in_batches(
        data, inputs, lambda x: functional.linear(network.features(x), weight, bias)
    )
    return _count_correct_images(data, logits.argmax(1) == data.labels)


def _compute_in_batches(data: Dataset, inputs: InputNormaliser, compute_logits: Any) -> Tensor:
    def iterate_batch_results() -> Iterator[Tensor]:
        for images in data.images.split(BATCH):
            yield compute_logits(inputs(images)).float().cpu()

    return torch.cat(list(iterate_batch_results()))


def _count_correct_images(data: Dataset, right: Tensor) -> dict[str, Any]:
    classes = len(data.names)
    total = torch.bincount(data.labels, minlength=classes).tolist()
    correct = torch.bincount(data.labels[right], minlength=classes).tolist()
    per_class = {name: [correct[i], total[i]] for i, name in enumerate(data.names)}
    return {"correct": int(right.sum()), "total": len(data), "per_class": per_class}
