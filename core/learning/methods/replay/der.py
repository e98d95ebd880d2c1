"""Dark experience replay: store examples with their logits, and match those logits later.

L = CE(new) + alpha · MSE(z(buffer), z_stored), Buzzega et al. 2020. Stored logits are those of the
forward pass that trained on the example. Examples are offered to the reservoir in every epoch, so
the memory holds points of the whole trajectory. DER++ is a subclass that adds a term.

The authors' head has outputs for all classes from the start, so their stored logits also say that
an example is not of a class to come. A head that grows stores no logits of later classes; their
target is 0, as rows of zeros would have given. If only the outputs of that time counted, nothing
would keep new classes from winning on old images (DER, five tasks of digits in one head: accuracy
0.19 instead of 0.67).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from core.learning.data.transfer import copy_tensor_to_device
from core.learning.memory.replay import (
    Groups,
    compute_replay_cross_entropy,
    compute_replay_logits_by_head,
    compute_replay_logits_jointly,
    compute_replay_logits_squared_error,
    draw_replay_items_of_batch_slice,
    make_inputs_of_replay_items,
)
from core.learning.memory.reservoir import ReplayItems
from core.learning.methods.method import TrainingMemoryMultiples
from core.learning.methods.registration import register_method
from core.learning.methods.replay.with_reservoir import BufferHyper, ReservoirMethod
from core.learning.recipe import NotNegative, StrictRecipeModel
from core.learning.training.context import TaskTrainingContext, TrainingBatch

ItemsLoss = Callable[[Groups, ReplayItems], Tensor]
"""Loss of items as a scalar, from (present logits, items)."""

CHUNK = 256  # images per forward pass without gradient


def compute_stored_logits_loss(groups: Groups, items: ReplayItems) -> Tensor:
    """Compute the loss of replayed logits: mean squared difference from the stored logits."""
    assert items.logits is not None
    return compute_replay_logits_squared_error(groups, items.logits)


def compute_stored_labels_loss(groups: Groups, items: ReplayItems) -> Tensor:
    """Compute the loss of replayed labels: mean cross-entropy with the stored labels."""
    return compute_replay_cross_entropy(groups, items.labels)


class DerHyper(BufferHyper):
    """Hyper-parameters of the method `der`. `alpha` weighs stored logits; 0: no draw from the
    buffer. `replay_batch` null: the batch size.
    """

    alpha: NotNegative = 0.3
    replay_batch: Annotated[int, Field(ge=1, le=65_536)] | None = None


@register_method
class DarkExperienceReplay(ReservoirMethod):
    """The method `der` (dark experience replay): replays stored logits of earlier images."""

    name = "der"
    description = "Dark experience replay: replays stored examples with the logits that they had."
    source = "Buzzega et al. 2020, arXiv 2004.07211"
    footprint = TrainingMemoryMultiples(batches=2.0)
    Hyper: ClassVar[type[StrictRecipeModel]] = DerHyper
    neutral: ClassVar[StrictRecipeModel | None] = DerHyper(alpha=0.0)
    regularisers: ClassVar[tuple[str, ...]] = ("logits",)
    replays = True
    no_shards = ""
    gathered = ("logits",)
    hyper: DerHyper

    def get_replay_loss_terms(self) -> dict[str, tuple[float, ItemsLoss]]:
        """Return the replay loss terms: name → (weight, loss function), in the order of their
        draws.
        """
        return {"logits": (self.hyper.alpha, compute_stored_logits_loss)}

    @property
    def shares_one_replay_draw(self) -> bool:
        """True if all replay loss terms use the same draw from the buffer; otherwise each has its
        own.
        """
        return False

    def begin_task(self, ctx: TaskTrainingContext) -> None:
        """Prepare the replay buffer, and compute logits for items that another method stored
        without them.
        """
        reservoir = self._open_reservoir(ctx)
        reservoir.rescale_offers_and_trim_reservoir(offers=ctx.recipe.epochs, logits=True)
        if reservoir.item_count and "logits" not in self.state["buffer"].tensors:
            tensors = self.state["buffer"].tensors
            # Without columns: `_store_present_logits` adds as many as the logits need.
            tensors["logits"] = torch.zeros(reservoir.item_count, 0, device=ctx.device)
            tensors["widths"] = torch.zeros(
                reservoir.item_count, dtype=torch.int64, device=ctx.device
            )
            # Without logits nothing would preserve these items. Outputs beyond the highest stored
            # label may have been added for this task.
            everything = torch.arange(reservoir.item_count)
            self._store_present_logits(ctx, everything, int(tensors["labels"].max()) + 1)

    def after_weight_merge(self, ctx: TaskTrainingContext) -> None:
        """Renew the stored logits of this task's images after the weights were merged."""
        buffer = self.state["buffer"]
        if "tasks" in buffer.tensors:
            self._store_present_logits(
                ctx, (buffer.get_tensor_on_cpu("tasks") == ctx.task).nonzero().squeeze(1)
            )

    def compute_loss_terms(
        self, ctx: TaskTrainingContext, batch: TrainingBatch
    ) -> dict[str, Tensor]:
        """Compute the cross-entropy of the new batch, and the weighted loss of each replay term."""
        reservoir = self._open_reservoir(ctx)
        terms_in_use = {
            name: term
            for name, term in self.get_replay_loss_terms().items()
            if reservoir.item_count and term[0] > 0
        }
        size = self.hyper.replay_batch or ctx.recipe.batch_size
        count = min(len(terms_in_use), 1) if self.shares_one_replay_draw else len(terms_in_use)
        draws = draw_replay_items_of_batch_slice(ctx, reservoir, size, count)
        if any(items.labels.shape[0] == 0 for items, _, _ in draws):
            terms_in_use, draws = {}, []  # there are fewer items than slices, and none for this one
        parts = [
            (make_inputs_of_replay_items(ctx, items, table), items.tasks)
            for items, table, _ in draws
        ]
        if parts and ctx.are_image_outputs_independent:
            # One pass for all, since a small network on a GPU costs time per call, not per image.
            current = (batch.x, torch.full((batch.y.shape[0],), ctx.task))
            ((_, logits),), *groups = compute_replay_logits_jointly(self, ctx, [current, *parts])
        else:
            logits = self.forward(ctx.network, batch.x, batch.task)
            groups = []
            for x, tasks in parts:
                # BatchNorm cannot train on a single image, so the running statistics are used for
                # it.
                with (
                    ctx.keep_running_statistics_unchanged()
                    if len(x) > 1
                    else ctx.use_exact_evaluation_mode()
                ):
                    groups.append(compute_replay_logits_by_head(self, ctx, x, tasks))
        ctx.scratch["logits"] = logits.detach()
        # With `balanced_batches` a small task counts by its share, and replay fills the remainder.
        terms = {"task": ctx.share * ctx.loss(logits, batch.y)}
        for number, (name, (weight, loss)) in enumerate(terms_in_use.items()):
            drawn = 0 if self.shares_one_replay_draw else number
            items, _, whole_draw = draws[drawn]
            terms[name] = weight * loss(groups[drawn], items)
            if ctx.part.of > 1:
                slice_count, averaged = (
                    _compute_loss_term_denominator(ctx, name, group)
                    for group in (items, whole_draw)
                )
                terms[name] = ctx.part.compute_mean_correction(slice_count, averaged) * terms[name]
        return terms

    def after_step(self, ctx: TaskTrainingContext, batch: TrainingBatch) -> None:
        """Offer the batch, with the logits it was trained on, to the replay buffer."""
        # In every epoch: the memory holds logits of the whole trajectory, as in the paper.
        self._open_reservoir(ctx).offer_items_to_reservoir(
            batch.raw, batch.y, ctx.task, ctx.scratch["logits"]
        )

    def _store_present_logits(
        self, ctx: TaskTrainingContext, index: Tensor, output_count: int | None = None
    ) -> None:
        """Compute and store the network's present logits for buffer items `index`, int64 [n], on
        the CPU.

        `output_count`: number of outputs that count, for a single head; None: all.
        """
        computed: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad(), ctx.use_exact_evaluation_mode():
            for part in index.split(CHUNK):  # type: ignore[no-untyped-call]
                ctx.alive()
                items = ReplayItems.read_items_from_section(self.state["buffer"], part)
                for rows, logits in compute_replay_logits_by_head(
                    self, ctx, ctx.inputs(items.images), items.tasks
                ):
                    logits = logits[:, :output_count] if ctx.scenario == "class" else logits
                    places = copy_tensor_to_device(part, ctx.device)
                    computed.append((places if rows is None else places[rows], logits))
        tensors = self.state["buffer"].tensors
        # Heads of tasks differ in size, but the buffer is one tensor: it is as wide as the widest.
        wider = (
            max((logits.shape[1] for _, logits in computed), default=0) - tensors["logits"].shape[1]
        )
        tensors["logits"] = functional.pad(tensors["logits"], (0, max(0, wider)))
        for rows, logits in computed:
            tensors["logits"][rows] = functional.pad(
                logits, (0, tensors["logits"].shape[1] - logits.shape[1])
            )
            tensors["widths"][rows] = logits.shape[1]


def _compute_loss_term_denominator(ctx: TaskTrainingContext, term: str, items: ReplayItems) -> int:
    """Return the count over which a replay loss term is a mean: items, or outputs if heads differ
    in size.
    """
    if term != "logits" or ctx.scenario != "task":
        return items.labels.shape[0]
    return sum(len(ctx.network.list_classes(int(task))) for task in items.tasks.tolist())
