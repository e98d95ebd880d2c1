"""Dense network expansion: a task adds a small expert that reads all before it; older experts never change.

Hu et al. 2023, CVPR. Stage 1 trains the new expert and the classifier on the task's images and the exemplars:
(1 - λ) l(logits, y) + λ τ² KL(old logits ‖ the old classes' logits now) + w l(expertise of the new expert), λ the share
of old classes. Teacher and student share the pass through older experts. Stage 2 tunes the classifier alone on the
exemplars, which are chosen anew in between and are as many of each class. The first task trains the first expert.

The paper has cross-entropies; the default here is what its authors' program does: sigmoids and means over classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from core.learn.augment import epoch_seed
from core.learn.dataset import DataError
from core.learn.memory.exemplars import Exemplars
from core.learn.memory.rehearsal import batch_of_epoch, choose, share_of_epoch
from core.learn.methods.base import Accepts, Method, Stage
from core.learn.networks import Network
from core.learn.networks.dne.chain import drops
from core.learn.networks.dne.network import ExpandedNetwork, blockwise
from core.learn.recipe import NotNegative, Positive, Share, Strict

if TYPE_CHECKING:
    from core.learn.context import Batch, Context

EXPERT, CLASSIFIER = "expert", "classifier"


class DneHyper(Strict):
    """`heads`: of the expert that this task adds. `exemplars`: images kept in all.

    `loss`: sigmoids, their mean over classes ("bce"), or cross-entropy. `temperature`: τ of the distillation.
    `expertise`: weight w of the new expert's own loss. `drop_path`: of the last layer, in training. `tuning_epochs`: of
    the classifier alone, each with as many steps as an epoch of the task.
    """

    heads: Annotated[int, Field(ge=1, le=64)] = 1
    exemplars: Annotated[int, Field(ge=1, le=1_000_000)] = 2000
    loss: Literal["bce", "ce"] = "bce"
    temperature: Positive = 1.0
    expertise: NotNegative = 0.1
    drop_path: Share = 0.1
    tuning_epochs: Annotated[int, Field(ge=1, le=10_000)] = 8


class Dne(Method):
    """Trains the newest expert of a chain, and the classifier."""

    name = "dne"
    description = (
        "Dense network expansion: each task adds a small transformer expert that reads the features of all earlier ones, "
        "which never change. Keeps a few exemplars. Needs the architecture dne."
    )
    source = "Hu et al. 2023, Dense Network Expansion for Class Incremental Learning, CVPR"
    scenarios = ("class",)
    Hyper = DneHyper
    accepts = Accepts(olor=False, depths=(5,), architectures=("dne",))
    no_neutral = "every task after the first adds an expert, whatever the weights of the losses are"
    regularisers = ("distillation", "expertise")
    advice: ClassVar[Mapping[str, Any]] = {
        "optimizer": {"name": "adamw", "lr": 0.0005, "weight_decay": 1e-6},
        "head": {"init": "default"},
    }
    takes = ("exemplars",)
    family = ExpandedNetwork.family
    hyper: DneHyper

    # Structure.

    def build(self, network: Network) -> Network:
        if not isinstance(network, ExpandedNetwork):
            try:
                return ExpandedNetwork(network)
            except ValueError as error:
                raise DataError(str(error)) from None
        network.expand(self.hyper.heads)
        return network

    def stages(self, ctx: Context) -> list[Stage]:
        first = [Stage(EXPERT)]
        return first if ctx.first else [*first, Stage(CLASSIFIER, self.hyper.tuning_epochs, depth=1)]

    # A step.

    def loss_terms(self, ctx: Context, batch: Batch) -> dict[str, Tensor]:
        network, exemplars = _expanded(ctx), Exemplars(self.state["exemplars"])
        x, y = batch.x, batch.y
        if ctx.stage == CLASSIFIER:
            if exemplars.size:
                x, y = batch_of_epoch(ctx, exemplars)
            with torch.no_grad():
                features = network.features(x)
            return {"task": self._error(network.logits(features).float(), y)}
        if (share := share_of_epoch(ctx, exemplars)) is not None:
            x, y = torch.cat([x, share[0]]), torch.cat([y, share[1]])
        old = network.read_old(x)
        newest = network.newest(old, x, self._drops(ctx, len(x)))
        logits = network.logits(torch.cat([*old.features, newest], 1)).float()
        known = logits.shape[1] - ctx.units.numel()
        if ctx.first or known == 0:
            return {"task": self._error(logits, y)}
        weight, bias = self._old_head(ctx)
        with torch.no_grad():
            teacher = blockwise(torch.cat(old.features, 1), weight, bias, network.head.widths[:-1]).float()
        assert network.expertise is not None
        own = network.expertise(newest).float()
        share_old = known / logits.shape[1]
        return {
            "task": (1 - share_old) * self._error(logits, y),
            "distillation": share_old * self._distance(logits[:, : len(bias)], teacher),
            "expertise": self.hyper.expertise * self._error(own, self._expertise_of(ctx, y)),
        }

    # A task.

    def begin_stage(self, ctx: Context) -> None:
        if ctx.stage == CLASSIFIER:
            self._choose(ctx, ctx.examples())

    def end_task(self, ctx: Context, batches: Iterable[Batch]) -> None:
        if ctx.first:
            self._choose(ctx, batches)
        _expanded(ctx).expertise = None

    def erase(self, tasks: set[int]) -> None:
        Exemplars(self.state["exemplars"]).drop_tasks(tasks)

    # Pieces.

    def _choose(self, ctx: Context, batches: Iterable[Batch]) -> None:
        exemplars, network = Exemplars(self.state["exemplars"]), ctx.network
        share = self.hyper.exemplars // len(network.classes)
        exemplars.cut(share)
        if share == 0:
            ctx.warn(
                f"{self.hyper.exemplars} exemplars are fewer than {len(network.classes)} classes: none are kept; raise "
                "method.exemplars"
            )
            return
        with ctx.evaluation():
            exemplars.add(choose(network, batches, share), ctx.task, share)

    def _error(self, logits: Tensor, y: Tensor) -> Tensor:
        if self.hyper.loss == "ce":
            return functional.cross_entropy(logits, y)
        wanted = functional.one_hot(y, logits.shape[1]).to(logits.dtype)
        return functional.binary_cross_entropy_with_logits(logits, wanted)

    def _distance(self, logits: Tensor, teacher: Tensor) -> Tensor:
        """τ² KL(teacher ‖ student) over the old classes; with sigmoids also a mean over them."""
        tau = self.hyper.temperature
        student, wanted = (z.div(tau).log_softmax(1) for z in (logits, teacher))
        found = tau**2 * functional.kl_div(student, wanted, reduction="batchmean", log_target=True)
        return found / logits.shape[1] if self.hyper.loss == "bce" else found

    def _expertise_of(self, ctx: Context, y: Tensor) -> Tensor:
        """0 for classes of other tasks, then 1, 2, … for this one's, in the order of their rows."""
        places = torch.searchsorted(ctx.units, y)
        inside = ctx.units[places.clamp_max(ctx.units.numel() - 1)] == y
        return torch.where(inside, places + 1, 0)

    def _old_head(self, ctx: Context) -> tuple[Tensor, Tensor]:
        """The classifier as the task found it."""
        if "old_head" not in ctx.derived:
            before = ctx.weights_at("update_start")
            ctx.derived["old_head"] = tuple(before[f"head.{n}"].to(ctx.device) for n in ("weight", "bias"))
        found: tuple[Tensor, Tensor] = ctx.derived["old_head"]
        return found

    def _drops(self, ctx: Context, size: int) -> Tensor | None:
        if self.hyper.drop_path == 0:
            return None
        generator = torch.Generator().manual_seed(epoch_seed(ctx.recipe.seed, 5, ctx.task, ctx.step))
        layers = len(_expanded(ctx).backbone.expert.layers)
        return drops(layers, self.hyper.drop_path, size, generator).to(ctx.device)


def _expanded(ctx: Context) -> ExpandedNetwork:
    assert isinstance(ctx.network, ExpandedNetwork)
    return ctx.network
