"""The interface of a problem: everything that depends on what an image's label is.

A problem reads labels, makes heads, computes losses, and turns outputs into predictions that it
scores and shows. It has no state, so one object serves all models. Its functions take whole batches
or datasets, never single images.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from core.learning.networks.heads import ClassifierHead


class DataError(ValueError):
    """Raised for data that does not fit the task, such as a wrong dataset file."""


@dataclass(frozen=True)
class PrimaryMeasureDefinition:
    """Name and definition of a problem's primary measure, such as accuracy, in [0, 1].

    Attributes:
        name: as in metrics and responses.
        noun: for people, in a sentence.
        definition: a sentence that defines it.
    """

    name: str
    noun: str
    definition: str


class MethodCheckedByProblem(Protocol):
    """Interface of a learning method as a problem checks it: its name and whether it needs
    classes.
    """

    name: ClassVar[str]
    needs_classes: ClassVar[str]


class PredictionBatch:
    """Predictions for N images, as a dataclass of tensors on the CPU; None for one that is absent.

    The tensors are stored under their fields' names.
    """

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the prediction's tensors by name, without those that are None."""
        return {name: tensor for name, tensor in vars(self).items() if tensor is not None}

    def __len__(self) -> int:
        """Return N; the first field has an entry for each image."""
        return len(next(iter(vars(self).values())))


P = TypeVar("P", bound=PredictionBatch)


class Problem(ABC, Generic[P]):
    """Base class of problems: the kind of prediction a model makes for an image, such as a class.

    A dataset file stores the text of each label as an index into a list of names. Targets are the
    problem's own form of labels, and outputs are the numbers of a head by name. Scores compare
    predictions with targets, image by image.

    Attributes:
        name: by which a new model chooses the problem; stored with the model.
        description: a sentence for people, shown where a problem is chosen.
        source: the publication or standard that defines the problem.
        primary_measure: by which versions are judged and compared.
        has_classes: whether a label is one of the names. Without it, nothing is balanced or
            compared by class, and outputs have no temperature.
        onnx_outputs: names of the outputs of an exported network; () where it cannot be exported.
        augmentations: names of augmentations under which a target stays true; None: all of them.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    source: ClassVar[str]
    primary_measure: ClassVar[PrimaryMeasureDefinition]
    has_classes: ClassVar[bool] = False
    onnx_outputs: ClassVar[tuple[str, ...]] = ()
    augmentations: ClassVar[tuple[str, ...] | None] = None

    # Labels.

    @abstractmethod
    def make_targets_from_labels(
        self, labels: Tensor, names: Sequence[str], outputs: Sequence[str]
    ) -> Tensor:
        """Convert labels to targets [N, …] for a head with these outputs.

        Args:
            labels: int64 [N], indices into `names`.
            names: texts of the labels.
            outputs: names of the head's outputs.

        Raises:
            DataError: a label's text is not one of this problem, or needs another output.
        """

    @abstractmethod
    def list_outputs_for_labels(self, names: Sequence[str]) -> list[str]:
        """List the head outputs needed by a task whose labels have these names."""

    def list_outputs_needed_to_measure(self, labels: Tensor, names: Sequence[str]) -> list[str]:
        """List the head outputs needed to measure a version on labels int64 [N]."""
        return self.list_outputs_for_labels(names) if labels.numel() else []

    def collate_batch_targets(self, targets: Tensor, rows: Tensor) -> Tensor:
        """Collect the targets of a batch, those of the rows int64 [B], on one device."""
        return targets.index_select(0, rows)

    def split_training_and_validation_rows(
        self, targets: Tensor, share: float, order: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Split rows into (training rows, validation rows), int64 and ascending.

        At least one row is left to train on.

        Args:
            targets: [N, …].
            share: of the validation part, 0 to 1.
            order: float [N], which ranks the images.
        """
        ranked = order.argsort(stable=True)
        held_back = min(int(ranked.numel() * share + 0.5), ranked.numel() - 1)
        return ranked[held_back:].sort().values, ranked[:held_back].sort().values

    # Network.

    def make_head(self, width: int, outputs: int) -> ClassifierHead:
        """Make a head of zeros for features [B, width]; it grows by whole outputs."""
        return ClassifierHead(width, outputs)

    def build_output_count_warning(self, outputs: int) -> str:
        """Return a warning about a head with this number of outputs; "" if there is none."""
        return ""

    # Learning.

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor, among: Tensor | None = None) -> Tensor:
        """Compute the mean loss of outputs [B, n] under targets [B, …], a scalar.

        among: int64, ascending, the outputs of the current task, where others do not count.
        """

    # Predictions.

    @abstractmethod
    def decode(self, outputs: Tensor, targets: Tensor, temperature: float) -> P:
        """Decode outputs [N, n] to predictions, with their targets [N, …]."""

    @abstractmethod
    def concatenate_predictions(self, parts: Sequence[P], outputs: int) -> P:
        """Concatenate predictions of one head with this number of outputs; there may be none."""

    @abstractmethod
    def read_prediction_from_tensors(self, tensors: Mapping[str, Tensor]) -> P:
        """Read predictions from tensors of `PredictionBatch.to_tensors`, of this or older code."""

    @abstractmethod
    def score_outputs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Score outputs [N, n] against targets, [N] on the CPU, without making predictions."""

    @abstractmethod
    def score(self, prediction: P, targets: Tensor) -> Tensor:
        """Score each prediction against its target, [N] on the CPU: bool, or float in [0, 1]."""

    def mask_right_scores(self, scores: Tensor) -> Tensor:
        """Return bool [N], true for scores that count as right image by image."""
        return scores if scores.dtype == torch.bool else scores >= 0.5

    def measure(self, scores: Tensor) -> float:
        """Compute the primary measure from scores [N], N ≥ 1, in [0, 1].

        Of bool scores it is always their mean, since only counts are stored of them: a problem with
        another measure has float scores.
        """
        # In float64, since many small numbers are added.
        return float(scores.double().mean())

    def multiply_measure_by_image_count(self, scores: Tensor) -> int | float:
        """Return the primary measure times the number of images: a count of right ones for bool
        scores.
        """
        if scores.dtype == torch.bool:
            return int(scores.sum())
        return self.measure(scores) * len(scores) if len(scores) else 0.0

    def count_right_by_class(
        self, right: Tensor, labels: Tensor, names: Sequence[str]
    ) -> dict[str, list[int]]:
        """Count right predictions and images by class; {} if labels are no classes."""
        return {}

    # For people and clients.

    @abstractmethod
    def render(self, prediction: P, outputs: Sequence[str]) -> list[dict[str, Any]]:
        """Render each prediction as a JSON object that fits `response_schema`."""

    @abstractmethod
    def response_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of one rendered prediction."""

    def format_output_count(self, count: int) -> str:
        """Return a head's number of outputs in words, as in "images of 10 classes"."""
        return f"{count} outputs"

    # Recipes.

    def explain_unsupported_method(self, method: type[MethodCheckedByProblem]) -> str:
        """Explain why a method cannot learn this problem; "" if it can."""
        return method.needs_classes

    def explain_unsupported_optimizer(self, optimizer: str) -> str:
        """Explain why an optimizer does not fit this problem; "" if it does."""
        return ""
