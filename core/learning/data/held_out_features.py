"""Features in place of held-out images, so that each image passes through the network once.

Logits, predictions, the k-NN probe and the discriminants on features all read the same features.
Those of a frozen backbone are stored beside the images of each task, so that no pass is needed for
earlier tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from core.contract.jobs.job_result import TaskHeldOutFeaturesFile
from core.contract.jobs.job_spec import LearnJobSpec
from core.learning.data.dataset import Dataset
from core.learning.evaluation.probe import compute_image_features
from core.learning.networks import Network
from core.learning.precision import InputNormaliser
from core.learning.state import load_tensors, save_tensors

MEMORY_BYTES = 256 << 20
"""Limit of features computed in advance; beyond it every reader passes the images itself."""

MOST_FILLED = 8
"""Maximum number of earlier tasks whose missing features one update stores.

A higher number would make the update noticeably slower.
"""
NAME = "features"


class FeatureDataset(Dataset):
    """A dataset of features float32 [N, D] in place of `images`, which networks accept."""

    def _check_tensors(self, images: Tensor, labels: Tensor, names: Sequence[str]) -> None:
        """Accept any tensors without a check, since the features come from a checked dataset."""


class HeldOutFeatures:
    """Features of held-out images by the frozen backbone that a job starts from: read, computed,
    stored.

    Attributes:
        is_on: True if the job's method and network allow them.
        kept: task → features float32 [N, D] that earlier updates have stored.
        new: task → features that this update has computed, to be stored.
    """

    def __init__(self) -> None:
        self.is_on = False
        self.kept: dict[int, Tensor] = {}
        self.new: dict[int, Tensor] = {}

    def load_stored_features(
        self, spec: LearnJobSpec, network: Network, parts: Mapping[int, Dataset]
    ) -> None:
        """Read stored features of held-out images; skip those that do not fit images or network.

        Only for plain networks: features of other families depend on more than the backbone, whose
        identity is the key of stored features.
        """
        self.is_on = network.family == "plain"
        if not self.is_on:
            return
        for task in (*spec.history, spec.task):
            data = parts.get(task.number)
            if task.features is None or data is None:
                continue
            rows = load_tensors(task.features)[NAME]
            # Files of another network or of other images are ignored, not an error: features can be
            # recomputed.
            if rows.dtype == torch.float32 and rows.shape == (len(data), network.backbone.width):
                self.kept[task.number] = rows

    def collect_new_features(self, held_out_by_task: Mapping[int, Dataset], new_task: int) -> None:
        """Collect newly computed held-out features to store: of the task `new_task`, and of tasks
        without stored ones.
        """
        computed = [
            task
            for task, data in held_out_by_task.items()
            if isinstance(data, FeatureDataset) and task not in self.kept and task != new_task
        ]
        # The new task does not count: the limit is on missing features of earlier tasks.
        for task in (new_task, *computed[:MOST_FILLED]):
            data = held_out_by_task.get(task)
            if isinstance(data, FeatureDataset):
                self.new[task] = data.images

    def write_new_features(self, folder: Path) -> list[TaskHeldOutFeaturesFile]:
        """Write newly computed held-out features to files in `folder/features`, and describe the
        files.
        """
        (folder / NAME).mkdir(parents=True, exist_ok=True)
        files = []
        for task, rows in self.new.items():
            name = f"{NAME}/{task}.safetensors"
            save_tensors({NAME: rows}, folder / name)
            files.append(TaskHeldOutFeaturesFile(task=task, file=name))
        return files


def replace_held_out_images_by_features(
    network: Network,
    parts: Mapping[int, Dataset],
    inputs: InputNormaliser,
    stored_features: Mapping[int, Tensor],
    alive: Callable[[], None],
) -> dict[int, Dataset]:
    """Replace the images of held-out datasets by the network's features of them.

    Parts stay unchanged where the network accepts no features, and beyond `MEMORY_BYTES` of
    computed ones.

    Args:
        network: the network.
        parts: task → held-out images.
        inputs: conversion of images to inputs.
        stored_features: task → features of this network's backbone, one for each image.
        alive: called after each part that is passed.
    """
    if not network.takes_features:
        return dict(parts)
    replaced: dict[int, Dataset] = {}
    room = MEMORY_BYTES
    for task, data in parts.items():
        rows = stored_features.get(task)
        # Checked before the pass: one part may exceed the limit, but no further one is computed.
        if rows is None and room > 0 and len(data):
            head = task if network.scenario == "task" else None
            rows = compute_image_features(network, data.images, inputs, head).cpu()
            room -= rows.nbytes
            alive()
        replaced[task] = (
            data if rows is None else FeatureDataset(rows, data.labels, data.names, data.problem)
        )
    return replaced
