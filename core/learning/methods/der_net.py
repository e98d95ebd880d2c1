"""Dynamically expandable representation (DER) without pruning: one backbone per task.

Yan et al. 2021, CVPR. Older backbones are frozen. Stage 1: cross-entropy over all classes plus w
times the auxiliary loss, that of a classifier on the new backbone alone; nothing is distilled.
Stage 2 tunes the classifier on the exemplars, with logits divided by a temperature. BatchNorm
layers of a new backbone retain the statistics of the backbone that it was copied from, as all
BatchNorm layers do after a model's first task.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from core.learning.methods.expanding import (
    ExpandingHyper,
    ExpandingMethod,
    count_classes_of_earlier_tasks,
    get_growing_network,
    make_auxiliary_classifier_targets,
)
from core.learning.methods.method import AcceptedRecipes, TrainingMemoryMultiples
from core.learning.methods.registration import register_method
from core.learning.networks.der_net import DerNetwork
from core.learning.recipe import NotNegative, Positive
from core.learning.training.context import TaskTrainingContext


class DerNetHyper(ExpandingHyper):
    """Hyper-parameters of the method `der-net`. `temperature` divides the logits in stage 2."""

    auxiliary: NotNegative = Field(default=1.0, alias="expertise")
    temperature: Positive = 5.0


@register_method
class DerNetMethod(ExpandingMethod):
    """The method `der-net` (dynamically expandable representation): trains a new backbone for each
    task.
    """

    name = "der-net"
    footprint = TrainingMemoryMultiples(growing=2.0, batches=2.0)
    description = (
        "Dynamically expandable representation: each task adds a copy of the whole backbone, older "
        "ones never change. Costs as much again in storage and time with every task. Keeps a few "
        "exemplars."
    )
    source = "Yan et al. 2021, DER: Dynamically Expandable Representation, arXiv 2103.16788"
    Hyper = DerNetHyper
    accepts = AcceptedRecipes(olor=False, depths=(5,))
    regularisers = ("auxiliary",)
    family = DerNetwork.family
    network = DerNetwork
    hyper: DerNetHyper

    def compute_new_expert_losses(
        self, ctx: TaskTrainingContext, x: Tensor, y: Tensor
    ) -> dict[str, Tensor]:
        """Compute the losses of training a new expert: cross-entropy over all classes, and
        auxiliary loss.
        """
        network = get_growing_network(ctx)
        old = network.compute_older_features(x)
        # Older backbones run once, without a graph: their features serve all losses.
        newest = network.compute_newest_features(old, x)
        logits = network.logits(torch.cat([*old.features, newest], 1)).float()
        task = functional.cross_entropy(logits, y)
        # Without old classes the auxiliary classifier has nothing to separate the new ones from.
        if ctx.first or count_classes_of_earlier_tasks(ctx) == 0 or network.auxiliary is None:
            return {"task": task}
        auxiliary_logits = network.auxiliary(newest).float()
        return {
            "task": task,
            # It keeps the new backbone from relying on the features of the older ones.
            "auxiliary": self.hyper.auxiliary
            * functional.cross_entropy(auxiliary_logits, make_auxiliary_classifier_targets(ctx, y)),
        }

    def compute_head_tuning_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Compute the classifier tuning loss: cross-entropy of the logits divided by the
        temperature.
        """
        return functional.cross_entropy(logits / self.hyper.temperature, y)
