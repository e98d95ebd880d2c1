"""Training schedule of a task: its stages, and the epochs and optimizer steps of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.learning.data.sampler import count_epoch_batches
from core.learning.methods.method import Method, TrainingStage
from core.learning.optimizers.rollback import TrainingStageDepthAndSteps
from core.learning.training import rebalance
from core.learning.training.context import TaskTrainingContext


@dataclass(frozen=True)
class MultiStageSchedule:
    """The schedule of training stages with their epochs and steps.

    Attributes:
        epochs: number of epochs of each stage.
        per_epoch: optimizer steps per epoch.
        training: number of stages that train the backbone.
    """

    stages: Sequence[TrainingStage]
    epochs: Sequence[int]
    per_epoch: int
    training: int

    @classmethod
    def plan_schedule(cls, ctx: TaskTrainingContext, method: Method) -> MultiStageSchedule:
        """Plan the schedule of training stages from recipe and method."""
        recipe, training = ctx.recipe, method.plan_training_stages(ctx)
        # Last, since it trains the head on the features of the finished backbone.
        stages = [*training, *rebalance.plan_rebalancing_stage(ctx)]
        return cls(
            stages=stages,
            epochs=[stage.epochs or recipe.epochs for stage in stages],
            per_epoch=count_epoch_batches(recipe.batch_order, ctx.num_images, recipe.batch_size),
            training=len(training),
        )

    @property
    def total_epochs(self) -> int:
        """Number of epochs of all training stages."""
        return sum(self.epochs)

    @property
    def total_steps(self) -> int:
        """Number of optimizer steps of all training stages."""
        return self.per_epoch * self.total_epochs

    def count_steps_before_stage(self, stage: int) -> int:
        """Count the optimizer steps of the stages before this one."""
        return self.per_epoch * sum(self.epochs[:stage])

    def list_backbone_training_stages(self, depth: int) -> list[TrainingStageDepthAndSteps]:
        """List depth and number of steps of each stage that trains the backbone.

        Args:
            depth: the recipe's depth, for stages that name none.
        """
        return [
            TrainingStageDepthAndSteps(stage.depth or depth, self.per_epoch * epochs)
            # Not strict: the epochs of a rebalancing stage come last, and are left out.
            for stage, epochs in zip(self.stages[: self.training], self.epochs, strict=False)
        ]
