"""What methods share that add an expert for each task: how they grow, their two stages, and their exemplars.

Stage 1 trains the new expert and the classifier on the task's images and the exemplars; older experts are passed once,
without a graph. Then the exemplars are chosen anew, the task's classes among them, and stage 2 tunes the classifier
alone on them: as many of each class. The first task trains the first expert, in one stage.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from core.learn.context import Batch, Context
from core.learn.dataset import DataError
from core.learn.memory.exemplars import Exemplars
from core.learn.memory.rehearsal import batch_of_epoch, choose, share_of_epoch
from core.learn.method import Method, Stage
from core.learn.networks import Network
from core.learn.networks.growing import GrowingNetwork
from core.learn.recipe import NotNegative, Strict

EXPERT, CLASSIFIER = "expert", "classifier"


class ExpandingHyper(Strict):
    """`exemplars`: images kept in all. `expertise`: weight of the new expert's own loss.

    `tuning_epochs`: of the classifier alone, each with as many steps as an epoch of the task.
    """

    exemplars: Annotated[int, Field(ge=1, le=1_000_000)] = 2000
    expertise: NotNegative = 0.1
    tuning_epochs: Annotated[int, Field(ge=1, le=10_000)] = 8


class Expanding(Method):
    """`size` and the losses are the subclasses'."""

    scenarios = ("class",)
    no_neutral = "every task after the first adds an expert, whatever the weights of the losses are"
    takes = ("exemplars",)
    network: ClassVar[type[GrowingNetwork]]
    hyper: ExpandingHyper

    @property
    def size(self) -> int:
        """Of the expert that this task adds."""
        return 1

    def losses(self, ctx: Context, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Stage 1."""
        raise NotImplementedError

    def tuning_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Stage 2."""
        raise NotImplementedError

    def build(self, network: Network) -> Network:
        if not isinstance(network, self.network):
            try:
                return self.network(network)
            except ValueError as error:
                raise DataError(str(error)) from None
        network.expand(self.size)
        return network

    def stages(self, ctx: Context) -> list[Stage]:
        first = [Stage(EXPERT)]
        return first if ctx.first else [*first, Stage(CLASSIFIER, self.hyper.tuning_epochs, depth=1)]

    def loss_terms(self, ctx: Context, batch: Batch) -> dict[str, Tensor]:
        exemplars = Exemplars(self.state["exemplars"])
        x, y = batch.x, batch.y
        if ctx.stage == CLASSIFIER:
            if exemplars.size:
                x, y = batch_of_epoch(ctx, exemplars)
            with torch.no_grad():
                features = ctx.network.features(x)
            return {"task": self.tuning_loss(ctx.network.logits(features).float(), y)}
        if (share := share_of_epoch(ctx, exemplars)) is not None:
            x, y = torch.cat([x, share[0]]), torch.cat([y, share[1]])
        return self.losses(ctx, x, y)

    def begin_task(self, ctx: Context) -> None:
        if ctx.masked:
            ctx.warn(
                "train_ce masked has no effect: exemplars are among the images, so every class is told apart"
            )

    def begin_stage(self, ctx: Context) -> None:
        if ctx.stage == CLASSIFIER:
            self._choose(ctx, ctx.examples())

    def end_task(self, ctx: Context, batches: Iterable[Batch]) -> None:
        if ctx.first:
            self._choose(ctx, batches)
        growing(ctx).expertise = None

    def erase(self, tasks: set[int]) -> None:
        Exemplars(self.state["exemplars"]).drop_tasks(tasks)

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


def growing(ctx: Context) -> GrowingNetwork:
    """The context's network."""
    assert isinstance(ctx.network, GrowingNetwork)
    return ctx.network


def known(ctx: Context) -> int:
    """Classes of earlier tasks that this one does not show."""
    return len(ctx.network.classes) - ctx.units.numel()


def expertise_of(ctx: Context, y: Tensor) -> Tensor:
    """What `expertise` ought to say: 0 for other classes, then 1, 2, … for the task's, in the order of their rows."""
    places = torch.searchsorted(ctx.units, y)
    inside = ctx.units[places.clamp_max(ctx.units.numel() - 1)] == y
    return torch.where(inside, places + 1, 0)
