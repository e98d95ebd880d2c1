"""Deep linear continual fine-tuning (DLCFT): earlier tasks are stored as curvature instead of data.

The network is its first-order expansion (`networks/linearised.py`) and the loss a squared error, so
an earlier task's loss is a quadratic function of the weights: L_t = (1/t) E_t[l] + ((t-1)/t) · 1/2
Δᵀ H Δ. Δ is the displacement from the weights after task t - 1, H the mean curvature of the tasks
before (Shon et al. 2022, equations 11 to 14). With the whole of H this equals learning from all
data at once; stored is a diagonal or Kronecker factors per layer. In the class scenario a new class
changes the targets of old images, so there half of that term is replay.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import ConfigDict, Field
from torch import Tensor, nn

from core.learning.data.augment import derive_seed
from core.learning.data.dataset import DataError
from core.learning.memory.replay import make_inputs_of_replay_items
from core.learning.memory.reservoir import ReservoirBuffer, open_replay_reservoir
from core.learning.methods.dlcft_memory import (
    CurvatureMeasurementSettings,
    CurvatureMemory,
    append_zero_rows_to_match,
    measure_task_curvature,
)
from core.learning.methods.method import AcceptedRecipes, Method, TrainingMemoryMultiples
from core.learning.methods.registration import register_method
from core.learning.methods.squared_loss import compute_squared_errors, fit_ridge_head
from core.learning.networks import Network
from core.learning.networks.linear.linearised import LinearisedNetwork
from core.learning.networks.norms import BatchNorm, recompute_batch_norm_statistics
from core.learning.recipe import NotNegative, Positive, Share, StrictRecipeModel
from core.learning.training.context import TaskTrainingContext, TrainingBatch

EXACT_OUTPUTS = 10  # most outputs that are each probed by themselves
FEW_STEPS = 10  # optimizer steps of a task below which an update ends far from its minimum
PROBES, MOST_PROBES = 1000, 8  # sign vectors: about so many in total, and at most so many per image


class DlcftHyper(StrictRecipeModel):
    """Hyper-parameters of the method `dlcft`: loss, stored curvature, and forecast.

    `alpha`: the targets are alpha · onehot.
    `curvature`: form stored per layer; "diagonal" takes an eighth of the memory of the others.
    `lambda`: the penalty's share beside replay in the class scenario.
    `buffer`: images retained for replay, in the class scenario only.
    `weighting`: each task counts alike, or by its number of images ("samples").
    `probes`: random sign vectors per image in the curvature pass; null: all outputs one by one up
    to 10
        outputs, else 1 to 8, more for fewer images.
    `slope`: of the LeakyReLUs that replace ReLU.
    `head_mode` "linear": the displacement is read by rows that are fitted once and stay, so that
    the
        whole model is linear (not in the class scenario).
    `norms` "adapt": the base's batch norms take the first task's statistics before they are folded,
    as in
        the paper; the default in the scenarios data and task.
    `decay`: weight decay towards the base, counted once over all tasks; the optimizer's own is
    counted in
        every task.
    `gradient`: whether the remaining gradient of earlier tasks is stored: not, for forecasts, or
    also as a
        term of the objective.
    `max_factor_bytes`: larger factors of a layer are stored in a coarser form.
    `keep_task_curvature` "diagonal": each task's own is stored as well, for forecasts by task.
    `max_predicted_loss_rise`: only states with a smaller forecast are deployed (needs
    `validation`).
    """

    model_config = ConfigDict(populate_by_name=True)

    alpha: Positive = 15.0
    curvature: Literal["diagonal", "kfac", "tkfac"] = "diagonal"
    lambda_: Share = Field(default=0.5, alias="lambda")
    buffer: Annotated[int, Field(ge=1, le=1_000_000)] = 500
    weighting: Literal["task", "samples"] = "task"
    probes: Annotated[int, Field(ge=1, le=1000)] | None = None
    slope: Annotated[float, Field(ge=0, lt=1)] = 0.01
    head_mode: Literal["bilinear", "linear"] = "bilinear"
    norms: Literal["fold", "adapt"] = "fold"
    decay: NotNegative = 0.0
    gradient: Literal["none", "forecast", "objective"] = "forecast"
    max_factor_bytes: Annotated[int, Field(ge=1024)] | None = None
    keep_task_curvature: Literal["none", "diagonal"] = "none"
    max_predicted_loss_rise: NotNegative | None = None


@register_method
class DlcftMethod(Method):
    """The method `dlcft`: a quadratic penalty by stored curvature, on a linearised network."""

    name = "dlcft"
    footprint = TrainingMemoryMultiples(copies=75.0, batches=3.0, images=128)
    description = (
        "Deep linear continual fine-tuning: the network's linear expansion around its base, with "
        "the curvature of earlier tasks kept instead of their data, and a forecast of what an "
        "update costs them. Needs a pretrained base; with random weights the first task makes it."
    )
    source = "Shon et al. 2022, DLCFT, arXiv 2208.08112"
    Hyper = DlcftHyper
    accepts = AcceptedRecipes(
        olor=False,
        head_inits=("zero",),
        refused={"class": {"head_mode": "linear"}},
        unfit={"timm": {}},
    )
    no_neutral = "the network is linearised and its loss is a squared error, whatever the strength"
    regularisers = ("penalty",)
    scenario_defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "data": {"norms": "adapt"},
        "task": {"norms": "adapt"},
    }
    recipe_defaults: ClassVar[Mapping[str, Any]] = {
        "optimizer": {"name": "adam", "lr": 0.001, "head_lr": 0.01, "weight_decay": 1e-5}
    }
    no_rebalance = "its head is part of the objective by which it keeps earlier tasks"
    no_merge = "its penalty weighs old weights against new ones by what they mean to earlier tasks"
    no_feature_cache = (
        "its features are a sum with a derivative, which is computed together with the logits"
    )
    family = LinearisedNetwork.family
    frozen_until_end_task = ("curvature",)
    outputs_add = True
    immutable_hyperparameters = ("slope", "head_mode", "alpha", "curvature", "max_factor_bytes")
    hyper: DlcftHyper

    # Structure.

    def build_network(self, network: Network) -> Network:
        """Build the linearised network that the method trains.

        Raises DataError when the model was linearised with other hyper-parameters.
        """
        fixed_head = self.hyper.head_mode == "linear"
        if isinstance(network, LinearisedNetwork):
            if (network.slope, network.fixed_head) != (self.hyper.slope, fixed_head):
                raise DataError(
                    f"the model was linearised with slope {network.slope} and a "
                    f"{'linear' if network.fixed_head else 'bilinear'} head, fixed with its first "
                    "task: the recipe must ask for the same"
                )
            return network
        # Adapted norms are folded only after the first task's statistics are known (`begin_task`).
        frozen = network.pretrained and self.hyper.norms == "fold"
        return LinearisedNetwork(
            network, slope=self.hyper.slope, fixed_head=fixed_head, frozen=frozen
        )

    # A step.

    def compute_loss_terms(
        self, ctx: TaskTrainingContext, batch: TrainingBatch
    ) -> dict[str, Tensor]:
        """Compute weighted squared errors of the new batch and, in the class scenario, of replayed
        images.
        """
        share, alpha = self._compute_new_task_weight_in_objective(ctx), self.hyper.alpha
        if not self._replays_stored_images(ctx):
            logits = self.forward(ctx.network, batch.x, batch.task)
            return {"task": share * compute_squared_errors(logits, batch.y, alpha).mean()}
        items, table = self._open_reservoir(ctx).draw_items_and_augmentation_numbers(
            ctx.recipe.batch_size, ctx.augment.columns
        )
        logits = self.forward(
            ctx.network, torch.cat([batch.x, make_inputs_of_replay_items(ctx, items, table)]), None
        )
        new, old = logits.split([batch.y.shape[0], items.labels.shape[0]])  # type: ignore[no-untyped-call]
        weight = (1 - share) * (1 - self.hyper.lambda_)
        return {
            "task": share * compute_squared_errors(new, batch.y, alpha).mean(),
            "replay": weight * compute_squared_errors(old, items.labels, alpha).mean(),
        }

    def add_penalty_gradients(self, ctx: TaskTrainingContext) -> None:
        """Add the gradients of curvature penalty, stored linear term, and weight decay to
        `.grad`.
        """
        share, strength, decay = (
            self._compute_new_task_weight_in_objective(ctx),
            self._compute_penalty_weight(ctx),
            self.hyper.decay,
        )
        # Before the base is frozen there is no point of expansion, and in a first task nothing to
        # hold.
        if not _get_linearised_network(ctx).frozen or (share == 1 and decay == 0):
            return
        deltas = self._compute_displacements(ctx)
        pull: dict[str, Tensor] = {}
        if strength > 0:
            # The value comes with the gradient: a forecast in the same step then needs no second
            # product.
            pull, ctx.scratch["rise"] = self._get_curvature_memory(
                ctx
            ).curvature.compute_penalty_and_gradient(deltas)
        gradients = (
            self._get_curvature_memory(ctx).gradient
            if self.hyper.gradient == "objective" and share < 1
            else {}
        )
        for name, delta in deltas.items():
            parameter = ctx.trainable[name]
            # A parameter without a gradient is not stepped, so nothing could act on a pull.
            if parameter.grad is None:
                continue
            if name in pull:
                parameter.grad.add_(pull[name], alpha=strength)
            if name in gradients:
                parameter.grad.add_(
                    append_zero_rows_to_match(gradients[name], delta), alpha=1 - share
                )
            if decay > 0:
                # λ (1/t · 1/2 ‖θ‖² + (t-1)/t · 1/2 ‖Δ‖²): over all tasks that is one λ/2 ‖θ‖².
                parameter.grad.add_(parameter.detach(), alpha=decay * share)
                parameter.grad.add_(delta, alpha=decay * (1 - share))

    def compute_penalty(self, ctx: TaskTrainingContext) -> float:
        """Compute the curvature penalty alone, without linear term and weight decay."""
        strength = self._compute_penalty_weight(ctx)
        return (
            strength
            * float(
                self._get_curvature_memory(ctx).curvature.compute_penalty_and_gradient(
                    self._compute_displacements(ctx)
                )[1]
            )
            if strength
            else 0.0
        )

    # A task.

    def begin_task(self, ctx: TaskTrainingContext) -> None:
        """Freeze a pretrained base, fit fixed readout rows, and warn of settings without effect."""
        network = _get_linearised_network(ctx)
        if not network.frozen and network.pretrained:
            _set_norm_statistics_from_task_images(ctx)
            network.fold_norms_and_freeze_backbone()
        elif not network.frozen:
            ctx.warn(
                "the base has random weights: this first task trains the whole network as plain "
                "fine-tuning does, and what it learns becomes the base of all later ones; upload a "
                "pretrained base to learn by curvature from the first task on"
            )
        if network.fixed_head and network.frozen:
            self._fit_readout_rows(ctx)
        if self.hyper.max_predicted_loss_rise is not None and not ctx.recipe.validation:
            ctx.warn(
                "max_predicted_loss_rise chooses among validated states, of which validation 0 "
                "makes none"
            )
        if ctx.num_steps < FEW_STEPS:
            ctx.warn(
                f"the task has {ctx.num_steps} optimizer steps; with fewer than about {FEW_STEPS} "
                "an update ends far from its minimum, and many such updates lose accuracy: take "
                "more epochs or a smaller batch_size"
            )
        if ctx.is_loss_over_task_classes_only:
            ctx.warn(
                "train_ce masked has no effect: a squared error needs a target for every class, 0 "
                "for the others"
            )
        if ctx.scenario == "class":
            self._open_reservoir(ctx).rescale_offers_and_trim_reservoir()

    def end_task(self, ctx: TaskTrainingContext, batches: Iterable[TrainingBatch]) -> None:
        """Freeze a newly trained base, measure the task's curvature, and merge it with the stored
        one.
        """
        network, hyper = _get_linearised_network(ctx), self.hyper
        deltas = self._compute_displacements(ctx) if network.frozen else {}
        if not network.frozen:
            network.fold_norms_and_freeze_backbone()
            if network.fixed_head:
                rows = network.get_learned_head_rows(ctx.task_argument_of_forward).detach().clone()
                # From now on the learned rows read the displacement: a fixed head must not move
                # with later tasks.
                network.set_reference_rows(
                    network.get_reference_rows_name(ctx.task_argument_of_forward), rows
                )
        measurement = CurvatureMeasurementSettings(
            hyper.curvature,
            hyper.alpha,
            self._choose_sign_vector_count(ctx),
            hyper.max_factor_bytes,
            diagonal=hyper.keep_task_curvature == "diagonal",
        )
        with ctx.use_exact_evaluation_mode():
            fresh = measure_task_curvature(
                network,
                ((batch.x, batch.y) for batch in batches),
                ctx.task_argument_of_forward,
                measurement,
                generator=torch.Generator().manual_seed(derive_seed(ctx.recipe.seed, ctx.task, 2)),
                deltas=deltas,
            )
        for name, value in fresh.health.items():
            ctx.log_metric(name, value, {})
        self._get_curvature_memory(ctx).merge_task_curvature(
            fresh,
            deltas,
            share=self._compute_new_task_weight_in_objective(ctx),
            task=ctx.task,
            images=ctx.num_images,
            keep_gradient=hyper.gradient != "none",
        )
        # The cached view has the curvature of before.
        ctx.cache.clear()
        if ctx.scenario == "class":
            reservoir = self._open_reservoir(ctx)
            for batch in ctx.examples():
                reservoir.offer_items_to_reservoir(batch.raw, batch.y, ctx.task)

    def erase_task_examples(self, tasks: set[int]) -> None:
        """Delete stored examples of these tasks; the curvature stays."""
        if self.state["buffer"]:
            ReservoirBuffer(self.state["buffer"], self.hyper.buffer, 0).remove_items_of_tasks(tasks)

    # Forecasts.

    def forecast_loss_rise(self, ctx: TaskTrainingContext) -> float | None:
        """Forecast the loss rise of earlier tasks: c/2 Δᵀ H Δ + qᵀ Δ, with coupling c and stored
        gradient q.

        None in the first task.
        """
        if not self._curvature_covered_task_count:
            return None
        memory, deltas = self._get_curvature_memory(ctx), self._compute_displacements(ctx)
        rise = ctx.scratch.get("rise")  # computed in this step at the same weights
        if rise is None:
            rise = memory.curvature.compute_penalty_and_gradient(deltas)[1]
        rise = memory.coupling * rise
        for name, slope in memory.gradient.items():
            if name in deltas:
                rise = rise + (append_zero_rows_to_match(slope, deltas[name]) * deltas[name]).sum()
        return float(rise)

    def forecast_loss_rise_by_task(self, ctx: TaskTrainingContext) -> dict[int, float]:
        """Forecast each earlier task's loss rise from its stored diagonal curvature D_i and
        gradient q_i.
        """
        rises: dict[int, float] = {}
        deltas, memory = (
            self._compute_displacements(ctx) if self._curvature_covered_task_count else {},
            self._get_curvature_memory(ctx),
        )
        for task, (diagonal, slope) in memory.read_curvatures_and_gradients_by_task().items():
            terms = [
                (
                    memory.diagonal_coupling
                    / 2
                    * append_zero_rows_to_match(diagonal[n], d)
                    * d.square()
                    + append_zero_rows_to_match(slope[n], d) * d
                ).sum()
                for n, d in deltas.items()
                if n in diagonal
            ]
            rises[task] = float(torch.stack(terms).sum()) if terms else 0.0
        return rises

    def compute_example_losses(
        self, network: Network, x: Tensor, y: Tensor, task: int | None
    ) -> Tensor:
        """Compute the squared error of each example, [B]."""
        return compute_squared_errors(self.forward(network, x, task), y, self.hyper.alpha)

    def get_loss_forecast_limit(self) -> float | None:
        """Return the recipe's limit of the forecast loss rise, `max_predicted_loss_rise`."""
        return self.hyper.max_predicted_loss_rise

    # Weights of the objective's terms.

    @property
    def _curvature_covered_task_count(self) -> int:
        """Number of tasks that the stored curvature covers."""
        return CurvatureMemory(self.state["curvature"]).covered_task_count

    def _compute_new_task_weight_in_objective(self, ctx: TaskTrainingContext) -> float:
        """Compute the new task's weight in the objective: 1/t, or its share of all images."""
        memory = CurvatureMemory(self.state["curvature"])
        if self.hyper.weighting == "task":
            return 1 / (memory.covered_task_count + 1)
        return ctx.num_images / (memory.covered_image_count + ctx.num_images)

    def _compute_penalty_weight(self, ctx: TaskTrainingContext) -> float:
        """Compute the curvature penalty's weight in the objective."""
        share = 1 - self._compute_new_task_weight_in_objective(ctx)
        return share * self.hyper.lambda_ if self._replays_stored_images(ctx) else share

    def _replays_stored_images(self, ctx: TaskTrainingContext) -> bool:
        """Return True if training replays stored images.

        Without stored images (none yet, or deleted) the penalty alone represents the earlier tasks.
        """
        return (
            ctx.scenario == "class"
            and self._curvature_covered_task_count > 0
            and self._open_reservoir(ctx).item_count > 0
        )

    # Helpers.

    def _get_curvature_memory(self, ctx: TaskTrainingContext) -> CurvatureMemory:
        """Return the stored curvature of earlier tasks, cached after it was unpacked once."""
        if "memory" not in ctx.cache:
            ctx.cache["memory"] = CurvatureMemory(self.state["curvature"])
        memory: CurvatureMemory = ctx.cache["memory"]
        return memory

    def _compute_displacements(self, ctx: TaskTrainingContext) -> dict[str, Tensor]:
        """Compute the change Δ of trainable parameters on which earlier tasks depend, since the
        task began.

        New head rows start at zero.

        In the task scenario heads are left out: earlier tasks do not depend on this task's head.
        """
        return ctx.compute_weight_displacement(
            n for n in ctx.trainable if ctx.scenario != "task" or not n.startswith("heads.")
        )

    def _open_reservoir(self, ctx: TaskTrainingContext) -> ReservoirBuffer:
        return open_replay_reservoir(ctx, self.state["buffer"], self.hyper.buffer)

    def _choose_sign_vector_count(self, ctx: TaskTrainingContext) -> int | None:
        """Choose the number of random sign vectors per image for the curvature; None for exact
        outputs.
        """
        outputs = len(ctx.network.list_classes(ctx.task_argument_of_forward))
        requested = self.hyper.probes
        if requested is None and outputs <= EXACT_OUTPUTS:
            return None
        num_vectors = requested or min(
            MOST_PROBES, max(1, math.ceil(PROBES / max(1, ctx.num_images)))
        )
        # Basis vectors are exact, and then cost no more than signs do.
        return None if num_vectors >= outputs else num_vectors

    def _fit_readout_rows(self, ctx: TaskTrainingContext) -> None:
        """Fit the fixed readout rows of a new head by least squares, before any displacement.

        The head itself starts there.
        """
        network = _get_linearised_network(ctx)
        name = network.get_reference_rows_name(ctx.task_argument_of_forward)
        # A head learned earlier keeps its rows: predictions of its task depend on them.
        if name in network.reference_head_rows:
            return
        head = (
            network.head
            if ctx.task_argument_of_forward is None
            else network.heads[str(ctx.task_argument_of_forward)]
        )
        assert isinstance(head, nn.Module)

        def iterate_features_with_labels() -> Iterator[tuple[Tensor, Tensor]]:
            for batch in ctx.examples():
                yield network.compute_value_and_derivative(batch.x)[0], batch.y

        with torch.no_grad(), ctx.use_exact_evaluation_mode():
            rows, biases = fit_ridge_head(
                iterate_features_with_labels(),
                len(network.list_classes(ctx.task_argument_of_forward)),
                self.hyper.alpha,
            )
            head.weight.copy_(rows)  # type: ignore[operator]
            head.bias.copy_(biases)  # type: ignore[operator]
        network.set_reference_rows(name, head.weight.detach().clone())  # type: ignore[operator]


def _get_linearised_network(ctx: TaskTrainingContext) -> LinearisedNetwork:
    assert isinstance(ctx.network, LinearisedNetwork)
    return ctx.network


def _set_norm_statistics_from_task_images(ctx: TaskTrainingContext) -> None:
    """Set the network's BatchNorm layers to their mean statistics of one pass over the task."""
    norms = [module for module in ctx.network.modules() if isinstance(module, BatchNorm)]
    if not norms:
        return
    # Without training anything: the norms are folded next, and have to fit these images first.
    recompute_batch_norm_statistics(ctx.network, norms, (batch.x for batch in ctx.examples()))
