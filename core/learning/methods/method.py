"""The interface of a continual-learning method.

Each step the loop calls a method's hooks in this order: compute_loss_terms → one backward →
add_penalty_gradients → project_gradient → clip → optimizer step → after_step. A method never steps
an optimizer, saves or logs. Its state between steps is `self.state` and nothing else: setting a
tensor or a module as an attribute raises, because the attribute would be lost with the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional

from core.learning.class_map import ClassMap
from core.learning.memory.renumber import (
    average_stored_rows_of_merged_classes,
    renumber_and_drop_replay_labels,
)
from core.learning.networks import Network
from core.learning.recipe import OptimizerRecipe, StrictRecipeModel
from core.learning.state import MethodState
from core.learning.training.context import TaskTrainingContext, TrainingBatch

SCENARIOS = ("data", "task", "class")
CLIP_FROM_RANDOM = 2.0
"""Bound of the gradient's norm for models from random weights: docs/design/defaults.md has the
table."""


@dataclass(frozen=True)
class AcceptedRecipes:
    """Recipe settings that a method supports; any other recipe is refused.

    Attributes:
        optimizers: names of the optimizers.
        olor: whether OLOR may pull the weights back after each step.
        depths: how much of the network may move, from 1 (heads) to 5 (everything).
        head_inits: how rows of new classes may start.
        architectures: families in the registry of architectures; None: all.
        task_only: hyper-parameters that must be off outside the task scenario.
        refused: scenario → hyper-parameter → value that it must not have.
        unfit: family of architectures → hyper-parameter → values that do not work on it; no
            hyper-parameters: the method does not work on the family at all.
    """

    optimizers: tuple[str, ...] = ("sgd", "adam", "adamw")
    olor: bool = True
    depths: tuple[int, ...] = (1, 2, 3, 4, 5)
    head_inits: tuple[str, ...] = ("zero", "default")
    architectures: tuple[str, ...] | None = None
    task_only: tuple[str, ...] = ()
    refused: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unfit: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingMemoryMultiples:
    """Memory that a method needs for training, in multiples of known sizes; measured, not derived.

    A job's memory is estimated from it before the job runs.

    Attributes:
        copies: of the weights: the network, its gradients, the start of the task, what is being
            written, and what the method keeps. The optimizer's state comes on top.
        copies_with: hyper-parameter → value → `copies` in its place.
        examples: further copies where the gradients of single images are as large as the weights
            (convolutions, tokens).
        growing: further copies for each earlier task, up to 20 tasks.
        batches: batches whose activations are held.
        images: images whose activations are held at once, after or beside the steps.
        columns: hyper-parameter with the number of columns whose second moments are stored per
            task, all of which a job loads; 0: the features and one. "": none are stored.
    """

    copies: float = 7.0
    copies_with: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    examples: float = 0.0
    growing: float = 0.0
    batches: float = 1.0
    images: int = 0
    columns: str = ""


@dataclass(frozen=True)
class TrainingStage:
    """One stage of a task's training, with an optimizer of its own; None in a field: as in the
    recipe.

    `backbone_rate`: the learning rate of all but the heads, as a share of the heads' rate; None: as
    the recipe says.
    """

    name: str = "all"
    epochs: int | None = None
    depth: int | None = None
    backbone_rate: float | None = None

    def get_optimizer_with_stage_rates(self, recipe: OptimizerRecipe) -> OptimizerRecipe:
        """Return the recipe's optimizer with the stage's learning rates."""
        if self.backbone_rate is None:
            return recipe
        # Of the head's rate, so that a recipe with one rate gives both.
        head = recipe.head_lr or recipe.lr
        return recipe.model_copy(update={"lr": self.backbone_rate * head, "head_lr": head})


class MethodHyper(StrictRecipeModel):
    """Base class of methods' hyper-parameters; a method without hyper-parameters uses it as it
    is.
    """


class Method:
    """Base class of learning methods, which itself is plain fine-tuning; subclasses override hooks.

    Attributes:
        scenarios: scenarios that it can learn in.
        scenario_warnings: scenario → reason why the method works badly there.
        neutral: hyper-parameters with which the method equals fine-tuning bit for bit; None:
            `no_neutral` says why not.
        regularisers: loss terms, or "penalty", that must be above 0 from the second task on.
        scenario_defaults: scenario → hyper-parameters whose default is another there. A stored
            recipe that lacks one keeps the default of `Hyper`, which has the earlier meaning.
        former_defaults: hyper-parameter → value that a stored recipe without it means, where
            `Hyper` has another default today.
        recipe_defaults: patch of a recipe that leaves fields open, where the general defaults do
            not suit.
        from_random: `optimizer` for SGD and `method` of a recipe that leaves them open under the
            preset `from-random`, which models that start from random weights have.
        inherited_state: types of state that it can continue when another method learned the parent.
        family: of networks, which `build_network` makes. A model keeps its family for life.
        immutable_hyperparameters: those that shape the network. A model keeps them for life as
            well.
        frozen_until_end_task: types of state that `end_task` alone changes. Snapshots leave them
            out: the parent has them.
        predicts_with: types of state that `predict_logits` reads.
        replays: whether each step also trains on remembered images.
        remembers: type of state with images of earlier tasks, from which a recipe's `rebalance`
            draws; None: `no_rebalance` says why it does not work.
        no_merge: why a recipe's `merge` does not work; "" where it does.
        no_feature_cache: why features are computed in each step even if the recipe says that they
            are cached; "" where the method can learn from cached ones.
        outputs_add: True where outputs are regressed onto one-hot labels, so that those of merged
            classes add up.
        needs_classes: why it cannot learn a problem whose labels are no classes; "" where its loss
            is the problem's own, and nothing else of it reads targets.
        no_shards: why a recipe cannot cut batches into slices; "" where each loss term is a mean
            over images, or weighs what it is a mean over by `ctx.part`.
        gathered: names of tensors [b, …] in `ctx.scratch`, a row for each image of a slice, which
            `after_step` reads for the whole batch.
        keeps_backbone_frozen: True where neither steps nor `end_task` move the backbone, so that
            its features are computed once for a whole job.
        inference: file in core/export/loading/networks that predicts with them; None: the network
            alone predicts.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    source: ClassVar[str]
    scenarios: ClassVar[tuple[str, ...]] = SCENARIOS
    scenario_warnings: ClassVar[Mapping[str, str]] = {}
    Hyper: ClassVar[type[StrictRecipeModel]] = MethodHyper
    accepts: ClassVar[AcceptedRecipes] = AcceptedRecipes()
    neutral: ClassVar[StrictRecipeModel | None] = None
    no_neutral: ClassVar[str] = ""
    footprint: ClassVar[TrainingMemoryMultiples] = TrainingMemoryMultiples()
    regularisers: ClassVar[tuple[str, ...]] = ()
    scenario_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    former_defaults: ClassVar[Mapping[str, Any]] = {}
    recipe_defaults: ClassVar[Mapping[str, Any]] = {}
    from_random: ClassVar[Mapping[str, Any]] = {"optimizer": {"clip": CLIP_FROM_RANDOM}}
    inherited_state: ClassVar[tuple[str, ...]] = ()
    family: ClassVar[str] = "plain"
    immutable_hyperparameters: ClassVar[tuple[str, ...]] = ()
    frozen_until_end_task: ClassVar[tuple[str, ...]] = ()
    predicts_with: ClassVar[tuple[str, ...]] = ()
    inference: ClassVar[str | None] = None
    remembers: ClassVar[str | None] = None
    replays: ClassVar[bool] = False
    no_rebalance: ClassVar[str] = (
        "it keeps no images, and from new ones alone a head learns nothing of earlier classes"
    )
    no_merge: ClassVar[str] = ""
    no_feature_cache: ClassVar[str] = ""
    # Refused unless a method says otherwise, since most read targets as rows of a head.
    needs_classes: ClassVar[str] = "its loss or its memory is of classes"
    # Refused unless a method says otherwise: a loss that cannot be cut would give other bits on
    # several devices.
    no_shards: ClassVar[str] = "its loss is not known to be a mean over the images of a batch"
    gathered: ClassVar[tuple[str, ...]] = ()
    keeps_backbone_frozen: bool = False
    outputs_add: ClassVar[bool] = False

    def __init__(self, hyper: Any, state: MethodState) -> None:
        self.hyper = hyper
        self.state = state

    def bound_score_rounding(self, network: Network, x: Tensor, task: int | None) -> Tensor:
        """Bound how far float32 rounding may move each image's scores, float32 [B]; 0: not
        visibly.
        """
        return x.new_zeros(len(x))

    def __setattr__(self, name: str, value: object) -> None:
        # Checked at assignment: a tensor outside the state works until the first resume, and then
        # is missing.
        if _contains_tensors(value):
            raise AttributeError(
                f"{type(self).__name__}.{name} would hold a tensor or module outside `state` and "
                "be lost with the process: put it in self.state or in ctx.scratch"
            )
        super().__setattr__(name, value)

    # Structure: pure in (architecture, recipe, task history).

    def build_network(self, network: Network) -> Network:
        """Build the network to train from the one that the parent's manifest describes.

        Pure.
        """
        return network

    def forward(self, network: Network, x: Tensor, task: int | None) -> Tensor:
        """Compute logits [B, classes] of inputs x [B, C, S, S] in training.

        `task` names the head in the task scenario.
        """
        return network(x, task)  # type: ignore[no-any-return]

    def predict_logits(self, network: Network, x: Tensor, task: int | None) -> Tensor:
        """Compute logits [B, classes] for evaluation and prediction."""
        return self.forward(network, x, task)

    def list_trainable_parameter_names(self, network: Network, depth: int) -> set[str]:
        """List the names of the parameters trained at a depth of 1 to 5: the set S."""
        return network.list_trainable_parameter_names(depth)

    def plan_training_stages(self, ctx: TaskTrainingContext) -> list[TrainingStage]:
        """Plan the training stages of a task, in order. Called before the method's state is
        loaded.
        """
        return [TrainingStage()]

    # A step.

    def compute_loss_terms(
        self, ctx: TaskTrainingContext, batch: TrainingBatch
    ) -> dict[str, Tensor]:
        """Compute the losses of a batch by name, each a scalar; training minimises their sum."""
        logits = self.forward(ctx.network, batch.x, batch.task)
        return {"task": ctx.loss(logits, batch.y)}

    def add_penalty_gradients(self, ctx: TaskTrainingContext) -> None:
        """Add closed-form gradients of penalties to `.grad` of the trainable parameters."""

    def compute_penalty(self, ctx: TaskTrainingContext) -> float:
        """Compute the penalty of `add_penalty_gradients` itself; for logs and tests only."""
        return 0.0

    def project_gradient(self, ctx: TaskTrainingContext) -> None:
        """Change the whole gradient in `.grad` before the optimizer's step, such as by a
        projection.
        """

    def after_step(self, ctx: TaskTrainingContext, batch: TrainingBatch) -> None:
        """Update the method's state after each optimizer step, such as a replay buffer."""

    # A task.

    def begin_task(self, ctx: TaskTrainingContext) -> None:
        """Prepare the method's state once per task, before its first step; skipped when a run
        resumes.
        """

    def begin_stage(self, ctx: TaskTrainingContext) -> None:
        """Prepare a training stage before its first step; skipped when a run resumes within it."""

    def end_task(self, ctx: TaskTrainingContext, batches: Iterable[TrainingBatch]) -> None:
        """Finish the task after its last step: update the method's state for later tasks.

        It may also change the network's weights, before they are measured and published. It runs
        after the best validated weights are loaded and weights are merged.

        Args:
            batches: the training part once, shuffled and unaugmented.
        """

    # What a recipe may ask for after training.

    def after_weight_merge(self, ctx: TaskTrainingContext) -> None:
        """Recompute state derived from the trained weights, after these were merged with the
        start's.
        """

    def compute_head_tuning_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Compute the scalar loss by which the head is rebalanced. logits: float32 [B, classes]. y:
        int64 [B].
        """
        return functional.cross_entropy(logits, y)

    # A patch: classes are merged or dropped, and nothing is learned.

    def renumber_and_drop_classes(self, classes: ClassMap) -> None:
        """Renumber the classes in the method's state, after a patch merged or dropped classes.

        Memories lose the images of dropped classes; importances of the head's rows are averaged.
        """
        for kind in ("buffer", "exemplars"):
            renumber_and_drop_replay_labels(self.state[kind], classes)
        for kind in ("curvature", "own"):
            average_stored_rows_of_merged_classes(self.state[kind], classes)

    def recompute_after_class_patch(self, ctx: TaskTrainingContext) -> None:
        """Recompute parts derived from state or weights, such as a classifier, after a patch."""

    # What the method knows of earlier tasks without their data.

    def compute_left_out_scores(self, ctx: TaskTrainingContext) -> tuple[Tensor, Tensor] | None:
        """Compute leave-one-out scores [n, classes of all heads] of training images, and their rows
        int64 [n].

        Each image is scored by the classifier without it; called after `end_task`. A version's
        temperature is fitted to these scores where too few images are held out. Minus infinity
        stands for a class that an image cannot have, such as those of other tasks' heads. None: the
        method has none.
        """
        return None

    def forecast_loss_rise(self, ctx: TaskTrainingContext) -> float | None:
        """Forecast how much the earlier tasks' mean loss has risen since this task began.

        In units of `compute_example_losses`; 0 at the start of a task. None: the method does not
        forecast.
        """
        return None

    def forecast_loss_rise_by_task(self, ctx: TaskTrainingContext) -> dict[int, float]:
        """Forecast the loss rise of each earlier task for which the method stores enough."""
        return {}

    def compute_example_losses(
        self, network: Network, x: Tensor, y: Tensor, task: int | None
    ) -> Tensor:
        """Compute the loss [B] that `forecast_loss_rise` forecasts, for inputs x [B, C, S, S] and
        head rows y int64 [B].

        Raises NotImplementedError in methods that do not forecast.
        """
        raise NotImplementedError(f"{self.name} does not forecast")

    def get_loss_forecast_limit(self) -> float | None:
        """Return the greatest forecast loss rise that a deployable state may have; None: no
        limit.
        """
        return None

    def erase_task_examples(self, tasks: set[int]) -> None:
        """Delete every stored example of these tasks from the method's state."""


def _contains_tensors(value: object) -> bool:
    if isinstance(value, Tensor | nn.Module):
        return True
    if isinstance(value, dict):
        return any(_contains_tensors(v) for v in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return any(_contains_tensors(v) for v in value)
    return False
