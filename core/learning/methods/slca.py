"""Slow learner with classifier alignment (SLCA), with a head trained on Gaussians of features.

Zhang et al. 2023 (arXiv 2303.05118). A small learning rate keeps a pretrained backbone's features
nearly where they are. The head learns at the full rate, on the classes of its batch alone
(`train_ce` masked). That leaves the heads of different tasks uncompared. So each class is
remembered as a Gaussian N(μ_c, Σ_c) of its features. After a task the head alone is trained on as
many draws of every class, with logits of length one over a temperature:

    L = −log( exp(l_y / (τ ‖l‖)) / Σ_c exp(l_c / (τ ‖l‖)) )

No image is stored. A first task from random weights trains its backbone at the full rate: there is
nothing to preserve yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from core.learning.class_map import ClassMap
from core.learning.data.augment import derive_seed
from core.learning.data.dataset import DataError
from core.learning.memory.gaussians import WIDEST, ClassGaussians
from core.learning.methods.method import Method, TrainingMemoryMultiples, TrainingStage
from core.learning.methods.registration import register_method
from core.learning.recipe import StrictRecipeModel
from core.learning.training.context import TaskTrainingContext, TrainingBatch

ALIGN = "align"
DRAWS = "draws"
_DRAWN = 1  # separates its seeds from those of the epochs' tables
SHORTEST = 1e-7
"""Length below which logits are not scaled up: rows of zeros have none."""


class SlcaHyper(StrictRecipeModel):
    """Hyper-parameters of the method `slca` (slow learner with classifier alignment).

    `backbone_rate`: the backbone's learning rate, as a share of the head's. `covariance`: the form
    of covariance that is stored of a class. `align_epochs`: passes over the draws after a task,
    `draws` of each class in each; `temperature`: τ of their loss.
    """

    backbone_rate: Annotated[float, Field(gt=0, le=1)] = 0.1
    covariance: Literal["shared", "diagonal", "full"] = "shared"
    draws: Annotated[int, Field(ge=1, le=10_000)] = 256
    align_epochs: Annotated[int, Field(ge=1, le=1000)] = 5
    temperature: Annotated[float, Field(gt=0, le=100)] = 0.1


@register_method
class SlcaMethod(Method):
    """The method `slca`: trains the network slowly, then aligns the head on Gaussian features.

    Alignment leaves out classes without a Gaussian, which another method learned.
    """

    name = "slca"
    description = (
        "A slow backbone and a fast head, which after each task is trained on Gaussian draws of "
        "all classes. Keeps no image. Give it a pretrained base."
    )
    source = "Zhang et al. 2023, SLCA: Slow Learner with Classifier Alignment, arXiv 2303.05118"
    scenarios = ("data", "class")
    Hyper = SlcaHyper
    no_neutral = "after each task it trains the head on draws of all classes"
    recipe_defaults = {"train_ce": "masked"}  # noqa: RUF012
    footprint = TrainingMemoryMultiples(copies=7.0)
    hyper: SlcaHyper

    def plan_training_stages(self, ctx: TaskTrainingContext) -> list[TrainingStage]:
        """Plan the stages: slow training, then classifier alignment; the first task has no
        alignment.
        """
        # There are no features to preserve yet.
        untrained = ctx.first and not ctx.network.pretrained
        slow = TrainingStage(backbone_rate=1.0 if untrained else self.hyper.backbone_rate)
        return (
            [slow] if ctx.first else [slow, TrainingStage(ALIGN, self.hyper.align_epochs, depth=1)]
        )

    def compute_loss_terms(
        self, ctx: TaskTrainingContext, batch: TrainingBatch
    ) -> dict[str, Tensor]:
        """Compute the cross-entropy of the images; in the alignment stage, of features drawn from
        Gaussians.
        """
        if ctx.stage != ALIGN:
            return super().compute_loss_terms(ctx, batch)
        features, labels, present = self._draw_shuffled_epoch_features(ctx)
        n = len(labels)
        # The draws are spread over the epoch's batches, whatever their number.
        part = slice(n * ctx.batch // ctx.batches, n * (ctx.batch + 1) // ctx.batches)
        logits = ctx.network.logits(features[part]).float()[:, present]
        # Rows of the head become columns of the classes with a Gaussian.
        y = torch.searchsorted(present, labels[part])
        return {"align": compute_normalised_logit_cross_entropy(logits, y, self.hyper.temperature)}

    def begin_task(self, ctx: TaskTrainingContext) -> None:
        """Begin a task; warn if validation would choose a state whose head is not aligned yet.

        Raises:
            DataError: the network has more features than a stored covariance may have.
        """
        width = ctx.network.backbone.width
        if width > WIDEST:
            raise DataError(
                f"slca keeps covariances of up to {WIDEST:,} features and this network has "
                f"{width:,}: take a "
                "smaller architecture, or another method"
            )
        if ctx.recipe.validation and not ctx.first:
            ctx.warn(
                "validation chooses the state by images of the new task alone, which are answered "
                "best before the head is aligned: set validation to 0"
            )

    def begin_stage(self, ctx: TaskTrainingContext) -> None:
        """Fit Gaussians to the new classes' features before the head is aligned."""
        if ctx.stage == ALIGN:
            self._fit_and_store_class_gaussians(ctx)

    def end_task(self, ctx: TaskTrainingContext, batches: Iterable[TrainingBatch]) -> None:
        """Fit Gaussians to the new classes' features at the task's end, unless they are up to
        date.
        """
        if ctx.first or ctx.recipe.validation:  # otherwise they are up to date
            self._fit_and_store_class_gaussians(ctx)

    def renumber_and_drop_classes(self, classes: ClassMap) -> None:
        """Renumber the classes of the stored Gaussians; a merged class becomes a mixture."""
        ClassGaussians(self.state["own"]).renumber_and_drop_classes(classes)

    def _fit_and_store_class_gaussians(self, ctx: TaskTrainingContext) -> None:
        """Fit and store Gaussians of the features of the task's classes, in one pass over its
        images.
        """
        features, labels = [], []
        with ctx.use_exact_evaluation_mode(), torch.no_grad():
            for batch in ctx.in_order():
                features.append(ctx.network.features(batch.x).float())
                labels.append(batch.y)
        gaussians = ClassGaussians(self.state["own"])
        rows = ctx.class_rows.to(labels[0].device)
        gaussians.fit_and_store_task_gaussians(
            ctx.task, torch.cat(features), torch.cat(labels), rows, self.hyper.covariance
        )

    def _draw_shuffled_epoch_features(
        self, ctx: TaskTrainingContext
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Draw this epoch's features from the Gaussians, shuffled, with labels and the labels that
        occur.

        The draws are a function of seed, task and epoch, so that a run can resume within an epoch.
        """
        if ctx.cache.get(DRAWS, (None,))[0] != ctx.epoch:
            generator = torch.Generator().manual_seed(
                derive_seed(ctx.recipe.seed, ctx.task, ctx.epoch, _DRAWN)
            )
            features, labels = ClassGaussians(self.state["own"]).draw_gaussian_features(
                self.hyper.draws, generator
            )
            # Shuffled: the draws come class by class.
            order = torch.randperm(len(labels), generator=generator).to(labels.device)
            present = labels.unique()  # type: ignore[no-untyped-call]
            ctx.cache[DRAWS] = (ctx.epoch, features[order], labels[order], present)
        _, features, labels, present = ctx.cache[DRAWS]
        return features, labels, present


def compute_normalised_logit_cross_entropy(logits: Tensor, y: Tensor, temperature: float) -> Tensor:
    """Compute the mean cross-entropy of logits [B, C] that are normalised and divided by a
    temperature.

    y: int64 [B].
    """
    # Logits that are all zero have no direction, and must not be divided by 0.
    length = logits.norm(dim=1, keepdim=True).clamp(min=SHORTEST)
    return functional.cross_entropy(logits / (temperature * length), y)
