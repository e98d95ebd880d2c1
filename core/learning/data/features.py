"""Features of a backbone that is not trained, computed once instead of in every step.

A recipe requests this with `features` "cached". In a stage that trains only heads, one pass over
the task's images in the dataset's order computes their features; all epochs train on these. Images
that a method remembers get theirs one by one, when they are first drawn, so that they do not depend
on images drawn with them. No features are saved: a resumed run computes the same bits again.

A step on cached features differs from one on images in the last bits where kernels round
differently for other batch sizes, as they do for batches of a few images. So features are cached
only on request.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from core.learning.data.dataset import TrainingBatchSource
from core.learning.data.transfer import copy_rows_to_device, copy_tensor_to_device
from core.learning.methods.method import Method
from core.learning.recipe import is_head_parameter
from core.learning.training.context import TaskTrainingContext, TrainingBatch

MEMORY_BYTES = 256 << 20
"""Features up to this size are held in memory, larger ones in a memory-mapped scratch file."""
FILE_BYTES = 8 << 30
"""Features beyond this size are not cached."""
BATCH = 32  # minimum number of images in one pass


class CachedFeatureSource:
    """Makes training batches of cached features float32 [B, D] in place of images."""

    def __init__(self, ctx: TaskTrainingContext, source: TrainingBatchSource, rows: Tensor) -> None:
        """Compute the features of `rows`, int64 [n], in one pass.

        Raises OSError when there is no room for the scratch file.
        """
        self.labels = source.labels
        self._source = source
        self._device = ctx.device
        # Runs of equal length, without a small remainder: kernels for a few images round
        # differently.
        parts = rows.tensor_split(max(1, rows.numel() // BATCH))
        self._table = allocate_feature_table(
            (len(self.labels), ctx.network.backbone.width), ctx.folder, ctx.device
        )
        with use_network_without_gradients(ctx):
            for part in parts:
                features = ctx.network.features(
                    source.make_batch(part, None).x, ctx.task_argument_of_forward
                )
                # One table for all rows of the dataset, so that a batch reads by the dataset's own
                # numbers.
                self._table[part.to(self._table.device)] = features.to(self._table)

    def make_batch(
        self, index: Tensor, table: Tensor | None, at: Tensor | None = None
    ) -> TrainingBatch:
        """Make the batch of cached features of the rows `index` int64 [B].

        `table` must be None: cached features are of unaugmented images.
        """
        assert table is None, "cached features are of unaugmented images"
        at = copy_tensor_to_device(index, self._device) if at is None else at
        if self._table.device.type == at.device.type:
            return self._source.make_batch_from_inputs(index, self._table.index_select(0, at), at)
        return self._source.make_batch_from_inputs(
            index, copy_rows_to_device(self._table, index, self._device), at
        )


class ReplayFeatureCache:
    """Cache of features float32 [B, D] of replayed images, each computed once as far as memory
    allows.

    Each is computed once, as far as memory allows.
    """

    def __init__(self, ctx: TaskTrainingContext) -> None:
        self._ctx = ctx
        self._known: dict[bytes, Tensor] = {}
        self._bytes = 0

    def __call__(self, images: Tensor) -> Tensor:
        with use_network_without_gradients(self._ctx):
            return torch.cat([self._get_or_compute_features(image) for image in images.split(1)])  # type: ignore[no-untyped-call]

    def _get_or_compute_features(self, image: Tensor) -> Tensor:
        # Keyed by content, since the rows of a memory change.
        key = hashlib.sha256(image.cpu().contiguous().numpy().tobytes()).digest()
        if key in self._known:
            return self._known[key]
        features = self._ctx.network.features(
            self._ctx.inputs(image), self._ctx.task_argument_of_forward
        ).float()
        # Beyond the limit features are computed again: the result is the same, only slower.
        if self._bytes + features.nbytes <= MEMORY_BYTES:
            self._known[key] = features
            self._bytes += features.nbytes
        return features


@contextmanager
def use_network_without_gradients(ctx: TaskTrainingContext) -> Iterator[None]:
    """Context manager that runs a network without gradients, in eval mode, in the run's number
    format.
    """
    with torch.no_grad(), ctx.use_exact_evaluation_mode(), ctx.use_mixed_precision():
        yield


def allocate_feature_table(size: tuple[int, int], folder: Path, device: torch.device) -> Tensor:
    """Create an uninitialised table for features, float32 [n, D], on the device or in a scratch
    file.

    The file is unlinked at once, so that its space is freed with the tensor. Raises OSError when
    the disk has no room.
    """
    if compute_feature_table_bytes(*size) <= MEMORY_BYTES:
        return torch.empty(size, device=device)
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        # The space is allocated now: a mapped page that the disk cannot hold would end the process.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, compute_feature_table_bytes(*size))
        else:  # macOS lacks it
            file.truncate(compute_feature_table_bytes(*size))
        # Shared, so that the system can write pages back to the file in place of swapping.
        flat = torch.from_file(file.name, shared=True, size=size[0] * size[1])
    return flat.view(size)


def compute_feature_table_bytes(n: int, width: int) -> int:
    """Return the bytes of a table of features, float32 [n, width]."""
    return 4 * n * width


def explain_why_features_uncached(ctx: TaskTrainingContext, method: Method) -> str:
    """Explain to the user why a training stage's features cannot be cached; "" if they can.

    The trainable parameters must be selected, and every module in its training mode.
    """
    if method.no_feature_cache:
        return f"{method.name}: {method.no_feature_cache}"
    moving = [name for name in ctx.trainable if not is_head_parameter(name)]
    if moving:
        return (
            f"the backbone moves ({moving[0]} and {len(moving) - 1:,} other tensors); only "
            f"depth 1 keeps it"
        )
    if any(module.training for module in ctx.network.backbone.modules()):
        return (
            "a layer of the backbone is in training mode, so that its features change from step "
            "to step"
        )
    if ctx.augment.changes_images:
        return (
            f'images are augmented again in every epoch (augment "{ctx.recipe.augment}"); send '
            f'augment "none"'
        )
    needed = compute_feature_table_bytes(ctx.num_images, ctx.network.backbone.width)
    if needed > FILE_BYTES:
        return f"they would take {needed:,} bytes, and {FILE_BYTES:,} are allowed"
    return ""


def make_feature_source_if_cacheable(
    ctx: TaskTrainingContext, method: Method, source: TrainingBatchSource, rows: Tensor
) -> CachedFeatureSource | None:
    """Cache a training stage's features if its recipe requests it and nothing prevents it.

    The log records the decision. From then on `ctx.make_replay_inputs` also returns features for
    remembered images, or again inputs where None is returned.
    """
    # Before the decision: the features of an earlier stage may be of a backbone that has moved.
    ctx.cached = None
    why_not = explain_why_features_uncached(ctx, method)
    if ctx.recipe.features != "cached":
        if ctx.recipe.depth == 1 and not method.no_feature_cache:
            ctx.log(
                "Every epoch passes all images through the backbone, which does not move: with "
                'features "cached" and augment "none" one pass is enough.'
            )
        return None
    if why_not:
        ctx.log(f"Features are not cached, and computed in every step: {why_not}.")
        return None
    ctx.log(
        f"The backbone does not move: the features of {rows.numel():,} images are computed once "
        f"and cached."
    )
    ctx.cached = ReplayFeatureCache(ctx)
    return CachedFeatureSource(ctx, source, rows)
