"""Outcomes of the rows of a comparison, and their table as text, Markdown and JSON."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tools.compare_methods.pixels import Labels


@dataclass(frozen=True)
class UpdateOutcome:
    """Results of one method to update a classifier: accuracy by class, seconds, images kept.

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
        """Share of all held-out images that are classified correctly."""
        total = sum(images for _, images in self.per_class.values())
        return sum(right for right, _ in self.per_class.values()) / total

    @property
    def worst_class(self) -> tuple[str, float]:
        """The class with the lowest accuracy, and that accuracy."""
        shares = {name: right / total for name, (right, total) in self.per_class.items()}
        # By name among equal shares, so that equal figures name the same class.
        name = min(shares, key=lambda label: (shares[label], label))
        return name, shares[name]


def count_correct_by_class(
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


WORDS = {
    "lda": "frozen features + LDA",
    "logistic": "frozen features + logistic regression",
    "finetune": "fine-tuning on the new batch alone",
    "full": "full retraining after each batch",
    "perennial": "Perennial's default",
}
"""Row → its name for a person, in the order of the table."""
COLUMNS = ("method", "accuracy", "worst class", "seconds of last batch", "images kept")


def build_comparison_table_rows(outcomes: Sequence[UpdateOutcome]) -> list[list[str]]:
    """Return the comparison's table as lists of cells, one per method."""
    return [_format_outcome_cells(outcome) for outcome in outcomes]


def render_outcome_table(outcomes: Sequence[UpdateOutcome]) -> str:
    """Render the comparison's table as Markdown."""
    header_lines = [f"| {' | '.join(COLUMNS)} |", "| --- | ---: | --- | ---: | ---: |"]
    return "\n".join(
        [
            *header_lines,
            *(f"| {' | '.join(cells)} |" for cells in build_comparison_table_rows(outcomes)),
        ]
    )


def build_method_result_json(outcome: UpdateOutcome) -> dict[str, Any]:
    """Return one method's results as JSON."""
    name, share = outcome.worst_class
    return {
        "row": outcome.row,
        "method": WORDS[outcome.row],
        "accuracy": outcome.accuracy,
        "worst_class": {"class": name, "accuracy": share},
        "seconds_last_batch": outcome.seconds,
        "images_kept": outcome.images_kept,
        "per_class": {label: list(counts) for label, counts in outcome.per_class.items()},
        "notes": outcome.notes,
    }


def _format_outcome_cells(outcome: UpdateOutcome) -> list[str]:
    name, share = outcome.worst_class
    return [
        WORDS[outcome.row],
        f"{outcome.accuracy:.3f}",
        f"{share:.3f} ({name})",
        f"{outcome.seconds:.1f}",
        f"{outcome.images_kept:,}",
    ]
