"""Dynamically expandable representation, without pruning: a whole backbone for each task, older ones frozen.

Yan et al. 2021, CVPR. Stage 1: cross-entropy over all classes plus w times that of the new backbone's own classifier;
nothing is distilled. Stage 2 tunes the classifier on the exemplars, logits divided by a temperature. Batch norms of a new
backbone keep the statistics of the one that it started from, as every method's do after the first task.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from core.learn.context import Context
from core.learn.method import Accepts, Footprint
from core.learn.methods.expanding import Expanding, ExpandingHyper, expertise_of, growing, known
from core.learn.networks.der_net import ParallelNetwork
from core.learn.recipe import NotNegative, Positive


class DerNetHyper(ExpandingHyper):
    """`temperature`: of the logits in stage 2."""

    expertise: NotNegative = 1.0
    temperature: Positive = 5.0


class DerNet(Expanding):
    """Trains the newest backbone and the classifier."""

    name = "der-net"
    footprint = Footprint(growing=2.0, batches=2.0)
    description = (
        "Dynamically expandable representation: each task adds a copy of the whole backbone, older ones never change. "
        "Costs as much again in storage and time with every task. Keeps a few exemplars."
    )
    source = "Yan et al. 2021, DER: Dynamically Expandable Representation, arXiv 2103.16788"
    Hyper = DerNetHyper
    accepts = Accepts(olor=False, depths=(5,))
    regularisers = ("expertise",)
    family = ParallelNetwork.family
    network = ParallelNetwork
    hyper: DerNetHyper

    def losses(self, ctx: Context, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        network = growing(ctx)
        old = network.older(x)
        newest = network.newest(old, x)
        logits = network.logits(torch.cat([*old.features, newest], 1)).float()
        task = functional.cross_entropy(logits, y)
        if ctx.first or known(ctx) == 0 or network.expertise is None:
            return {"task": task}
        own = network.expertise(newest).float()
        return {
            "task": task,
            "expertise": self.hyper.expertise * functional.cross_entropy(own, expertise_of(ctx, y)),
        }

    def tuning_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(logits / self.hyper.temperature, y)
