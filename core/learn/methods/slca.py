"""Slow learner with classifier alignment: the backbone moves slowly, and the head is trained on remembered
Gaussians.

Zhang et al. 2023 (arXiv 2303.05118). Of a pretrained backbone a small learning rate keeps the features nearly
where they are, while the head learns at the full rate, on the classes of its batch alone (`train_ce` masked).
What is left is that heads of different tasks were never compared. So each class is remembered as a Gaussian
N(μ_c, Σ_c) of its features, and after a task the head alone is trained on as many draws of every class, with
logits of length one over a temperature:

    L = −log( exp(l_y / (τ ‖l‖)) / Σ_c exp(l_c / (τ ‖l‖)) )

No image is kept. A first task from random weights moves its backbone at the full rate: there is nothing to
keep yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from core.learn.augment import epoch_seed
from core.learn.context import Batch, Context
from core.learn.dataset import DataError
from core.learn.memory.gaussians import WIDEST, Gaussians
from core.learn.method import Footprint, Method, Stage
from core.learn.recipe import Strict
from core.learn.registration import register

ALIGN = "align"
DRAWS = "draws"
_DRAWN = 1  # tells its seeds from those of the epochs' tables
SHORTEST = 1e-7
"""Length below which logits are not made longer: rows of zeros have none."""


class SlcaHyper(Strict):
    """`backbone_rate`: the backbone's learning rate, as a share of the head's. `covariance`: what is kept of
    a class.

    `align_epochs`: passes over the draws after a task, `draws` of each class in each; `temperature`: τ of
    their loss.
    """

    backbone_rate: Annotated[float, Field(gt=0, le=1)] = 0.1
    covariance: Literal["shared", "diagonal", "full"] = "shared"
    draws: Annotated[int, Field(ge=1, le=10_000)] = 256
    align_epochs: Annotated[int, Field(ge=1, le=1000)] = 5
    temperature: Annotated[float, Field(gt=0, le=100)] = 0.1


@register
class Slca(Method):
    """Two stages from the second task on: the network, then the head.

    Classes without a Gaussian (another method learned them) are not among those that alignment compares.
    """

    name = "slca"
    description = (
        "A slow backbone and a fast head, which after each task is trained on Gaussian draws of all classes. "
        "Keeps no image. Give it a pretrained base."
    )
    source = "Zhang et al. 2023, SLCA: Slow Learner with Classifier Alignment, arXiv 2303.05118"
    scenarios = ("data", "class")
    Hyper = SlcaHyper
    no_neutral = "after each task it trains the head on draws of all classes"
    recipe_defaults = {"train_ce": "masked"}  # noqa: RUF012
    footprint = Footprint(copies=7.0)
    hyper: SlcaHyper

    def stages(self, ctx: Context) -> list[Stage]:
        """Slow learning, then alignment; of a first task nothing is to be aligned."""
        untrained = ctx.first and not ctx.network.pretrained
        slow = Stage(backbone_rate=1.0 if untrained else self.hyper.backbone_rate)
        return [slow] if ctx.first else [slow, Stage(ALIGN, self.hyper.align_epochs, depth=1)]

    def loss_terms(self, ctx: Context, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of the images; in the second stage that of this batch's share of the epoch's draws."""
        if ctx.stage != ALIGN:
            return super().loss_terms(ctx, batch)
        features, labels, known = self._draws(ctx)
        n = len(labels)
        part = slice(n * ctx.batch // ctx.batches, n * (ctx.batch + 1) // ctx.batches)
        logits = ctx.network.logits(features[part]).float()[:, known]
        y = torch.searchsorted(known, labels[part])
        return {"align": aligned_cross_entropy(logits, y, self.hyper.temperature)}

    def begin_task(self, ctx: Context) -> None:
        """Warn where validation would choose a state from before the head is aligned.

        Raises:
            DataError: the network has more features than covariances are kept of.
        """
        width = ctx.network.backbone.width
        if width > WIDEST:
            raise DataError(
                f"slca keeps covariances of up to {WIDEST:,} features and this network has {width:,}: take a "
                "smaller architecture, or another method"
            )
        if ctx.recipe.validation and not ctx.first:
            ctx.warn(
                "validation chooses the state by images of the new task alone, which are answered best before the "
                "head is aligned: set validation to 0"
            )

    def begin_stage(self, ctx: Context) -> None:
        """Before the head is aligned: the Gaussians of the new classes."""
        if ctx.stage == ALIGN:
            self._remember(ctx)

    def end_task(self, ctx: Context, batches: Iterable[Batch]) -> None:
        """The Gaussians of the new classes, where the last stage did not leave them as they are now."""
        if ctx.first or ctx.recipe.validation:  # otherwise they are of these features already
            self._remember(ctx)

    def _remember(self, ctx: Context) -> None:
        """The Gaussians of the task's classes, in one pass over its images."""
        found, labels = [], []
        with ctx.evaluation(), torch.no_grad():
            for batch in ctx.in_order():
                found.append(ctx.network.features(batch.x).float())
                labels.append(batch.y)
        gaussians = Gaussians(self.state["own"])
        rows = ctx.class_rows.to(labels[0].device)
        gaussians.put(ctx.task, torch.cat(found), torch.cat(labels), rows, self.hyper.covariance)

    def _draws(self, ctx: Context) -> tuple[Tensor, Tensor, Tensor]:
        """All draws of this epoch, shuffled, their labels, and the labels that there are, ascending.

        A function of seed, task and epoch, so that a run can go on within it.
        """
        if ctx.cache.get(DRAWS, (None,))[0] != ctx.epoch:
            generator = torch.Generator().manual_seed(
                epoch_seed(ctx.recipe.seed, ctx.task, ctx.epoch, _DRAWN)
            )
            features, labels = Gaussians(self.state["own"]).draw(self.hyper.draws, generator)
            order = torch.randperm(len(labels), generator=generator).to(labels.device)
            known = labels.unique()  # type: ignore[no-untyped-call]
            ctx.cache[DRAWS] = (ctx.epoch, features[order], labels[order], known)
        _, features, labels, known = ctx.cache[DRAWS]
        return features, labels, known


def aligned_cross_entropy(logits: Tensor, y: Tensor, temperature: float) -> Tensor:
    """Mean cross-entropy of logits [B, C] at length one, over a temperature; y int64 [B]."""
    length = logits.norm(dim=1, keepdim=True).clamp(min=SHORTEST)
    return functional.cross_entropy(logits / (temperature * length), y)
