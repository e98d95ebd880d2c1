"""Comparison of a new version with its parent and with version 0.

It compares predictions image by image, weights by their distance, and features by the k-NN probe.
The probe also covers images of tasks that the version had not learned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from core.learning.data.dataset import Dataset
from core.learning.evaluation.evaluate import Predict, can_predict_task, predict_and_score_dataset
from core.learning.evaluation.probe import VersionKnnProbe
from core.learning.networks import Network
from core.learning.networks.linear.linearised import LinearisedNetwork
from core.learning.precision import InputNormaliser
from core.learning.problems.problem import PredictionBatch
from core.learning.recipe import is_head_parameter
from core.statistics.near_duplicates import Hashes

Report = Callable[[str, dict[str, Any], float | None], None]
"""Called for each compared task with metric name, counts and value, since a pass may take long."""


@dataclass(frozen=True)
class ComparedParent:
    """The parent version to compare a new one with: network, prediction function and correct
    predictions.

    Attributes:
        predict: the `predict_logits` of its method.
        known: task → its correct predictions, bool [N], where they are stored.
    """

    network: Network
    predict: Predict
    temperature: float = 1.0
    known: Mapping[int, Tensor] = field(default_factory=dict)


def count_prediction_changes_since_parent(
    parent: ComparedParent,
    parts: Mapping[int, Dataset],
    right: Mapping[int, Tensor],
    inputs: InputNormaliser,
    report: Report,
) -> tuple[dict[str, dict[str, int]], dict[int, PredictionBatch]]:
    """Count how predictions changed from the parent to the new version, on tasks that both can
    predict.

    Returns task → {"regressed", "improved", "total"}, and the parent's predictions as far as they
    were not known.

    Args:
        right: task → which of the new version's predictions are right, bool [N].
    """
    changes: dict[str, dict[str, int]] = {}
    predictions: dict[int, PredictionBatch] = {}
    for task, after in right.items():
        data = parts[task]
        # A task with a class that the parent lacks has no prediction to compare with.
        if not can_predict_task(parent.network, task, data.list_outputs_needed_to_measure()):
            continue
        before = parent.known.get(task)
        if before is None:
            predictions[task], scores = predict_and_score_dataset(
                parent.network, data, task, parent.predict, inputs, parent.temperature
            )
            before = data.problem.mask_right_scores(scores)
        counts = count_correctness_changes(before, after)
        gained = (counts["improved"] - counts["regressed"]) / counts["total"]
        report("accuracy_change", {"task": task, **counts}, gained)
        changes[str(task)] = counts
    return changes, predictions


def count_correctness_changes(before: Tensor, after: Tensor) -> dict[str, int]:
    """Count changes from right to wrong and back between two versions, given masks bool [N]."""
    return {
        "regressed": int((before & ~after).sum()),
        "improved": int((after & ~before).sum()),
        "total": before.numel(),
    }


def run_knn_probe_on_tasks(
    probe: VersionKnnProbe,
    parts: Mapping[int, Dataset],
    hashes: Mapping[int, Hashes | None],
    report: Report,
) -> dict[str, Any]:
    """Run the k-NN probe of the new version's features on every task: {"all", "tasks": {task: …}}.

    Counts are [correct, total].

    Args:
        probe: that of the new version, before it has measured a task.
        parts: held-out images of each task, or their features by the new version.
        hashes: of the held-out images of each task, which identify near duplicates.
    """
    tasks: dict[str, list[int]] = {}
    for number, data in parts.items():
        # Texts as keys, since the figures become JSON.
        correct, total = tasks[str(number)] = probe.probe_task(number, data, hashes.get(number))
        share = correct / total if total else None
        report("knn_probe", {"task": number, "correct": correct, "total": total}, share)
    return {"all": probe.probe_all_tasks_together(), "tasks": tasks}


def compute_weight_update_norm(
    network: Network, start: Mapping[str, Tensor], names: set[str]
) -> dict[str, float | None]:
    """Compute the distance ‖θ_new - θ_old‖₂ that an update moved the weights, over the set S.

    `backbone` covers all that computes features, prompts included. `relative` is the whole divided
    by ‖θ_old‖₂, or None when that is 0.
    """
    moved = {"backbone": 0.0, "head": 0.0}
    norm = 0.0
    for name, parameter in network.named_parameters():
        # New parameters have no start: their length is no distance.
        if name not in names or name not in start:
            continue
        group = "head" if is_head_parameter(name) else "backbone"
        moved[group] += _compute_squared_distance(parameter, start[name])
        # In float64: millions of small squares are added.
        norm += float(start[name].double().square().sum())
    total = moved["backbone"] + moved["head"]
    return {
        "backbone": moved["backbone"] ** 0.5,
        "head": moved["head"] ** 0.5,
        "relative": (total / norm) ** 0.5 if norm > 0 else None,
    }


def measure_weight_drift_from_base(network: Network, base: Mapping[str, Tensor]) -> float:
    """Compute the distance ‖θ - θ_0‖₂ of a backbone's weights from those of version 0.

    For a linearised network it is the norm of the displacement from its frozen weights.
    """
    if isinstance(network, LinearisedNetwork) and network.frozen:
        moved = [
            _compute_squared_distance(p, torch.zeros_like(p))
            for p in network.displacement.parameters()
        ]
        return float(sum(moved) ** 0.5)
    parameters = dict(network.named_parameters())
    shared = [name for name in base if name in parameters and not is_head_parameter(name)]
    return float(
        sum(_compute_squared_distance(parameters[name], base[name]) for name in shared) ** 0.5
    )


@torch.no_grad()
def _compute_squared_distance(parameter: Tensor, old: Tensor) -> float:
    # Contiguous, since sums in another memory layout differ in the last bit.
    new = parameter.detach().cpu().double().contiguous()[tuple(slice(size) for size in old.shape)]
    return float((new - old.detach().cpu().double()).square().sum())
