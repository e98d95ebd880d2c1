"""A task's images and labels in memory, and the batches made of them.

A dataset file is safetensors with `images` uint8 [N, S, S, C] and `labels` int64 [N]. Images are
memory-mapped and stay uint8 until a batch is made of them. A small set without augmentation is
converted to float32 once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from core.learning.data.augment import Augmentation
from core.learning.data.transfer import (
    copy_rows_to_device,
    copy_tensor_to_device,
    count_free_device_bytes,
)
from core.learning.precision import InputNormaliser
from core.learning.problems.classification import CLASSIFICATION
from core.learning.problems.problem import DataError, Problem
from core.learning.state import load_tensors
from core.learning.training.context import TrainingBatch

__all__ = ["DataError", "Dataset", "TrainingBatchSource"]

CACHE_BYTES = 256 * 2**20  # largest float32 copy of a whole set
DEVICE_SHARE = 0.5  # share of an accelerator's free memory that images may use


class Dataset:
    """A dataset of images uint8 [N, S, S, C] with labels int64 [N], which are indices into `names`.

    `problem` says what the labels mean. Raises DataError for other tensors.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        names: Sequence[str],
        problem: Problem[Any] = CLASSIFICATION,
    ) -> None:
        self._check_tensors(images, labels, names)
        self.images = images
        self.labels = labels
        self.names = list(names)
        self.problem = problem
        self._needed_outputs: list[str] | None = None

    def _check_tensors(self, images: Tensor, labels: Tensor, names: Sequence[str]) -> None:
        """Check types and shapes of a dataset's images and labels. Raises DataError."""
        if images.dtype != torch.uint8 or images.dim() != 4:
            raise DataError(
                f"images must be uint8 [N, S, S, C], not {images.dtype} {tuple(images.shape)}"
            )
        if labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
            raise DataError("labels must be int64, one for each image")
        # Checked here once: on a GPU a wrong index is an assertion that names no label.
        if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < len(names):
            raise DataError(f"labels must lie between 0 and {len(names) - 1}")

    @staticmethod
    def read_dataset_file(
        path: Path, names: Sequence[str], problem: Problem[Any] = CLASSIFICATION
    ) -> Dataset:
        """Read a dataset from a safetensors file. Raises DataError if it is not one."""
        tensors = load_tensors(path)
        if set(tensors) != {"images", "labels"}:
            raise DataError(
                f"{path.name} must hold images and labels, not {', '.join(sorted(tensors))}"
            )
        return Dataset(tensors["images"], tensors["labels"], names, problem)

    def __len__(self) -> int:
        return self.labels.shape[0]

    def select_every_nth_image(self, stride: int) -> Dataset:
        """Return the dataset with every n-th image only."""
        if stride == 1:
            return self
        return type(self)(self.images[::stride], self.labels[::stride], self.names, self.problem)

    def convert_labels_to_targets(self, outputs: Sequence[str]) -> Tensor:
        """Convert the dataset's labels to training targets [N, …] for a head with these outputs.

        Raises DataError for labels that the head has no output for.
        """
        return self.problem.make_targets_from_labels(self.labels, self.names, outputs)

    def list_outputs_needed_to_measure(self) -> list[str]:
        """List the head outputs that a version must have to be measured on the dataset's images."""
        # Every phase of an evaluation asks for those of all earlier tasks.
        if self._needed_outputs is None:
            self._needed_outputs = self.problem.list_outputs_needed_to_measure(
                self.labels, self.names
            )
        return self._needed_outputs


class TrainingBatchSource:
    """Makes augmented and normalised training batches from one dataset."""

    def __init__(
        self,
        data: Dataset,
        known: Sequence[str],
        inputs: InputNormaliser,
        augment: Augmentation,
        task: int | None,
    ) -> None:
        device = inputs.device
        self._inputs = inputs
        self._augment = augment
        self._task = task
        self._collate = data.problem.collate_batch_targets
        self.labels = data.convert_labels_to_targets(known)
        images = data.images
        # Images on the device need no copy for each batch.
        if device.type != "cpu" and images.nbytes <= DEVICE_SHARE * count_free_device_bytes(device):
            images = images.to(device)
        self._images = images
        # Labels are small: on the device once, they are never sent again.
        self._y = self.labels.to(device)
        self._scaled: Tensor | None = None
        if (
            not augment.changes_images
            and not inputs.has_known_features
            and 4 * images.nbytes <= CACHE_BYTES
        ):
            # Stored as [N, S, S, C]: selected rows are then channels_last without a copy.
            self._scaled = inputs(images).permute(0, 2, 3, 1)

    def make_batch(
        self, index: Tensor, table: Tensor | None, at: Tensor | None = None
    ) -> TrainingBatch:
        """Make the batch of the images `index` int64 [B], augmented and normalised.

        Args:
            index: rows of the dataset, on the CPU.
            table: [B, columns], drives their augmentation; None: unaugmented.
            at: the same rows on the device, if they are there already.
        """
        at = copy_tensor_to_device(index, self._inputs.device) if at is None else at
        if self._scaled is not None:
            x = self._scaled.index_select(0, at).permute(0, 3, 1, 2)
        elif table is None or not self._augment.changes_images:
            x = self._inputs(self._select_images(index, at))
        elif self._images.device.type == at.device.type:
            x = self._inputs(self._augment(self._images, at, table))
        else:  # too large for the device: send and augment only these rows
            x = self._inputs(self._augment(self._select_images(index, at), None, table))
        return self.make_batch_from_inputs(index, x, at)

    def make_batch_from_inputs(
        self, index: Tensor, x: Tensor, at: Tensor | None = None
    ) -> TrainingBatch:
        """Make the batch of the images `index` int64 [B] with given network inputs x [B, …]."""
        at = copy_tensor_to_device(index, self._inputs.device) if at is None else at
        return TrainingBatch(
            x,
            self._collate(self._y, at),
            index,
            self._task,
            # Raw images are fetched only when a method asks for them: most steps do not.
            lambda rows: self._select_images(index[rows]),
        )

    def iterate_batches_in_order(self, rows: Tensor, size: int) -> Iterator[TrainingBatch]:
        """Yield batches of up to `size` images in the order of the given rows, unaugmented."""
        for index in rows.split(size):  # type: ignore[no-untyped-call]
            yield self.make_batch(index, None)

    def _select_images(self, index: Tensor, at: Tensor | None = None) -> Tensor:
        """Select rows of the raw images, uint8 [B, S, S, C], on the device of the inputs.

        Args:
            index: int64 [B], rows on the CPU.
            at: the same rows on the device, if they are there already.
        """
        device = self._inputs.device
        if self._images.device.type != device.type:
            return copy_rows_to_device(self._images, index, device)
        return self._images.index_select(
            0, copy_tensor_to_device(index, device) if at is None else at
        )
