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
    """Raised for a dataset file that does not fit the task."""


@dataclass(frozen=True)
class PrimaryMeasure:
    """The primary measure of a problem, between 0 (worst) and 1 (best).

    Attributes:
        name: as in metrics and responses.
        noun: for people, in a sentence.
        definition: a sentence that defines it.
    """

    name: str
    noun: str
    definition: str


class Learner(Protocol):
    """A method, as far as a problem has to know it."""

    name: ClassVar[str]
    needs_classes: ClassVar[str]


class Prediction:
    """Predictions for N images, as a dataclass of tensors on the CPU; None for one that is absent.

    The tensors are stored under their fields' names.
    """

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the tensors by name, without those that are None."""
        return {name: tensor for name, tensor in vars(self).items() if tensor is not None}

    def __len__(self) -> int:
        """Return N; the first field has an entry for each image."""
        return len(next(iter(vars(self).values())))


P = TypeVar("P", bound=Prediction)


class Problem(ABC, Generic[P]):
    """The kind of prediction that a model makes for an image, chosen when the model is created.

    A dataset file stores the text of each label as an index into a list of names. Targets are the
    problem's own form of labels, and outputs are the numbers of a head by name. Scores compare
    predictions with targets, image by image.

    Attributes:
        primary_measure: by which versions are judged and compared.
        has_classes: whether a label is one of the names. Without it, nothing is balanced or
            compared by class, and outputs have no temperature.
        onnx_outputs: names of the outputs of an exported network; () where it cannot be exported.
        augmentations: names of augmentations under which a target stays true; None: all of them.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    source: ClassVar[str]
    primary_measure: ClassVar[PrimaryMeasure]
    has_classes: ClassVar[bool] = False
    onnx_outputs: ClassVar[tuple[str, ...]] = ()
    augmentations: ClassVar[tuple[str, ...] | None] = None

    # Labels.

    @abstractmethod
    def read_labels(self, labels: Tensor, names: Sequence[str], outputs: Sequence[str]) -> Tensor:
        """Return targets [N, …] of labels for a head with these outputs.

        Args:
            labels: int64 [N], indices into `names`.
            names: texts of the labels.
            outputs: names of the head's outputs.

        Raises:
            DataError: a label's text is not one of this problem, or needs another output.
        """

    @abstractmethod
    def list_outputs(self, names: Sequence[str]) -> list[str]:
        """Return the outputs that a head needs for a task whose labels have these names."""

    def list_needed_outputs(self, labels: Tensor, names: Sequence[str]) -> list[str]:
        """Return the outputs that a version needs to be measured on labels int64 [N]."""
        return self.list_outputs(names) if labels.numel() else []

    def collate(self, targets: Tensor, rows: Tensor) -> Tensor:
        """Return the targets of a batch: those of the rows int64 [B], on one device."""
        return targets.index_select(0, rows)

    def split_rows(self, targets: Tensor, share: float, order: Tensor) -> tuple[Tensor, Tensor]:
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
        """Return a head of zeros for features [B, width]; it grows by whole outputs."""
        return ClassifierHead(width, outputs)

    def warn_of_outputs(self, outputs: int) -> str:
        """Return a warning about a head with so many outputs; "" where there is none."""
        return ""

    # Learning.

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor, among: Tensor | None = None) -> Tensor:
        """Return the mean loss of outputs [B, n] under targets [B, …], a scalar.

        among: int64, ascending, the outputs of the current task, where others do not count.
        """

    # Predictions.

    @abstractmethod
    def decode(self, outputs: Tensor, targets: Tensor, temperature: float) -> P:
        """Return the predictions of outputs [N, n], with their targets [N, …]."""

    @abstractmethod
    def join_predictions(self, parts: Sequence[P], outputs: int) -> P:
        """Concatenate predictions of one head with so many outputs; there may be none."""

    @abstractmethod
    def read_prediction(self, tensors: Mapping[str, Tensor]) -> P:
        """Return the predictions that `Prediction.to_tensors` gave, now or in older code."""

    @abstractmethod
    def score_outputs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the scores [N] of outputs [N, n], on the CPU, without making predictions."""

    @abstractmethod
    def score(self, prediction: P, targets: Tensor) -> Tensor:
        """Return a score for each prediction, [N] on the CPU: bool, or float in [0, 1]."""

    def is_right(self, scores: Tensor) -> Tensor:
        """Return bool [N], true for predictions that count as right image by image."""
        return scores if scores.dtype == torch.bool else scores >= 0.5

    def measure(self, scores: Tensor) -> float:
        """Return the primary measure of scores [N], N ≥ 1, in [0, 1].

        Of bool scores it is always their mean, since only counts are stored of them: a problem with
        another measure has float scores.
        """
        # In float64, since many small numbers are added.
        return float(scores.double().mean())

    def sum_scores(self, scores: Tensor) -> int | float:
        """Return the primary measure times N, which is a count where scores are bool."""
        if scores.dtype == torch.bool:
            return int(scores.sum())
        return self.measure(scores) * len(scores) if len(scores) else 0.0

    def count_by_class(
        self, right: Tensor, labels: Tensor, names: Sequence[str]
    ) -> dict[str, list[int]]:
        """Return class → [right predictions, images]; {} where labels are no classes."""
        return {}

    # For people and clients.

    @abstractmethod
    def render(self, prediction: P, outputs: Sequence[str]) -> list[dict[str, Any]]:
        """Return the picture of each prediction: a JSON object that fits `response_schema`."""

    @abstractmethod
    def response_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of one rendered prediction."""

    def describe_outputs(self, count: int) -> str:
        """Return the words for so many outputs, as in "images of 10 classes"."""
        return f"{count} outputs"

    # Recipes.

    def explain_unsupported_method(self, method: type[Learner]) -> str:
        """Return the reason why a method cannot learn this problem; "" if it can."""
        return method.needs_classes

    def explain_unsupported_optimizer(self, optimizer: str) -> str:
        """Return the reason why an optimizer does not fit this problem; "" if it does."""
        return ""
