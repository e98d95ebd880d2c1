"""Tally of the images that turned wrong or right between two versions, by class."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from core.contract.losses import GateClassComparison, GateComparison, NewlyMisclassifiedImage
from core.ingest.stored_predictions import PredictionsByKnownClassCount
from core.statistics.flips import Mask

MOST_CLASSES = 50
MOST_PICTURES = 4
Rows = npt.NDArray[np.int32]
ClassKey = tuple[int, int]
"""A class: its row, and its task if each task has its own classes, else 0."""


@dataclass
class PredictionFlipTally:
    """Counts by class of images whose prediction turned wrong or right between two versions, with a
    few examples.
    """

    counts: dict[ClassKey, list[int]] = field(default_factory=dict)
    labels: dict[ClassKey, str] = field(default_factory=dict)
    pictures: dict[ClassKey, list[NewlyMisclassifiedImage]] = field(default_factory=dict)

    def add_flips_of_task_images(
        self,
        part: "TaskPredictionsOfNewVersion",
        old: Rows,
        new: Rows,
        negative: Mask,
        positive: Mask,
        counted: Mask,
    ) -> None:
        """Count a task's images whose prediction turned wrong or right, by their true class.

        Args:
            part: held-out images of the task.
            old, new: predictions that pictures show, int32 [N].
            negative, positive: images that turned wrong and right, bool [N].
            counted: images to count, bool [N].
        """
        right_before = (old == part.ranked.targets) & counted
        masks = (counted, right_before, negative & counted, positive & counted)
        size = len(part.names)
        by_class = np.stack(
            [np.bincount(part.ranked.targets[mask], minlength=size) for mask in masks], 1
        )
        for row in np.flatnonzero(by_class[:, 0]).tolist():
            key = (part.apart, row)
            before = self.counts.setdefault(key, [0, 0, 0, 0])
            self.counts[key] = [a + b for a, b in zip(before, by_class[row].tolist(), strict=True)]
            self.labels[key] = part.names[row]
        for index in np.flatnonzero(negative & counted).tolist():
            pictures = self.pictures.setdefault((part.apart, int(part.ranked.targets[index])), [])
            if len(pictures) < MOST_PICTURES:
                labels = (part.names[int(old[index])], part.names[int(new[index])])
                label = part.names[int(part.ranked.targets[index])]
                pictures.append(
                    NewlyMisclassifiedImage(
                        task=part.task, index=index, label=label, before=labels[0], now=labels[1]
                    )
                )

    def merge_tally(self, other: "PredictionFlipTally") -> None:
        """Add the counts and pictures of another task's changed predictions."""
        for key, counts in other.counts.items():
            before = self.counts.get(key, [0, 0, 0, 0])
            self.counts[key] = [a + b for a, b in zip(before, counts, strict=True)]
        self.labels |= other.labels
        for key, pictures in other.pictures.items():
            self.pictures[key] = [*self.pictures.get(key, []), *pictures][:MOST_PICTURES]

    def build_gate_comparison(
        self, against: int | None, *, by_recall: bool = False
    ) -> GateComparison:
        """Return the counts of changed predictions in the form that the gate's verdict stores.

        Args:
            against: number of the version compared with.
            by_recall: list the class with the smallest recall first; otherwise the class with the
                largest net loss.
        """

        def rank_class(key: ClassKey) -> tuple[float, str]:
            images, before, negative, positive = self.counts[key]
            rank = (
                (before - negative + positive) / images if by_recall else float(positive - negative)
            )
            return rank, self.labels[key]

        keys = sorted(self.counts, key=rank_class)
        totals = [sum(counts[i] for counts in self.counts.values()) for i in range(4)]
        return {
            "against": against,
            "images": totals[0],
            "negative": totals[2],
            "positive": totals[3],
            "classes": [self._build_class_comparison(key) for key in keys[:MOST_CLASSES]],
            "pictures": self._select_lost_images(keys),
            "missing": None,
        }

    def _build_class_comparison(self, key: ClassKey) -> GateClassComparison:
        images, before, negative, positive = self.counts[key]
        return {
            "label": self.labels[key],
            "task": key[0] or None,
            "images": images,
            "before": before,
            "negative": negative,
            "positive": positive,
        }

    def _select_lost_images(self, keys: list[ClassKey]) -> list[NewlyMisclassifiedImage]:
        """Select example images in turns: one of each of the first classes, then a second of each,
        and so on.
        """
        of_classes = [self.pictures[key] for key in keys if key in self.pictures][:MOST_PICTURES]
        mixed = [
            pictures[picture_index]
            for picture_index in range(MOST_PICTURES)
            for pictures in of_classes
            if picture_index < len(pictures)
        ]
        return mixed[:MOST_PICTURES]


@dataclass(frozen=True)
class TaskPredictionsOfNewVersion:
    """Predictions of the new version on a task's held-out images.

    Attributes:
        task: number of the task.
        apart: the same number if each task has its own classes, else 0.
        names: labels of the rows.
        ranked: predicted and true rows.
    """

    task: int
    apart: int
    names: list[str]
    ranked: PredictionsByKnownClassCount
