"""A task's images and labels in memory, and the batches made of them.

A dataset file is safetensors with `images` uint8 [N, S, S, C] and `labels` int64 [N]. Images are
memory-mapped and stay uint8 until a batch is made of them. A small set without augmentation is
converted to float32 once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from core.learn.augment import Augmentation
from core.learn.context import Batch
from core.learn.precision import Inputs
from core.learn.state import load_tensors
from core.learn.transfer import free_bytes, send_rows, send_tensor

CACHE_BYTES = 256 * 2**20  # largest float32 copy of a whole set
DEVICE_SHARE = 0.5  # share of an accelerator's free memory that images may use


class DataError(ValueError):
    """Raised for a dataset file that does not fit the task."""


class Dataset:
    """Images uint8 [N, S, S, C] with labels int64 [N], which are indices into `names`.

    Raises DataError for other tensors.
    """

    def __init__(self, images: Tensor, labels: Tensor, names: Sequence[str]) -> None:
        if images.dtype != torch.uint8 or images.dim() != 4:
            raise DataError(
                f"images must be uint8 [N, S, S, C], not {images.dtype} {tuple(images.shape)}"
            )
        if labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
            raise DataError("labels must be int64, one for each image")
        # Checked here once: on a GPU a wrong index is an assertion that names no label.
        if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < len(names):
            raise DataError(f"labels must lie between 0 and {len(names) - 1}")
        self.images = images
        self.labels = labels
        self.names = list(names)

    @staticmethod
    def read(path: Path, names: Sequence[str]) -> Dataset:
        """Read a dataset file. Raises DataError when it is not one."""
        tensors = load_tensors(path)
        if set(tensors) != {"images", "labels"}:
            raise DataError(
                f"{path.name} must hold images and labels, not {', '.join(sorted(tensors))}"
            )
        return Dataset(tensors["images"], tensors["labels"], names)

    def __len__(self) -> int:
        return self.labels.shape[0]

    def take_every(self, stride: int) -> Dataset:
        """Return the dataset of every image, or every second, third …"""
        if stride == 1:
            return self
        return type(self)(self.images[::stride], self.labels[::stride], self.names)

    def to_targets(self, known: Sequence[str]) -> Tensor:
        """Return labels as rows of a head with the classes `known`, matched by name: int64 [N].

        Raises DataError for other names.
        """
        row = {name: i for i, name in enumerate(known)}
        present = set(self.labels.unique().tolist())  # type: ignore[no-untyped-call]
        missing = [name for i, name in enumerate(self.names) if i in present and name not in row]
        if missing:
            raise DataError(f"the network does not know {', '.join(missing[:5])}")
        # Names without a row have no image, as was checked: -1 is never read.
        return torch.tensor([row.get(name, -1) for name in self.names])[self.labels]


class BatchSource:
    """Batches of one dataset for a training run."""

    def __init__(
        self,
        data: Dataset,
        known: Sequence[str],
        inputs: Inputs,
        augment: Augmentation,
        task: int | None,
    ) -> None:
        device = inputs.device
        self._inputs = inputs
        self._augment = augment
        self._task = task
        self.labels = data.to_targets(known)
        images = data.images
        # Images on the device need no copy for each batch.
        if device.type != "cpu" and images.nbytes <= DEVICE_SHARE * free_bytes(device):
            images = images.to(device)
        self._images = images
        # Labels are small: on the device once, they are never sent again.
        self._y = self.labels.to(device)
        self._scaled: Tensor | None = None
        if not augment.active and not inputs.has_features and 4 * images.nbytes <= CACHE_BYTES:
            # Stored as [N, S, S, C]: selected rows are then channels_last without a copy.
            self._scaled = inputs(images).permute(0, 2, 3, 1)

    def make_batch(self, index: Tensor, table: Tensor | None, at: Tensor | None = None) -> Batch:
        """Return the batch of the images `index` int64 [B].

        Args:
            index: rows of the dataset, on the CPU.
            table: [B, columns], drives their augmentation; None: unaugmented.
            at: the same rows on the device, if they are there already.
        """
        at = send_tensor(index, self._inputs.device) if at is None else at
        if self._scaled is not None:
            x = self._scaled.index_select(0, at).permute(0, 3, 1, 2)
        elif table is None or not self._augment.active:
            x = self._inputs(self._select_images(index, at))
        elif self._images.device.type == at.device.type:
            x = self._inputs(self._augment(self._images, at, table))
        else:  # too large for the device: send and augment only these rows
            x = self._inputs(self._augment(self._select_images(index, at), None, table))
        return self.wrap_inputs(index, x, at)

    def wrap_inputs(self, index: Tensor, x: Tensor, at: Tensor | None = None) -> Batch:
        """Return the batch of the images `index` int64 [B] with given inputs x [B, …]."""
        at = send_tensor(index, self._inputs.device) if at is None else at
        return Batch(
            x,
            self._y.index_select(0, at),
            index,
            self._task,
            # Raw images are fetched only when a method asks for them: most steps do not.
            lambda rows: self._select_images(index[rows]),
        )

    def in_order(self, rows: Tensor, size: int) -> Iterator[Batch]:
        """Yield batches of up to `size` images: these rows in this order, unaugmented."""
        for index in rows.split(size):  # type: ignore[no-untyped-call]
            yield self.make_batch(index, None)

    def _select_images(self, index: Tensor, at: Tensor | None = None) -> Tensor:
        """Return images uint8 [B, S, S, C] on the device."""
        device = self._inputs.device
        if self._images.device.type != device.type:
            return send_rows(self._images, index, device)
        return self._images.index_select(0, send_tensor(index, device) if at is None else at)


def split_validation(labels: Tensor, share: float, order: Tensor) -> tuple[Tensor, Tensor]:
    """Split rows into (training rows, validation rows), int64 and ascending.

    Stratified; every class keeps at least one training row.

    Args:
        labels: int64 [N].
        share: of the validation part, 0 to 1.
        order: float [N], which ranks the images of a class.
    """
    validation: list[Tensor] = []
    for c in labels.unique(sorted=True).tolist():  # type: ignore[no-untyped-call]
        members = (labels == c).nonzero().squeeze(1)
        members = members[order[members].argsort(stable=True)]
        # Rounded half up, and one image of each class is left to train on.
        n = min(int(members.numel() * share + 0.5), members.numel() - 1)
        validation.append(members[:n])
    validation_rows = torch.cat(validation).sort().values
    keep = torch.ones(labels.numel(), dtype=torch.bool)
    keep[validation_rows] = False
    return keep.nonzero().squeeze(1), validation_rows
