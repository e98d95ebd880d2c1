"""Features of a backbone that does not move, computed once instead of in every step.

A recipe asks for it by `features` "cached". In a stage in which only heads learn, one pass over the task's images
in the dataset's order gives each its features; all epochs learn from these. Images that a method remembers get
theirs one by one, when they are first drawn, so that they do not depend on which images were drawn beside them.
Nothing of it is saved: a run that is resumed computes the same bits again.

A step on cached features differs from one on images in the last bits where kernels round otherwise for other
batch sizes, as they do for batches of a few images. So nothing is cached unless a recipe asks for it.
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

from core.learn.context import Batch, Context
from core.learn.dataset import BatchSource
from core.learn.method import Method
from core.learn.recipe import is_head
from core.learn.transfer import send, send_rows

MEMORY_BYTES = 256 << 20
"""Features up to this size are kept in memory, larger ones in a scratch file that is mapped into it."""
FILE_BYTES = 8 << 30
"""Features beyond this size are not cached."""
BATCH = 32  # images in one pass, at least


class CachedSource:
    """Batches whose `x` are features float32 [B, D], for the rows of a `BatchSource` that are trained on."""

    def __init__(self, ctx: Context, source: BatchSource, rows: Tensor) -> None:
        """One pass over `rows`, int64 [n]. Raises OSError when there is no room for the scratch file."""
        self.labels = source.labels
        self._source = source
        self._device = ctx.device
        # Runs of equal length, none of which is a small remainder: kernels for a few images round otherwise.
        parts = rows.tensor_split(max(1, rows.numel() // BATCH))
        self._table = new_table((len(self.labels), ctx.network.backbone.width), ctx.folder, ctx.device)
        with frozen(ctx):
            for part in parts:
                features = ctx.network.features(source.batch(part, None).x, ctx.head_task)
                self._table[part.to(self._table.device)] = features.to(self._table)

    def batch(self, index: Tensor, table: Tensor | None, at: Tensor | None = None) -> Batch:
        """The rows `index` int64 [B]. `table` must be None: cached features are of unaugmented images."""
        assert table is None, "cached features are of unaugmented images"
        at = send(index, self._device) if at is None else at
        if self._table.device.type == at.device.type:
            return self._source.around(index, self._table.index_select(0, at), at)
        return self._source.around(index, send_rows(self._table, index, self._device), at)


class StoredFeatures:
    """Features float32 [B, D] of images that a method remembers, uint8 [B, S, S, C]; each is computed once."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._known: dict[bytes, Tensor] = {}
        self._bytes = 0

    def __call__(self, images: Tensor) -> Tensor:
        with frozen(self._ctx):
            return torch.cat([self._of(image) for image in images.split(1)])  # type: ignore[no-untyped-call]

    def _of(self, image: Tensor) -> Tensor:
        key = hashlib.sha256(image.cpu().contiguous().numpy().tobytes()).digest()
        if key in self._known:
            return self._known[key]
        features = self._ctx.network.features(self._ctx.inputs(image), self._ctx.head_task).float()
        if self._bytes + features.nbytes <= MEMORY_BYTES:
            self._known[key] = features
            self._bytes += features.nbytes
        return features


@contextmanager
def frozen(ctx: Context) -> Iterator[None]:
    """A block without gradients, in eval mode and in the run's number format."""
    with torch.no_grad(), ctx.evaluation(), ctx.autocast():
        yield


def new_table(size: tuple[int, int], folder: Path, device: torch.device) -> Tensor:
    """float32 [n, D] of any values: on the device, or in a scratch file in `folder`, which goes with the tensor.

    Raises OSError when the disk has no room.
    """
    if table_bytes(*size) <= MEMORY_BYTES:
        return torch.empty(size, device=device)
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        # Room is taken now: a mapped page that the disk cannot hold would end the process.
        os.posix_fallocate(file.fileno(), 0, table_bytes(*size))
        flat = torch.from_file(file.name, shared=True, size=size[0] * size[1])
    return flat.view(size)


def table_bytes(n: int, width: int) -> int:
    """Bytes of float32 [n, width]."""
    return 4 * n * width


def obstacle(ctx: Context, method: Method) -> str:
    """Why the features of this stage cannot be cached, for a person; "" where they can.

    The set S must be selected, and every module in the mode in which it trains.
    """
    if method.no_feature_cache:
        return f"{method.name}: {method.no_feature_cache}"
    moving = [name for name in ctx.trainable if not is_head(name)]
    if moving:
        return (
            f"the backbone moves ({moving[0]} and {len(moving) - 1:,} other tensors); only depth 1 keeps it"
        )
    if any(module.training for module in ctx.network.backbone.modules()):
        return "a layer of the backbone is in training mode, so that its features change from step to step"
    if ctx.augment.active:
        return (
            f'images are augmented anew in every epoch (augment "{ctx.recipe.augment}"); send augment "none"'
        )
    needed = table_bytes(ctx.num_images, ctx.network.backbone.width)
    if needed > FILE_BYTES:
        return f"they would take {needed:,} bytes, and {FILE_BYTES:,} are allowed"
    return ""


def cached_source(ctx: Context, method: Method, source: BatchSource, rows: Tensor) -> CachedSource | None:
    """The features of the stage where its recipe asks for them and nothing is in the way; the log says which.

    From then on `ctx.inputs_of` gives features of remembered images too, and no longer where None is returned.
    """
    ctx.cached = None
    why_not = obstacle(ctx, method)
    if ctx.recipe.features != "cached":
        if ctx.recipe.depth == 1 and not method.no_feature_cache:
            ctx.log(
                'Every epoch passes all images through the backbone, which does not move: with features "cached" '
                'and augment "none" one pass is enough.'
            )
        return None
    if why_not:
        ctx.log(f"Features are not cached, and computed in every step: {why_not}.")
        return None
    ctx.log(
        f"The backbone does not move: the features of {rows.numel():,} images are computed once and cached."
    )
    ctx.cached = StoredFeatures(ctx)
    return CachedSource(ctx, source, rows)
