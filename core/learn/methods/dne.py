"""Dense network expansion: a task adds a small expert that reads all before it; older experts never change.

Hu et al. 2023, CVPR. Stage 1: (1 - λ) l(logits, y) + λ τ² KL(old logits ‖ the old classes' logits now) +
w l(expertise of the new expert), λ the share of old classes; teacher and student share the pass through older experts.
The paper has cross-entropies; the default here is what its authors' program does: sigmoids and means over classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from core.learn.augment import epoch_seed
from core.learn.context import Context
from core.learn.method import Accepts, Footprint
from core.learn.methods.expanding import Expanding, ExpandingHyper, expertise_of, growing, known
from core.learn.networks.dne.chain import drops
from core.learn.networks.dne.network import ExpandedNetwork
from core.learn.networks.dne.packed import pays
from core.learn.networks.growing import Older, blockwise
from core.learn.recipe import Positive, Share


class DneHyper(ExpandingHyper):
    """`heads`: of the expert that this task adds.

    `loss`: sigmoids, their mean over classes ("bce"), or cross-entropy. `temperature`: τ of the distillation.
    `drop_path`: of the last layer, in training. `head`: whether old classes start without the new expert, or as in
    the authors' program: they read it by random weights and their biases are drawn anew, so that all answers change.
    """

    heads: Annotated[int, Field(ge=1, le=64)] = 1
    loss: Literal["bce", "ce"] = "bce"
    temperature: Positive = 1.0
    drop_path: Share = 0.1
    head: Literal["zero", "official"] = "zero"


class Dne(Expanding):
    """Trains the newest expert of a chain, and the classifier."""

    name = "dne"
    footprint = Footprint(growing=0.5, batches=2.0, images=64)
    description = (
        "Dense network expansion: each task adds a small transformer expert that reads the features of all earlier ones, "
        "which never change. Keeps a few exemplars. Needs the architecture dne."
    )
    source = "Hu et al. 2023, Dense Network Expansion for Class Incremental Learning, CVPR"
    Hyper = DneHyper
    accepts = Accepts(olor=False, depths=(5,), architectures=("dne",))
    regularisers = ("distillation", "expertise")
    advice: ClassVar[Mapping[str, Any]] = {
        "optimizer": {"name": "adamw", "lr": 0.0005, "weight_decay": 1e-6},
        "head": {"init": "default"},
    }
    family = ExpandedNetwork.family
    network = ExpandedNetwork
    hyper: DneHyper

    @property
    def size(self) -> int:
        return self.hyper.heads

    def begin_task(self, ctx: Context) -> None:
        super().begin_task(ctx)
        if self.hyper.head == "official" and not ctx.first and (old := known(ctx)):
            seed = epoch_seed(ctx.recipe.seed, 6, ctx.task)
            growing(ctx).head.draw_again(old, torch.Generator().manual_seed(seed))

    def losses(self, ctx: Context, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        network = growing(ctx)
        old = self._older(ctx, x)
        newest = network.newest(old, x, self._drops(ctx, len(x)))
        logits = network.logits(torch.cat([*old.features, newest], 1)).float()
        if ctx.first or known(ctx) == 0 or network.expertise is None:
            return {"task": self.tuning_loss(logits, y)}
        weight, bias = self._old_head(ctx)
        with torch.no_grad():
            teacher = blockwise(torch.cat(old.features, 1), weight, bias, network.head.widths[:-1]).float()
        own = network.expertise(newest).float()
        share = known(ctx) / logits.shape[1]
        return {
            "task": (1 - share) * self.tuning_loss(logits, y),
            "distillation": share * self._distance(logits[:, : len(bias)], teacher),
            "expertise": self.hyper.expertise * self.tuning_loss(own, expertise_of(ctx, y)),
        }

    def tuning_loss(self, logits: Tensor, y: Tensor) -> Tensor:
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

    def _old_head(self, ctx: Context) -> tuple[Tensor, Tensor]:
        """The classifier as the task found it."""
        if "old_head" not in ctx.derived:
            before = ctx.weights_at("update_start")
            ctx.derived["old_head"] = tuple(before[f"head.{n}"].to(ctx.device) for n in ("weight", "bias"))
        found: tuple[Tensor, Tensor] = ctx.derived["old_head"]
        return found

    def _older(self, ctx: Context, x: Tensor) -> Older:
        """Packed once for the whole task, in which older experts never change; chosen by the device alone."""
        network = growing(ctx)
        assert isinstance(network, ExpandedNetwork)
        if pays(ctx.device) and "packed" not in ctx.derived:
            ctx.derived["packed"] = network.packed()
        return network.older(x, ctx.derived.get("packed"))

    def _drops(self, ctx: Context, size: int) -> Tensor | None:
        if self.hyper.drop_path == 0:
            return None
        generator = torch.Generator().manual_seed(epoch_seed(ctx.recipe.seed, 5, ctx.task, ctx.step))
        network = growing(ctx)
        assert isinstance(network, ExpandedNetwork)
        layers = len(network.backbone.expert.layers)
        return drops(layers, self.hyper.drop_path, size, generator).to(ctx.device)
