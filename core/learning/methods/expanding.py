"""Common base of methods that add an expert per task: growth, two stages, exemplars.

Stage 1 trains the new expert and the classifier on the task's images and the exemplars; older
experts run once, without a graph. The exemplars are then selected again, including the task's
classes. Stage 2 tunes the classifier alone on them, with equally many of each class. The first task
trains the first expert, in one stage.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from core.learning.data.dataset import DataError
from core.learning.memory.exemplars import ExemplarBuffer
from core.learning.memory.rehearsal import (
    choose_exemplars_by_herding,
    draw_exemplar_batch,
    draw_exemplars_to_add_to_batch,
)
from core.learning.methods.method import Method, TrainingStage
from core.learning.networks import Network
from core.learning.networks.growing import GrowingNetwork
from core.learning.recipe import NotNegative, StrictRecipeModel
from core.learning.training.context import TaskTrainingContext, TrainingBatch

EXPERT, CLASSIFIER = "expert", "classifier"


class ExpandingHyper(StrictRecipeModel):
    """Hyper-parameters of methods that add an expert to the network for each task.

    `exemplars`: images stored in total. `expertise` (in Python: `auxiliary`): weight of the
    auxiliary loss. `tuning_epochs`: epochs of stage 2, each with as many steps as an epoch of the
    task.
    """

    exemplars: Annotated[int, Field(ge=1, le=1_000_000)] = 2000
    auxiliary: NotNegative = Field(default=0.1, alias="expertise")
    tuning_epochs: Annotated[int, Field(ge=1, le=10_000)] = 8


class ExpandingMethod(Method):
    """Base class of methods that add an expert for each task; subclasses define its size and
    losses.
    """

    scenarios = ("class",)
    no_neutral = "every task after the first adds an expert, whatever the weights of the losses are"
    inherited_state = ("exemplars",)
    remembers = "exemplars"
    no_merge = "a task adds an expert, which the version before does not have"
    no_feature_cache = "an expert moves in every task, and its features with it"
    network: ClassVar[type[GrowingNetwork]]
    hyper: ExpandingHyper

    @property
    def expert_size(self) -> int:
        """Size of the expert that this task adds, in the units of the network family."""
        return 1

    def compute_new_expert_losses(
        self, ctx: TaskTrainingContext, x: Tensor, y: Tensor
    ) -> dict[str, Tensor]:
        """Compute the losses of stage 1 (training the new expert) by name.

        Args:
            ctx: the training context.
            x: float [B, C, S, S].
            y: int64 [B], rows of the classifier.
        """
        raise NotImplementedError

    def compute_head_tuning_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Compute the scalar loss by which stage 2 and `rebalance` tune the classifier.

        Args:
            logits: [B, classes].
            y: int64 [B].
        """
        raise NotImplementedError

    def build_network(self, network: Network) -> Network:
        """Build the growing network, which adds an expert in each task after the first.

        Raises DataError for an unsuitable network.
        """
        if not isinstance(network, self.network):
            try:
                return self.network(network)
            # A DataError reaches the person who sent the recipe: it is at fault, not the code.
            except ValueError as error:
                raise DataError(str(error)) from None
        network.set_size_of_next_expert(self.expert_size)
        return network

    def plan_training_stages(self, ctx: TaskTrainingContext) -> list[TrainingStage]:
        """Plan the stages: train the expert, then the classifier; in the first task the expert
        alone.
        """
        first = [TrainingStage(EXPERT)]
        return (
            first
            if ctx.first
            else [*first, TrainingStage(CLASSIFIER, self.hyper.tuning_epochs, depth=1)]
        )

    def compute_loss_terms(
        self, ctx: TaskTrainingContext, batch: TrainingBatch
    ) -> dict[str, Tensor]:
        """Compute the stage's losses on new images and replayed exemplars.

        Stage 2 uses exemplars alone, if there are any.
        """
        exemplars = ExemplarBuffer(self.state["exemplars"])
        x, y = batch.x, batch.y
        if ctx.stage == CLASSIFIER:
            if exemplars.size:
                x, y = draw_exemplar_batch(ctx, exemplars)
            with torch.no_grad():
                # Only the classifier is trained in stage 2.
                features = ctx.network.features(x)
            return {"task": self.compute_head_tuning_loss(ctx.network.logits(features).float(), y)}
        if (share := draw_exemplars_to_add_to_batch(ctx, exemplars)) is not None:
            x, y = torch.cat([x, share[0]]), torch.cat([y, share[1]])
        return self.compute_new_expert_losses(ctx, x, y)

    def begin_task(self, ctx: TaskTrainingContext) -> None:
        """Begin a task; warn if a masked `train_ce` has no effect."""
        if ctx.is_loss_over_task_classes_only:
            ctx.warn(
                "train_ce masked has no effect: exemplars are among the images, so every class is "
                "told apart"
            )

    def begin_stage(self, ctx: TaskTrainingContext) -> None:
        """Select the exemplars again before stage 2, the tuning of the classifier."""
        if ctx.stage == CLASSIFIER:
            self._trim_and_add_exemplars(ctx, ctx.examples())

    def end_task(self, ctx: TaskTrainingContext, batches: Iterable[TrainingBatch]) -> None:
        """Select the exemplars of the first task, and drop the auxiliary classifier."""
        if ctx.first:
            self._trim_and_add_exemplars(ctx, batches)
        # It tells only this task's classes apart, and is no part of the version.
        get_growing_network(ctx).auxiliary = None

    def erase_task_examples(self, tasks: set[int]) -> None:
        """Delete every stored exemplar of these tasks."""
        ExemplarBuffer(self.state["exemplars"]).remove_items_of_tasks(tasks)

    def _trim_and_add_exemplars(
        self, ctx: TaskTrainingContext, batches: Iterable[TrainingBatch]
    ) -> None:
        """Cut the stored exemplars to an equal share per class, and add exemplars of the task by
        herding.
        """
        exemplars, network = ExemplarBuffer(self.state["exemplars"]), ctx.network
        share = self.hyper.exemplars // len(network.classes)
        # Trimmed before the new ones are added, so that the memory never exceeds its limit.
        exemplars.trim_exemplars_per_class(share)
        if share == 0:
            ctx.warn(
                f"{self.hyper.exemplars} exemplars are fewer than {len(network.classes)} classes: "
                "none are kept; raise method.exemplars"
            )
            return
        with ctx.use_exact_evaluation_mode():
            exemplars.append_and_trim_class_exemplars(
                choose_exemplars_by_herding(network, batches, share, ctx.alive), ctx.task, share
            )


def get_growing_network(ctx: TaskTrainingContext) -> GrowingNetwork:
    """Return the context's network after checking that it is a `GrowingNetwork`."""
    assert isinstance(ctx.network, GrowingNetwork)
    return ctx.network


def count_classes_of_earlier_tasks(ctx: TaskTrainingContext) -> int:
    """Count the network's classes that do not belong to this task."""
    return len(ctx.network.classes) - ctx.class_rows.numel()


def make_auxiliary_classifier_targets(ctx: TaskTrainingContext, y: Tensor) -> Tensor:
    """Make targets int64 [B] of the auxiliary classifier, which tells new classes apart from all
    old ones.

    They are 0 for other tasks' classes, then 1, 2, … by row.
    """
    # A search and not a table, since rows of a task need not be contiguous.
    places = torch.searchsorted(ctx.class_rows, y)
    inside = ctx.class_rows[places.clamp_max(ctx.class_rows.numel() - 1)] == y
    return torch.where(inside, places + 1, 0)
