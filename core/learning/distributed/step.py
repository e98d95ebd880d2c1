"""The gradient of a batch from its slices, in the same bits on one process as on several.

Every slice gives one flat float32 vector. It has the slice's gradients by parameter, in the
network's order; a flag for each parameter with a gradient; the loss; a request of the worker's; and
the rows per image that the method reads after the step (`Method.gathered`). The vectors of all
slices are added in the order of the slices. S slices on several processes need memory for S times
the trainable parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from core.learning.data.augment import derive_seed
from core.learning.data.dataset import DataError
from core.learning.data.transfer import copy_tensor_to_device
from core.learning.distributed.ranks import SharedControlRequestSource, SingleProcessRanks
from core.learning.distributed.slices import WHOLE, BatchSlice, count_batch_slices
from core.learning.networks.norms import BatchNorm
from core.learning.training.context import TaskTrainingContext, TrainingBatch

if TYPE_CHECKING:
    from core.learning.methods.method import Method

_SLICED = 6
"""Key that separates the seeds of slices from those of the epochs' tables."""


def require_shardable_network(ctx: TaskTrainingContext) -> None:
    """Refuse to slice batches for a network whose BatchNorm still has to learn its statistics.

    With slices BatchNorm is in eval mode, also in a first task, since statistics of a slice are not
    those of the batch. Raises DataError where a network has no statistics from earlier training.
    """
    norms = any(isinstance(module, BatchNorm) for module in ctx.network.modules())
    if ctx.recipe.shards > 1 and ctx.first and norms and not ctx.network.pretrained:
        raise DataError(
            f"recipe.shards is {ctx.recipe.shards}, and the network has BatchNorm and starts from "
            "random weights: its statistics are of whole batches, which slices do not see. Set "
            "shards to 1 for this task, start from a base, or take an architecture without "
            "BatchNorm; later tasks can have shards"
        )


@dataclass(frozen=True)
class ShardedTrainingStep:
    """Computes a training step's gradient in `shards` slices of the batch, distributed over ranks.

    control: None on a single process.
    """

    shards: int
    ranks: SingleProcessRanks
    control: SharedControlRequestSource | None = None

    def backward(self, ctx: TaskTrainingContext, method: Method, batch: TrainingBatch) -> Tensor:
        """Compute the batch's gradient over all slices, set `.grad` of trainable parameters, return
        the loss.

        The loss is detached. Afterwards `ctx.scratch` holds the method's `gathered` tensors for the
        whole batch, [B, …].
        """
        images = batch.y.shape[0]
        slices = count_batch_slices(self.shards, images)
        parameters = list(ctx.trainable.values())
        # All vectors need one length to be gathered; slice 0 has the most rows.
        widest = BatchSlice(0, slices, images).count_slice_rows(images)
        request_number = 0 if self.control is None else self.control.take_request_number_to_send()
        vectors: list[Tensor] = []
        shapes: dict[str, torch.Size] = {}
        devices = [ctx.device] if ctx.device.type == "cuda" else []
        # The state of the generators after a step must not depend on how many slices this rank
        # computed.
        with torch.random.fork_rng(devices):
            for number in self.ranks.get_slice_numbers_of_rank(slices):
                part = ctx.part = BatchSlice(number, slices, images)
                # Random draws depend on the slice's number, not on the rank that computes it.
                torch.manual_seed(derive_seed(ctx.recipe.seed, ctx.task, ctx.step, _SLICED, number))
                for parameter in parameters:
                    parameter.grad = None
                with ctx.use_mixed_precision():
                    terms = method.compute_loss_terms(ctx, cut_slice_from_batch(batch, part))
                loss = (
                    torch.stack([value.float() for value in terms.values()]).sum()
                    * part.loss_weight
                )
                loss.backward()  # type: ignore[no-untyped-call]
                gathered = {name: ctx.scratch[name] for name in method.gathered}
                shapes = {name: tensor.shape[1:] for name, tensor in gathered.items()}
                vectors.append(
                    # Only slice 0 carries the request, so that the sum over slices is its number.
                    _pack_slice_result(
                        parameters,
                        loss.detach(),
                        0 if number else request_number,
                        list(gathered.values()),
                        widest,
                    )
                )
        ctx.part = WHOLE
        return self._sum_slices_and_set_gradients(
            ctx, parameters, self.ranks.gather_slice_vectors(vectors, slices), shapes, images
        )

    def _sum_slices_and_set_gradients(
        self,
        ctx: TaskTrainingContext,
        parameters: list[nn.Parameter],
        vectors: list[Tensor],
        shapes: dict[str, torch.Size],
        images: int,
    ) -> Tensor:
        """Sum the slices' gradient vectors over all ranks, set gradients and `gathered`; return the
        loss.
        """
        sizes = [p.numel() for p in parameters]
        end = sum(sizes)
        head = end + len(sizes) + 1
        total = vectors[0][: head + 1].clone()
        # In the order of the slices: float addition is not associative.
        for vector in vectors[1:]:
            total += vector[: head + 1]
        parts = total[:end].split(sizes)  # type: ignore[no-untyped-call]
        # One copy for flags and request, since the host waits for the device at each.
        *present, _, request_number = total[end:].tolist()
        if self.control is not None:
            self.control.store_broadcast_request(int(request_number))
        for parameter, gradient, is_present in zip(parameters, parts, present, strict=True):
            parameter.grad = None
            # An optimizer skips a parameter without a gradient; with zeros it would apply momentum
            # and decay.
            if is_present:
                # In the parameter's layout, in which optimizers work without a copy.
                parameter.grad = torch.empty_like(parameter, memory_format=torch.preserve_format)
                parameter.grad.copy_(gradient.view(parameter.shape))
        counts = [
            BatchSlice(number, len(vectors), images).count_slice_rows(images)
            for number in range(len(vectors))
        ]
        begin = head + 1
        for name, shape in shapes.items():
            stop = begin + counts[0] * shape.numel()
            rows = [
                v[begin:stop].view(-1, *shape)[:n] for v, n in zip(vectors, counts, strict=True)
            ]
            ctx.scratch[name] = torch.cat(rows)
            begin = stop
        return total[head - 1]


def cut_slice_from_batch(batch: TrainingBatch, part: BatchSlice) -> TrainingBatch:
    """Cut one slice out of a training batch."""
    if part.of == 1:
        return batch
    rows = part.get_row_range(batch.y.shape[0])
    x, y, index = batch.x[rows], batch.y[rows], batch.index[rows]
    return TrainingBatch(x, y, index, batch.task, lambda some: batch.raw(some + rows.start))


def _pack_slice_result(
    parameters: list[nn.Parameter],
    loss: Tensor,
    request_number: int,
    rows: list[Tensor],
    widest: int,
) -> Tensor:
    """Pack one slice's gradients, flags, loss, control request and rows into a flat vector.

    rows: tensors [n_s, …], padded with zeros to `widest` rows so that all slices have one length.
    """
    gradients = [
        (torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in parameters
    ]
    present = [float(p.grad is not None) for p in parameters]
    flags = copy_tensor_to_device(torch.tensor(present), loss.device)
    filled = [
        torch.cat([t, t.new_zeros(widest - len(t), *t.shape[1:])]).reshape(-1).float() for t in rows
    ]
    return torch.cat(
        [*gradients, flags, loss.reshape(1), loss.new_full((1,), float(request_number)), *filled]
    )
