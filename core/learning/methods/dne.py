"""Dense network expansion (DNE): each task adds a small expert that reads the frozen earlier ones.

Hu et al. 2023, CVPR. Stage 1: (1 - λ) l(logits, y) + λ τ² KL(old logits ‖ the old classes' logits
now) + w l(auxiliary logits of the new expert), λ the share of old classes. Teacher and student
share the pass through the older experts. The paper uses cross-entropy; the default here follows its
authors' program: sigmoids and means over classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from core.learning.data.augment import derive_seed
from core.learning.data.transfer import copy_tensor_to_device
from core.learning.methods.expanding import (
    ExpandingHyper,
    ExpandingMethod,
    count_classes_of_earlier_tasks,
    get_growing_network,
    make_auxiliary_classifier_targets,
)
from core.learning.methods.method import AcceptedRecipes, TrainingMemoryMultiples
from core.learning.methods.registration import register_method
from core.learning.networks.dne.chain import draw_drop_path_masks
from core.learning.networks.dne.network import DneNetwork
from core.learning.networks.dne.packed import is_expert_packing_faster
from core.learning.networks.growing import OlderExpertFeatures, compute_linear_layer_block_by_block
from core.learning.recipe import Positive, Share
from core.learning.training.context import TaskTrainingContext


class DneMethodHyper(ExpandingHyper):
    """Hyper-parameters of the method `dne` (dense network expansion).

    `heads`: attention heads of the expert that this task adds. `loss`: sigmoids and their mean over
    classes ("bce"), or cross-entropy. `temperature`: τ of the distillation. `drop_path`: rate of
    stochastic depth in the last layer, in training. `head`: "zero": old classes start without the
    new expert. "official": as in the authors' program, they read it by random weights and their
    biases are drawn again, which changes all predictions.
    """

    heads: Annotated[int, Field(ge=1, le=64)] = 1
    loss: Literal["bce", "ce"] = "bce"
    temperature: Positive = 1.0
    drop_path: Share = 0.1
    head: Literal["zero", "official"] = "zero"


@register_method
class DneMethod(ExpandingMethod):
    """The method `dne` (dense network expansion), which trains a new expert for each task, and the
    classifier.
    """

    name = "dne"
    footprint = TrainingMemoryMultiples(growing=0.5, batches=2.0, images=64)
    description = (
        "Dense network expansion: each task adds a small transformer expert that reads the "
        "features of all earlier ones, which never change. Keeps a few exemplars. Needs the "
        "architecture dne."
    )
    source = "Hu et al. 2023, Dense Network Expansion for Class Incremental Learning, CVPR"
    Hyper = DneMethodHyper
    accepts = AcceptedRecipes(olor=False, depths=(5,), architectures=("dne",))
    regularisers = ("distillation", "auxiliary")
    recipe_defaults: ClassVar[Mapping[str, Any]] = {
        "optimizer": {"name": "adamw", "lr": 0.0005, "weight_decay": 1e-6},
        "head": {"init": "default"},
    }
    family = DneNetwork.family
    network = DneNetwork
    hyper: DneMethodHyper

    @property
    def expert_size(self) -> int:
        """Number of attention heads of the new expert."""
        return self.hyper.heads

    def begin_task(self, ctx: TaskTrainingContext) -> None:
        """Begin a task as in `ExpandingMethod`; `head` "official" redraws old classes' newest
        columns.
        """
        super().begin_task(ctx)
        if (
            self.hyper.head == "official"
            and not ctx.first
            and (old := count_classes_of_earlier_tasks(ctx))
        ):
            seed = derive_seed(ctx.recipe.seed, 6, ctx.task)
            get_growing_network(ctx).head.reinit_newest_columns_and_biases(
                old, torch.Generator().manual_seed(seed)
            )

    def compute_new_expert_losses(
        self, ctx: TaskTrainingContext, x: Tensor, y: Tensor
    ) -> dict[str, Tensor]:
        """Compute the task, distillation and auxiliary losses of training the new expert.

        The first task has the task loss alone.
        """
        network = get_growing_network(ctx)
        old = self._compute_older_features(ctx, x)
        newest = network.compute_newest_features(old, x, self._draw_drop_path_masks(ctx, len(x)))
        logits = network.logits(torch.cat([*old.features, newest], 1)).float()
        # Without old classes there is nothing to distil, and nothing to separate the new ones from.
        if ctx.first or count_classes_of_earlier_tasks(ctx) == 0 or network.auxiliary is None:
            return {"task": self.compute_head_tuning_loss(logits, y)}
        # The teacher is the old head on the old features, which this pass has computed anyway.
        weight, bias = self._get_head_at_task_start(ctx)
        with torch.no_grad():
            teacher = compute_linear_layer_block_by_block(
                torch.cat(old.features, 1), weight, bias, network.head.widths[:-1]
            ).float()
        auxiliary_logits = network.auxiliary(newest).float()
        share = count_classes_of_earlier_tasks(ctx) / logits.shape[1]
        return {
            "task": (1 - share) * self.compute_head_tuning_loss(logits, y),
            "distillation": share
            * self._compute_distillation_loss(logits[:, : len(bias)], teacher),
            "auxiliary": self.hyper.auxiliary
            * self.compute_head_tuning_loss(
                auxiliary_logits, make_auxiliary_classifier_targets(ctx, y)
            ),
        }

    def compute_head_tuning_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Compute the classifier tuning loss: cross-entropy, or binary cross-entropy averaged over
        classes.
        """
        if self.hyper.loss == "ce":
            return functional.cross_entropy(logits, y)
        targets = functional.one_hot(y, logits.shape[1]).to(logits.dtype)
        return functional.binary_cross_entropy_with_logits(logits, targets)

    def _compute_distillation_loss(self, logits: Tensor, teacher: Tensor) -> Tensor:
        """Compute the distillation loss τ² KL(teacher ‖ student) over the old classes.

        With sigmoids it is divided by the number of these classes.
        """
        tau = self.hyper.temperature
        student, targets = (z.div(tau).log_softmax(1) for z in (logits, teacher))
        divergence = tau**2 * functional.kl_div(
            student, targets, reduction="batchmean", log_target=True
        )
        return divergence / logits.shape[1] if self.hyper.loss == "bce" else divergence

    def _get_head_at_task_start(self, ctx: TaskTrainingContext) -> tuple[Tensor, Tensor]:
        """Return the classifier's weight and bias as they were at the start of the task."""
        if "old_head" not in ctx.cache:
            # Cached on the device: a copy in each step would make a GPU wait.
            before = ctx.weights_at("update_start")
            ctx.cache["old_head"] = tuple(
                before[f"head.{n}"].to(ctx.device) for n in ("weight", "bias")
            )
        old_head: tuple[Tensor, Tensor] = ctx.cache["old_head"]
        return old_head

    def _compute_older_features(self, ctx: TaskTrainingContext, x: Tensor) -> OlderExpertFeatures:
        """Compute the features of the older experts for a batch.

        The decision to pack experts, once per task, depends on the device alone.
        """
        network = get_growing_network(ctx)
        assert isinstance(network, DneNetwork)
        if is_expert_packing_faster(ctx.device) and "packed" not in ctx.cache:
            # Older experts never change within a task, so one packing serves all of its steps.
            ctx.cache["packed"] = network.pack_older_experts()
        return network.compute_older_features(x, ctx.cache.get("packed"))

    def _draw_drop_path_masks(self, ctx: TaskTrainingContext, size: int) -> Tensor | None:
        """Draw this step's masks of stochastic depth (dropped paths); None without it."""
        if self.hyper.drop_path == 0:
            return None
        # A function of seed, task and step, so that a resumed run draws the same masks.
        generator = torch.Generator().manual_seed(
            derive_seed(ctx.recipe.seed, 5, ctx.task, ctx.step)
        )
        network = get_growing_network(ctx)
        assert isinstance(network, DneNetwork)
        layers = len(network.backbone.expert.layers)
        return copy_tensor_to_device(
            draw_drop_path_masks(layers, self.hyper.drop_path, size, generator), ctx.device
        )
