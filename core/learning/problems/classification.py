"""Classification: each image has one label, which is one of the known classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from core.contract import problem as names
from core.learning.problems.class_predictions import (
    ClassPredictions,
    concatenate_class_predictions,
    make_class_predictions,
)
from core.learning.problems.problem import (
    DataError,
    MethodCheckedByProblem,
    PrimaryMeasureDefinition,
    Problem,
)
from core.learning.problems.registration import PROBLEMS, register_problem

_LATER = ("targets", "leaders", "leader_counts")
"""Tensors that older files lack."""


@register_problem
class Classification(Problem[ClassPredictions]):
    """The problem `classification`: an image has one class, and a target is its row of the head."""

    name = names.CLASSIFICATION
    description = "Each image has exactly one label, which is one of the known classes."
    source = "The setting of the methods' papers"
    primary_measure = PrimaryMeasureDefinition(
        "accuracy", "accuracy", "Share of the held-out images that are classified correctly."
    )
    has_classes = True
    onnx_outputs = ("probabilities",)

    def make_targets_from_labels(
        self, labels: Tensor, names: Sequence[str], outputs: Sequence[str]
    ) -> Tensor:
        """Convert labels to target rows of a head with the classes `outputs`, matched by name:
        int64 [N].

        Raises DataError for other names.
        """
        row = {name: i for i, name in enumerate(outputs)}
        present = set(labels.unique().tolist())  # type: ignore[no-untyped-call]
        missing = [name for i, name in enumerate(names) if i in present and name not in row]
        if missing:
            raise DataError(f"the network does not know {', '.join(missing[:5])}")
        # Names without a row have no image, as was checked: -1 is never read.
        return torch.tensor([row.get(name, -1) for name in names])[labels]

    def list_outputs_for_labels(self, names: Sequence[str]) -> list[str]:
        """List the head outputs of a task: its classes, one row each."""
        return list(names)

    def list_outputs_needed_to_measure(self, labels: Tensor, names: Sequence[str]) -> list[str]:
        """List the classes that have images, to measure a version on them."""
        return [names[i] for i in labels.unique().tolist()]  # type: ignore[no-untyped-call]

    def split_training_and_validation_rows(
        self, targets: Tensor, share: float, order: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Split rows into training and validation, stratified: every class keeps a training row.

        targets: int64 [N].
        """
        validation: list[Tensor] = []
        for c in targets.unique(sorted=True).tolist():  # type: ignore[no-untyped-call]
            members = (targets == c).nonzero().squeeze(1)
            members = members[order[members].argsort(stable=True)]
            # Rounded half up, and one image of each class is left to train on.
            n = min(int(members.numel() * share + 0.5), members.numel() - 1)
            validation.append(members[:n])
        validation_rows = torch.cat(validation).sort().values
        keep = torch.ones(targets.numel(), dtype=torch.bool)
        keep[validation_rows] = False
        return keep.nonzero().squeeze(1), validation_rows

    def build_output_count_warning(self, outputs: int) -> str:
        """Return a warning if the head has only a single class."""
        if outputs != 1:
            return ""
        return (
            "there is one class only: nothing to tell apart, and accuracy is 1 whatever is learned"
        )

    def loss(self, outputs: Tensor, targets: Tensor, among: Tensor | None = None) -> Tensor:
        """Compute the mean cross-entropy; `among`: the classes that the softmax is over."""
        # In bfloat16 the softmax would lose digits that the loss needs.
        outputs = outputs.float()
        if among is not None:
            outputs = outputs.index_select(1, among)
            # `among` is ascending, so the position of a row is its class within the task.
            targets = torch.searchsorted(among, targets)
        return functional.cross_entropy(outputs, targets)

    def decode(self, outputs: Tensor, targets: Tensor, temperature: float) -> ClassPredictions:
        """Decode outputs to predicted classes, with their softmax of outputs / temperature."""
        return make_class_predictions(outputs, targets, temperature)

    def concatenate_predictions(
        self, parts: Sequence[ClassPredictions], outputs: int
    ) -> ClassPredictions:
        """Concatenate class predictions of one head."""
        return concatenate_class_predictions(parts, outputs)

    def read_prediction_from_tensors(self, tensors: Mapping[str, Tensor]) -> ClassPredictions:
        """Read stored class predictions; older ones lack targets and leaders."""
        return ClassPredictions(
            tensors["rows"], tensors["probabilities"], *(tensors.get(name) for name in _LATER)
        )

    def score_outputs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Score outputs: bool [N], true where the target class has the highest output."""
        return outputs.argmax(1).cpu() == targets

    def score(self, prediction: ClassPredictions, targets: Tensor) -> Tensor:
        """Score predictions: bool [N], true where the predicted class is the target."""
        return prediction.mask_correct_predictions(targets)

    def count_right_by_class(
        self, right: Tensor, labels: Tensor, names: Sequence[str]
    ) -> dict[str, list[int]]:
        """Count right predictions and images of each class that has images."""
        total = torch.bincount(labels, minlength=len(names)).tolist()
        correct = torch.bincount(labels[right], minlength=len(names)).tolist()
        return {name: [correct[i], total[i]] for i, name in enumerate(names) if total[i]}

    def render(self, prediction: ClassPredictions, outputs: Sequence[str]) -> list[dict[str, Any]]:
        """Render each class prediction as JSON: label and probability."""
        pairs = zip(prediction.rows.tolist(), prediction.probabilities.tolist(), strict=True)
        return [{"label": outputs[row], "probability": probability} for row, probability in pairs]

    def response_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a rendered class prediction: a label with its probability."""
        return {
            "type": "object",
            "properties": {
                "label": {"type": "string"},
                "probability": {"type": "number", "minimum": 0, "maximum": 1},
            },
            "required": ["label", "probability"],
        }

    def format_output_count(self, count: int) -> str:
        """Return the number of classes in words."""
        return f"{count} classes"

    def explain_unsupported_method(self, method: type[MethodCheckedByProblem]) -> str:
        """Return "", since every method can learn classes."""
        return ""


CLASSIFICATION: Problem[ClassPredictions] = PROBLEMS[Classification.name]
