"""The outcome of one row: correct answers by class after the last batch, and that batch's cost."""

from dataclasses import dataclass, field

import numpy as np

from tools.compare_methods.pixels import Labels


@dataclass(frozen=True)
class Outcome:
    """Figures of one way to update a classifier.

    Attributes:
        row: name of the row.
        per_class: class → correct answers and held-out images.
        seconds: duration of the last batch.
        images_kept: images of earlier batches that the next update needs.
        notes: sentences about the run.
    """

    row: str
    per_class: dict[str, tuple[int, int]]
    seconds: float
    images_kept: int
    notes: list[str] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """The share of all held-out images that are classified correctly."""
        total = sum(images for _, images in self.per_class.values())
        return sum(right for right, _ in self.per_class.values()) / total

    @property
    def worst_class(self) -> tuple[str, float]:
        """The class with the smallest share of correct answers, and that share."""
        shares = {name: right / total for name, (right, total) in self.per_class.items()}
        # By name among equal shares, so that equal figures name the same class.
        name = min(shares, key=lambda label: (shares[label], label))
        return name, shares[name]


def count_right(
    classes: list[str], predicted_labels: Labels, labels: Labels
) -> dict[str, tuple[int, int]]:
    """Count correct predictions and images by class.

    Args:
        classes: names of the classes.
        predicted_labels, labels: int64 [N], indices of `classes`.
    """
    right = np.bincount(labels[predicted_labels == labels], minlength=len(classes)).tolist()
    total = np.bincount(labels, minlength=len(classes)).tolist()
    return dict(zip(classes, zip(right, total, strict=True), strict=True))
