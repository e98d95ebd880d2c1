"""What one task changed: the new version against its parent and against version 0.

Answers image by image (what the parent knew and the new version does not), weights by their distance, and
features by the k-NN probe, on images that the version had not learned as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from core.learn.dataset import Dataset
from core.learn.evaluate import Predict, answers, can_answer
from core.learn.networks import Network
from core.learn.networks.linearised import LinearisedNetwork
from core.learn.precision import Inputs
from core.learn.probe import Probe
from core.learn.recipe import is_head

Report = Callable[[str, dict[str, Any], float | None], None]
"""Told of each task that was compared, since a pass may take long: a name, counts and their figure."""


def changed_answers(
    parent: Network,
    predict: Predict,
    parts: Mapping[int, Dataset],
    right: Mapping[int, Tensor],
    inputs: Inputs,
    report: Report,
) -> dict[str, dict[str, int]]:
    """Task → {"regressed", "improved", "total"} over its held-out part, for tasks that both can answer.

    Args:
        predict: how the parent answers.
        right: task → the new version's `answers`.
    """
    found: dict[str, dict[str, int]] = {}
    for task, after in right.items():
        data = parts[task]
        if not can_answer(parent, task, present(data)):
            continue
        counts = changed(answers(parent, data, task, predict, inputs), after)
        gained = (counts["improved"] - counts["regressed"]) / counts["total"]
        report("accuracy_change", {"task": task, **counts}, gained)
        found[str(task)] = counts
    return found


def changed(before: Tensor, after: Tensor) -> dict[str, int]:
    """From the `answers` of two versions to the same images: bool [N] each."""
    return {
        "regressed": int((before & ~after).sum()),
        "improved": int((after & ~before).sum()),
        "total": before.numel(),
    }


def probed(
    network: Network,
    older: Mapping[str, Network],
    parts: Mapping[int, Dataset],
    task: int,
    inputs: Inputs,
    report: Report,
) -> dict[str, Any]:
    """The k-NN probe of the new version: {"all", "tasks": {task: …}, "before": {name: …}}.

    Counts are [correct, total]; `before` has the older networks on the new task alone.
    """
    probe = Probe(network, len(parts), inputs)
    tasks: dict[str, list[int]] = {}
    for number, data in parts.items():
        correct, total = tasks[str(number)] = probe.task(number, data)
        share = correct / total if total else None
        report("knn_probe", {"task": number, "correct": correct, "total": total}, share)
    before = {
        name: Probe(net, 1, inputs).task(task, parts[task]) for name, net in older.items() if task in parts
    }
    return {"all": probe.all(), "tasks": tasks, "before": before}


def present(data: Dataset) -> list[str]:
    """The classes that have images."""
    return [data.names[i] for i in data.labels.unique().tolist()]  # type: ignore[no-untyped-call]


def update_norm(network: Network, start: Mapping[str, Tensor], names: set[str]) -> dict[str, float | None]:
    """‖θ_new - θ_old‖₂ over the set S, rows and columns that both have; `relative` to ‖θ_old‖₂.

    `backbone` is all that makes features, prompts included. `relative` is None when the old norm is zero.
    """
    moved = {"backbone": 0.0, "head": 0.0}
    norm = 0.0
    for name, parameter in network.named_parameters():
        if name not in names or name not in start:
            continue
        group = "head" if is_head(name) else "backbone"
        moved[group] += _squared_distance(parameter, start[name])
        norm += float(start[name].double().square().sum())
    total = moved["backbone"] + moved["head"]
    return {
        "backbone": moved["backbone"] ** 0.5,
        "head": moved["head"] ** 0.5,
        "relative": (total / norm) ** 0.5 if norm > 0 else None,
    }


def drift(network: Network, base: Mapping[str, Tensor]) -> float:
    """‖θ - θ_0‖₂ over the parameters of version 0's backbone, whether or not this task may move them.

    Of a linearised network: the norm of its displacement, whose base are the weights that were frozen.
    """
    if isinstance(network, LinearisedNetwork) and network.frozen:
        moved = [_squared_distance(p, torch.zeros_like(p)) for p in network.displacement.parameters()]
        return float(sum(moved) ** 0.5)
    parameters = dict(network.named_parameters())
    shared = [name for name in base if name in parameters and not is_head(name)]
    return float(sum(_squared_distance(parameters[name], base[name]) for name in shared) ** 0.5)


@torch.no_grad()
def _squared_distance(parameter: Tensor, old: Tensor) -> float:
    # Contiguous: sums in another memory layout differ in the last bit.
    new = parameter.detach().cpu().double().contiguous()[tuple(slice(size) for size in old.shape)]
    return float((new - old.detach().cpu().double()).square().sum())
