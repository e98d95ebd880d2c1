"""A last stage that trains the head alone, on equally many images of each class.

While a task is learned its images are many and remembered ones few, so the head predicts new
classes too often (Castro et al. 2018, EEIL, arXiv 1807.09536, balanced fine-tuning; Wu et al. 2019,
BiC, arXiv 1905.13260). Here the pool is the remembered images of earlier tasks and as many images
of the new one. Every batch has an equal share of each class in the pool. Images are not augmented,
and the pool's features are computed once, since the backbone is frozen. The method's own loss of a
classifier stage is used, and none of its other hooks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.learning.data.augment import derive_seed
from core.learning.data.dataset import TrainingBatchSource
from core.learning.data.features import BATCH, use_network_without_gradients
from core.learning.data.sampler import draw_class_balanced_row_batches
from core.learning.data.transfer import copy_tensor_to_device
from core.learning.methods.method import Method, TrainingStage
from core.learning.recipe import OptimizerRecipe
from core.learning.state import MethodState
from core.learning.training.context import TaskTrainingContext, TrainingBatch

REBALANCE = "rebalance"


class RebalancingStageMethod(Method):
    """The method of the rebalancing stage: tunes the head by another method's
    `compute_head_tuning_loss`.
    """

    name = REBALANCE

    def __init__(self, tuned: Method) -> None:
        super().__init__(tuned.hyper, MethodState())
        self._tuned = tuned

    def compute_loss_terms(
        self, ctx: TaskTrainingContext, batch: TrainingBatch
    ) -> dict[str, Tensor]:
        """Compute the tuned method's loss on a batch of features. batch.x: float32 [B, D]."""
        logits = ctx.network.logits(batch.x, batch.task).float()
        return {"task": self._tuned.compute_head_tuning_loss(logits, batch.y)}


class RebalancingFeaturePool:
    """Training data for rebalancing the head: features float32 [n, D], labels int64 [n] as head
    rows.
    """

    def __init__(self, features: Tensor, labels: Tensor) -> None:
        self.labels = labels
        self._features = features
        self._y = labels.to(features.device)

    def make_batch(
        self, index: Tensor, table: Tensor | None, at: Tensor | None = None
    ) -> TrainingBatch:
        """Make a batch of features from the rows `index` int64 [B]."""
        at = copy_tensor_to_device(index, self._features.device) if at is None else at
        x, y = self._features.index_select(0, at), self._y.index_select(0, at)
        return TrainingBatch(x, y, index, None, _raise_images_unavailable_error)


def plan_rebalancing_stage(ctx: TaskTrainingContext) -> list[TrainingStage]:
    """Plan the rebalancing stage if the recipe requests one; none without classes of earlier
    tasks.
    """
    rebalance = ctx.recipe.rebalance
    return (
        []
        if rebalance is None or ctx.first
        else [TrainingStage(REBALANCE, rebalance.epochs, depth=1)]
    )


def choose_rebalancing_optimizer_recipe(ctx: TaskTrainingContext) -> OptimizerRecipe:
    """Choose the rebalancing stage's optimizer: the recipe's, at the stage's rate and without
    OLOR.
    """
    optimizer, rebalance = ctx.recipe.optimizer, ctx.recipe.rebalance
    assert rebalance is not None
    rate = rebalance.lr or optimizer.head_lr or optimizer.lr
    # Without OLOR: the head alone moves, and nothing pulls it back.
    return optimizer.model_copy(update={"lr": rate, "head_lr": None, "olor": None})


def build_rebalance_pool(
    ctx: TaskTrainingContext, method: Method, source: TrainingBatchSource, rows: Tensor
) -> RebalancingFeaturePool | None:
    """Build the rebalancing data: replayed images of earlier tasks and as many training images.

    Each class of the new task has an equal share. Returns None, with a warning, when no image of an
    earlier task is remembered. rows: int64 [n].
    """
    assert method.remembers is not None, "the recipe was checked"
    remembered = method.state[method.remembers].tensors
    old = (
        # The memory may have images of this task already, which the training rows contain.
        (remembered["tasks"] != ctx.task).nonzero().squeeze(1)
        if "tasks" in remembered
        else torch.zeros(0)
    )
    if old.numel() == 0:
        ctx.warn("the head is not rebalanced: the method remembers no image of an earlier task")
        return None
    # At least one image of each new class.
    count = max(old.numel(), ctx.class_rows.numel())
    seed = derive_seed(ctx.recipe.seed, ctx.task, 4)
    new = draw_class_balanced_row_batches(seed, 0, rows, source.labels, count)[0].unique()  # type: ignore[no-untyped-call]
    with use_network_without_gradients(ctx):
        # In runs as long as those of the feature cache: kernels for a few images round differently.
        features = [
            ctx.network.features(ctx.inputs(remembered["images"][part])).float()
            for part in _split_rows_into_runs(old)
        ]
        features += [
            ctx.network.features(source.make_batch(part, None).x).float()
            for part in _split_rows_into_runs(new)
        ]
    ctx.log(
        f"Rebalancing the head on {old.numel():,} remembered and {new.numel():,} new images: their "
        "features are computed once, and every batch has an equal share of each class."
    )
    return RebalancingFeaturePool(
        torch.cat(features), torch.cat([remembered["labels"][old].cpu(), source.labels[new]])
    )


def _split_rows_into_runs(rows: Tensor) -> tuple[Tensor, ...]:
    """Split rows into runs of nearly equal length, of up to twice `BATCH` rows."""
    return rows.tensor_split(max(1, rows.numel() // BATCH))


def _raise_images_unavailable_error(rows: Tensor) -> Tensor:
    raise NotImplementedError("a batch of the pool has features, not images")
