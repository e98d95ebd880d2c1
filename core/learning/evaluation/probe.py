"""Quality of the features without a head: leave-one-out k-nearest-neighbour accuracy.

Each held-out image is classified by its nearest neighbours among the others: cosine similarity of
features and a majority vote, as in Wu et al. 2018 (arXiv 1805.01978), whose vote is weighted.
Nothing is trained, so the probe also measures a version that never saw the task; the difference to
version 0 is forward transfer. A tied vote goes to the first class. Near duplicates of an image have
no vote on it: a frame of the same burst is the image itself once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from core.learning.data.dataset import Dataset
from core.learning.evaluation.evaluate import choose_evaluation_batch_size
from core.learning.networks import Network
from core.learning.networks.network import use_eval_mode
from core.learning.precision import InputNormaliser, use_full_precision
from core.learning.reports.duplicates import group_near_duplicates
from core.statistics.near_duplicates import Hashes

NEIGHBOURS = 20
TASK_IMAGES = 2000  # images of a task, evenly spaced over its held-out part
ALL_IMAGES = 8000  # images of all tasks together
FEWEST_ALL_IMAGES = 4000  # with few classes, even if there are more
CLASS_IMAGES = 20  # images of a class, on average, in more classes: as many as neighbours that vote
# Images that are classified among them, evenly spaced: the comparison is their product.
CLASSIFIED_IMAGES = 2000
_ROWS = 1024  # rows compared at once


@dataclass(frozen=True)
class ProbedImages:
    """Images of a task's held-out data that the k-NN probe compares, with their features.

    Attributes:
        rows: int64 [n] of the held-out part, on the CPU.
        features: float32 [n, width].
        labels: int64 [n] on the CPU. Equal numbers are the same class, over all tasks of one probe.
        hashes: hashes that identify near duplicates, uint64 [n, 2]; None: no image has one.
    """

    rows: Tensor
    features: Tensor
    labels: Tensor
    hashes: Hashes | None = None


def group_near_duplicate_probed_images(samples: Sequence[ProbedImages]) -> Tensor:
    """Group near duplicates among the probed images of all tasks, int64 [n], equal for near
    duplicates.
    """
    return group_near_duplicates([(len(sample.labels), sample.hashes) for sample in samples])


class VersionKnnProbe:
    """The k-NN probe of one version's features, task by task.

    Args:
        tasks: number of tasks that will be measured. With more tasks, `probe_all_tasks_together` takes fewer
            images of each.
        measured: task → [correct, total] of an earlier version with the same features of its
            images. They are not counted again while the task has as many images.
        all_images: maximum number of images that `probe_all_tasks_together` compares.

    `samples`: task → the images that `probe_all_tasks_together` takes of it. `groups`: group number of each
    of these images, equal for near duplicates, int64 [n]; None before `probe_all_tasks_together`.
    """

    def __init__(
        self,
        network: Network,
        tasks: int,
        inputs: InputNormaliser,
        measured: Mapping[int, Sequence[int]] | None = None,
        all_images: int = ALL_IMAGES,
    ) -> None:
        self._network = network
        self._inputs = inputs
        self._measured = measured or {}
        self._share = min(TASK_IMAGES, all_images // max(1, tasks))
        self._classes: dict[tuple[int | None, str], int] = {}
        self.samples: dict[int, ProbedImages] = {}
        self.groups: Tensor | None = None

    @property
    def class_names(self) -> list[str]:
        """Labels of the probed classes, in the order of their numbers."""
        return [name for _, name in self._classes]

    def probe_task(self, task: int, data: Dataset, hashes: Hashes | None = None) -> list[int]:
        """Probe one task: return [correct, total] by k-NN among its own held-out images.

        hashes: of all its images, uint64 [N, 2]; None: near duplicates are not known.
        """
        at = choose_evenly_spaced_rows(len(data), TASK_IMAGES)
        head = task if self._network.scenario == "task" else None
        features, labels = (
            compute_image_features(self._network, data.images[at], self._inputs, head),
            data.labels[at],
        )
        # By head and name: classes of two heads are different, even if their names are equal.
        class_numbers = [
            self._classes.setdefault((head, name), len(self._classes)) for name in data.names
        ]
        sampled = choose_evenly_spaced_rows(len(at), self._share)
        classes = torch.tensor(class_numbers)[labels[sampled]]
        looks = None if hashes is None else hashes[at.numpy()]
        few = None if looks is None else looks[sampled.numpy()]
        self.samples[task] = ProbedImages(
            at[sampled], features[sampled.to(features.device)], classes, few
        )
        correct, total = self._measured.get(task, (0, 0))
        if total and total == len(at):
            return [correct, total]
        return _count_correct_knn_predictions(
            features, labels, group_near_duplicates([(len(labels), looks)])
        )

    def probe_all_tasks_together(self) -> list[int]:
        """Probe all tasks so far: return [correct, total] by k-NN among the images of all of them.

        A class that two tasks share is one class, except with a head per task.
        """
        if not self.samples:
            return [0, 0]
        samples = list(self.samples.values())
        self.groups = group_near_duplicate_probed_images(samples)
        labels = torch.cat([s.labels for s in samples])
        return _count_correct_knn_predictions(
            torch.cat([s.features for s in samples]),
            labels,
            self.groups,
            choose_evenly_spaced_rows(len(labels), CLASSIFIED_IMAGES),
        )


def compute_image_features(
    network: Network, images: Tensor, inputs: InputNormaliser, head: int | None = None
) -> Tensor:
    """Compute a network's features float32 [N, width] of uint8 images, in eval mode; training modes
    are restored. Features in place of images are returned as they are, on the device.
    """
    if images.dim() == 2:
        return inputs(images).float()
    with use_eval_mode(network), use_full_precision(inputs.device), torch.inference_mode():
        parts = images.split(choose_evaluation_batch_size(images))  # type: ignore[no-untyped-call]
        return torch.cat([network.features(inputs(part), head).float() for part in parts])


def choose_probe_image_limit(classes: int) -> int:
    """Return the maximum number of images of all tasks to compare, 4,000 to 8,000.

    It grows with the classes and not with the tasks, so that updates of known classes cost the same
    at any age.
    """
    return min(ALL_IMAGES, max(FEWEST_ALL_IMAGES, CLASS_IMAGES * classes))


def choose_neighbour_count(labels: Tensor) -> int:
    """Choose the number of neighbours k, 1 to 20: half of the mean number of images per class.

    An image is not among the neighbours of its own class. With k near the size of a class the other
    classes would outvote it.
    """
    classes = max(1, len(set(labels.tolist())))
    return max(1, min(NEIGHBOURS, labels.numel() // (2 * classes)))


def mask_correct_knn_predictions(
    features: Tensor,
    labels: Tensor,
    k: int,
    groups: Tensor | None = None,
    classified: Tensor | None = None,
) -> Tensor:
    """Classify images by the majority of their k nearest others; return bool [M], True where right.

    Args:
        features: float [N, width].
        labels: int64 [N] on the CPU, from 0.
        k: number of neighbours, below N.
        groups: int64 [N]; images of one group have no vote on each other; None: each is alone.
        classified: int64 [M], the images to classify, on the CPU; None: all.
    """
    unit = functional.normalize(features, dim=1)
    classified_rows = torch.arange(len(labels)) if classified is None else classified
    group = torch.arange(len(labels)) if groups is None else groups
    group = group.to(unit.device)
    # Most images are alone in their group: comparing all groups with all would take as long as the
    # product of the features.
    _, number, sizes = torch.unique(group, return_inverse=True, return_counts=True)
    has_alike = sizes[number] > 1
    classes = int(labels.max()) + 1
    right: list[Tensor] = []
    with use_full_precision(unit.device):
        for part in classified_rows.split(_ROWS):  # type: ignore[no-untyped-call]
            rows = part.to(unit.device)
            near = unit[rows] @ unit.T
            near[torch.arange(len(rows), device=unit.device), rows] = -torch.inf
            alike = has_alike[rows].nonzero().squeeze(1)
            near[alike] = near[alike].masked_fill(group[rows][alike, None] == group, -torch.inf)
            best, neighbours = near.topk(k, dim=1)
            # Of a large group fewer than k others remain: infinitely distant ones have no vote.
            # Votes are added up by class, on the CPU: one row of all classes for each neighbour
            # would take much memory, and a GPU has no deterministic way to add them.
            votes = torch.zeros(len(near), classes)
            votes.scatter_add_(1, labels[neighbours.cpu()], best.cpu().isfinite().float())
            # Without any vote the prediction is wrong, not class 0.
            right.append(torch.where(votes.amax(1) > 0, votes.argmax(1), -1))
    return torch.cat(right) == labels[classified_rows]


def choose_evenly_spaced_rows(n: int, max_rows: int) -> Tensor:
    """Choose at most `max_rows` evenly spaced rows of n, int64, so that classes listed in turn keep
    their shares.
    """
    count = min(n, max_rows)
    # In integers, so that every machine picks the same rows.
    return torch.arange(count) * n // max(1, count)


def _count_correct_knn_predictions(
    features: Tensor, labels: Tensor, groups: Tensor, classified: Tensor | None = None
) -> list[int]:
    if labels.numel() < 2:
        return [0, 0]
    right = mask_correct_knn_predictions(
        features,
        labels,
        min(choose_neighbour_count(labels), labels.numel() - 1),
        groups,
        classified,
    )
    return [int(right.sum()), right.numel()]
