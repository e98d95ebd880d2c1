"""The only training loop: a method's hooks in their order, one backward and one step per batch.

All that determines a run is a pure function of (recipe, task, epoch) or part of a snapshot. So a
run that is interrupted at any step and resumed ends with the same bits, on the CPU and with the
same number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from core.contract.jobs.control_request import JobControlRequest
from core.contract.jobs.job_event import AliveEvent, JobEvent, MetricEvent, ProgressEvent
from core.contract.jobs.snapshot import RunningLossState, TrainingLoopState
from core.contract.jobs.snapshot import TrainingPosition as StoredPosition
from core.learning.data import features
from core.learning.data.augment import draw_epoch_random_numbers
from core.learning.data.dataset import Dataset, TrainingBatchSource
from core.learning.data.feed import TrainingBatchFeed
from core.learning.data.sampler import compute_share_of_new_images_in_batch
from core.learning.distributed.ranks import ALONE, SharedControlRequestSource, SingleProcessRanks
from core.learning.distributed.step import ShardedTrainingStep, require_shardable_network
from core.learning.evaluation.anytime import Accuracy
from core.learning.evaluation.evaluate import EvaluationImages
from core.learning.methods.method import Method
from core.learning.networks.norms import set_training_mode_of_trainable_modules
from core.learning.optimizers.build import NamedOptimizer
from core.learning.optimizers.olor import find_anchored_parameters
from core.learning.optimizers.rollback import resolve_olor_settings
from core.learning.state import group_tensors_by_state_type
from core.learning.training import rebalance
from core.learning.training.context import TaskTrainingContext, TrainingBatch
from core.learning.training.control import ControlRequestSource
from core.learning.training.merge import merge_trained_with_starting_weights
from core.learning.training.schedule import MultiStageSchedule
from core.learning.training.snapshot import RunPosition, RunSnapshot
from core.learning.training.validation import BestValidatedState, RunValidator

REPORTS_PER_EPOCH = 20
CONSOLIDATION_BATCH = 32
ALIVE_BATCHES = 100
VALIDATION_EPOCH = -1  # seeds the table that splits off the validation part
CONSOLIDATION_EPOCH = -2  # seeds the table that orders the training part at the end of the task

Emit = Callable[[JobEvent], None]


class NonFiniteTrainingError(ArithmeticError):
    """Raised when the loss or a weight is not finite; no state of the run can be used."""


class TrainingStopped(Exception):
    """Raised when the training run stopped on request, after a snapshot."""


@dataclass(frozen=True)
class TrainingCallbacks:
    """Callbacks of the job that the training loop calls: events, snapshots, tests.

    Attributes:
        emit: receives events.
        save: writes a snapshot.
        save_best: writes the best validated state, for use while the run continues.
        test: measures the present network on held-out parts.
    """

    emit: Emit
    save: Callable[[RunSnapshot], None]
    save_best: Callable[[BestValidatedState], None]
    test: Callable[[], Accuracy]


class TrainingLoop:
    """The training loop of one task: stages, epochs and steps, validation and snapshots.

    Call `run_training_stages` once; before it `resume_from_snapshot` to continue from a snapshot.

    Args:
        control: requests from the worker, granted between steps.
        callbacks: functions of the job.
        ranks: the processes that share the batches of a recipe with `shards`.
    """

    def __init__(
        self,
        ctx: TaskTrainingContext,
        method: Method,
        data: Dataset,
        control: ControlRequestSource,
        callbacks: TrainingCallbacks,
        ranks: SingleProcessRanks = ALONE,
    ) -> None:
        require_shardable_network(ctx)
        self.ctx = ctx
        self.method = method
        self.position = RunPosition()
        self._emit = callbacks.emit
        shared = SharedControlRequestSource(control) if ranks.count > 1 else None
        self._control: ControlRequestSource = control if shared is None else shared
        self._sharded = (
            ShardedTrainingStep(ctx.recipe.shards, ranks, shared) if ctx.recipe.shards > 1 else None
        )
        self._callbacks = callbacks
        classes = ctx.network.list_classes(ctx.task_argument_of_forward)
        ctx.examples = self._iterate_consolidation_batches
        ctx.in_order = self._iterate_batches_in_order
        self._source = TrainingBatchSource(
            data, classes, ctx.inputs, ctx.augment, ctx.task_argument_of_forward
        )
        self._rows, held_back = self._split_training_and_validation()
        ctx.num_images = self._rows.numel()
        # Before the feed, whose batches it shortens.
        ctx.share = compute_share_of_new_images_in_batch(
            ctx, method, self._source.labels[self._rows]
        )
        self.schedule = schedule = MultiStageSchedule.plan_schedule(ctx, method)
        ctx.num_steps = schedule.total_steps
        self._feed = self._build_image_feed()
        self.stage_steps = schedule.list_backbone_training_stages(ctx.recipe.depth)
        self.olor = resolve_olor_settings(ctx.recipe, self.stage_steps)
        part = EvaluationImages(
            data.images.index_select(0, held_back), self._source.labels[held_back], ctx.problem
        )
        steps = schedule.count_steps_before_stage(schedule.training)
        self.validation = RunValidator(ctx, method, part, steps, self._emit, callbacks.test)
        self._carried: dict[str, Tensor] = {}
        self._optimizer: NamedOptimizer | None = None
        self._pending_optimizer: dict[str, Tensor] | None = None
        # Summed on the device: reading the loss in every step would make a GPU wait.
        self._loss = torch.zeros((), device=ctx.device)
        self._losses = 0
        self._set_trainable_parameters_by_depth(ctx.recipe.depth)

    @property
    def epoch(self) -> int:
        """The current epoch, counted from 1 through all stages."""
        return sum(self.schedule.epochs[: self.position.stage]) + self.position.epoch + 1

    # Before and after.

    def resume_from_snapshot(self, snapshot: RunSnapshot) -> None:
        """Resume training from a snapshot. The network must have the shape that it had then.

        State of the method's `frozen_until_end_task` types must be loaded already. Raises KeyError,
        RuntimeError or ValueError for tensors that do not fit; the loop cannot be used then.
        """
        state = snapshot.state
        self.position = RunPosition(**state.position.get_explicitly_set_field_values())
        groups: dict[str, dict[str, Tensor]] = {
            "net": {},
            "optimizer": {},
            "state": {},
            "best": {},
            "rng": {},
        }
        for key, tensor in snapshot.tensors.items():
            group, _, name = key.partition("/")
            groups[group][self.ctx.network.translate_older_tensor_name(name)] = tensor
        # A network that grew during the task has other tensors than the one that this run has
        # built.
        self.ctx.network.prepare_to_load_state_dict(set(groups["net"]))
        self.ctx.network.load_state_dict(groups["net"], strict=True)
        # The optimizer exists only once its stage has selected the parameters.
        self._pending_optimizer = groups["optimizer"]
        parent_types = self.method.frozen_until_end_task
        self.method.state.replace_content(
            group_tensors_by_state_type(groups["state"]),
            state.state,
            self.ctx.device,
            keep=parent_types,
        )
        self.validation.restore_validation_state(state.validation, groups["best"])
        # Only now: building network and method may have drawn from it.
        torch.set_rng_state(groups["rng"]["cpu"])
        if (device := self.ctx.device).type != "cpu" and device.type in groups["rng"]:
            torch.get_device_module(device).set_rng_state(groups["rng"][device.type], device)
        self._loss.copy_(torch.tensor(state.loss.sum, dtype=torch.float32))
        self._losses = state.loss.steps

    def set_carried_optimizer_state(self, optimizer_state: Mapping[str, Tensor]) -> None:
        """Load the previous task's optimizer state, for recipes with `carry_state`."""
        self._carried = dict(optimizer_state)

    def collect_carried_optimizer_state(self) -> dict[str, Tensor]:
        """Collect the optimizer's state at the end, for `carry_state`; {} before the first step."""
        return dict(self._optimizer.iterate_optimizer_state()) if self._optimizer else {}

    def run_training_stages(self) -> None:
        """Run all training stages. Raises NonFiniteTrainingError, or TrainingStopped after a stop
        request.
        """
        position, validation, schedule = self.position, self.validation, self.schedule
        if position.step:
            validation.emit_best_state_event()  # announced again, since the run is resumed in a new process
        else:
            validation.validate_before_first_step()
        for stage in range(position.stage, len(schedule.stages)):
            # A resumed run keeps its epoch and batch in the stage that it was interrupted in.
            if stage != position.stage:
                position.stage, position.epoch, position.batch = stage, 0, 0
            begins = position.epoch == 0 and position.batch == 0
            if stage == schedule.training and begins:
                self._load_best_state_and_merge_weights()
            self._run_stage_epochs(stage, begins)
        # Without a rebalancing stage, before which it happens otherwise.
        if len(schedule.stages) == schedule.training:
            self._load_best_state_and_merge_weights()
        self._set_trainable_parameters_by_depth(self.ctx.recipe.depth)
        # Measuring and `end_task` read images again.
        self.ctx.cached = None

    def _run_stage_epochs(self, stage: int, begins: bool) -> None:
        """Run the epochs of a training stage from the present position on."""
        ctx, position, schedule = self.ctx, self.position, self.schedule
        current_stage = schedule.stages[stage]
        ctx.stage = current_stage.name
        self._set_trainable_parameters_by_depth(current_stage.depth or ctx.recipe.depth)
        if stage < schedule.training:
            if begins:
                self._set_module_modes(False)
                self.method.begin_stage(ctx)
            self._set_module_modes(True)
            self._feed = self._build_image_feed()
            if source := features.make_feature_source_if_cacheable(
                ctx, self.method, self._source, self._rows
            ):
                self._feed = replace(self._feed, source=source, augmented=False)
        else:
            # Built again after a resume: the backbone, which decides the features, no longer moves.
            pool = rebalance.build_rebalance_pool(ctx, self.method, self._source, self._rows)
            if pool is None:
                return
            rows = torch.arange(len(pool.labels))
            tuning = rebalance.RebalancingStageMethod(self.method)
            size = ctx.recipe.batch_size
            self._feed = TrainingBatchFeed(
                tuning, pool, rows, schedule.per_epoch, size, "stratified", augmented=False
            )
        self._optimizer = self._make_optimizer(stage)
        while position.epoch < schedule.epochs[stage]:
            self._run_epoch(stage)
            position.epoch += 1
            position.batch = 0

    def _load_best_state_and_merge_weights(self) -> None:
        """Load the best validated state after training, then merge weights as the recipe says."""
        validation, step = self.validation, self.position.step
        self._set_trainable_parameters_by_depth(self.ctx.recipe.depth)
        self._set_module_modes(False)
        if validation.best.tensors:
            validation.load_best_state()
            for name, value in (
                ("step", validation.best.step),
                ("epoch", validation.best.epoch + 1),
            ):
                self._emit(MetricEvent(name=f"deployed_{name}", step=step, value=value))
        merge_trained_with_starting_weights(
            self.ctx, self.method, validation.sum_validation_scores, validation.total
        )

    def end_task(self) -> None:
        """Run the method's `end_task` on the final weights.

        Raises NonFiniteTrainingError if they are not finite.
        """
        for name, tensor in self.ctx.network.state_dict().items():
            # Once per task, after the last step: between the reports a weight may have diverged
            # unnoticed.
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise NonFiniteTrainingError(
                    f"{name} is no longer finite after the last step: lower lr or set "
                    f"optimizer.clip"
                )
        self._set_module_modes(False)
        self.method.end_task(self.ctx, self._iterate_consolidation_batches())
        self.ctx.scratch.clear()

    def _iterate_consolidation_batches(self) -> Iterator[TrainingBatch]:
        """Yield the training images in shuffled batches, for the method's work at the end of the
        task.
        """
        table = draw_epoch_random_numbers(
            self.ctx.recipe.seed, self.ctx.task, CONSOLIDATION_EPOCH, len(self._source.labels)
        )
        rows = self._rows[table[self._rows, 0].argsort(stable=True)]
        for batch in self._source.iterate_batches_in_order(rows, CONSOLIDATION_BATCH):
            self.ctx.alive()  # curvature and exemplars take long and report nothing themselves
            yield batch

    def _iterate_batches_in_order(self) -> Iterator[TrainingBatch]:
        """Yield the training images in batches in the dataset's order."""
        for number, batch in enumerate(
            self._source.iterate_batches_in_order(self._rows, CONSOLIDATION_BATCH)
        ):
            if number % ALIVE_BATCHES == 0:
                self._emit(AliveEvent())  # a pass over many images takes long
            yield batch

    # One epoch.

    def _run_epoch(self, stage: int) -> None:
        ctx, position = self.ctx, self.position
        number = self.epoch - 1
        ctx.epoch, ctx.step = number, position.step
        epoch = self._feed.build_epoch(ctx, number)
        ctx.batches = len(epoch)
        validated = stage < self.schedule.training
        first_step = self.schedule.count_steps_before_stage(stage)
        # Reading the loss makes a GPU wait, so it is read only for a report.
        report_every = max(1, math.ceil(len(epoch) / REPORTS_PER_EPOCH))
        self._set_module_modes(True)
        while position.batch < len(epoch):
            batch = epoch.get_batch(position.batch)
            due = (position.batch + 1) % report_every == 0 or position.batch + 1 == len(epoch)
            self._run_training_step(batch, position.step - first_step, report=due)
            if due:
                self._check_loss_and_report_progress()
            if validated:
                self.validation.validate_after_step(position.step, number)
            # Between two steps, where the state is whole.
            if self._control.has_pending_request:
                self._handle_control_request()
        if validated:
            self.validation.validate_after_epoch(position.step, number)

    def _run_training_step(self, batch: TrainingBatch, step: int, *, report: bool) -> None:
        """Run one training step: the method's hooks, gradients and the optimizer.

        Args:
            step: number of the step in its stage.
            report: whether the forecast is reported.
        """
        ctx, method, position, optimizer = (
            self.ctx,
            self._feed.method,
            self.position,
            self._optimizer,
        )
        assert optimizer is not None
        ctx.batch = position.batch
        optimizer.set_learning_rates_for_step(step)
        for parameter in ctx.trainable.values():
            parameter.grad = None
        loss = self._compute_gradients(method, batch)
        # After the backward pass, since a penalty in closed form needs no graph.
        method.add_penalty_gradients(ctx)
        if report and not ctx.first and (predicted := method.forecast_loss_rise(ctx)) is not None:
            value = predicted if math.isfinite(predicted) else None
            self._emit(MetricEvent(name="predicted_loss_rise", step=position.step, value=value))
        # After the penalties: what is projected is the whole gradient of the step.
        method.project_gradient(ctx)
        optimizer.step()
        with torch.no_grad():
            method.after_step(ctx, batch)
            self._loss += loss
        ctx.scratch.clear()
        self._losses += 1
        position.batch += 1
        position.step += 1
        position.images += batch.index.numel()
        ctx.step = position.step

    def _compute_gradients(self, method: Method, batch: TrainingBatch) -> Tensor:
        """Compute the gradients of the batch's loss; return the loss, detached."""
        ctx = self.ctx
        if self._sharded is not None:
            return self._sharded.backward(ctx, method, batch)
        with ctx.use_mixed_precision():
            terms = method.compute_loss_terms(ctx, batch)
        loss = _sum_loss_terms(terms)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _check_loss_and_report_progress(self) -> None:
        loss = float(self._loss) / max(1, self._losses)
        # Checked where the loss is read anyway.
        if not math.isfinite(loss):
            raise NonFiniteTrainingError(
                f"the loss is {loss} at step {self.position.step}: lower lr (now "
                f"{self.ctx.recipe.optimizer.lr:g}) or the method's strength, or set optimizer.clip"
            )
        self._loss.zero_()
        self._losses = 0
        self._emit(
            ProgressEvent(
                phase="train",
                epoch=self.epoch,
                epochs=self.schedule.total_epochs,
                step=self.position.step,
                total_steps=self.schedule.total_steps,
                images=self.position.images,
                loss=loss,
            )
        )

    # Snapshots.

    def build_snapshot(self) -> RunSnapshot:
        """Build a snapshot of the run between two steps; its tensors are not copies."""
        tensors: dict[str, Tensor] = {"rng/cpu": torch.get_rng_state()}
        if (
            device := self.ctx.device
        ).type != "cpu":  # accelerators draw from a generator of their own
            tensors[f"rng/{device.type}"] = torch.get_device_module(device).get_rng_state(device)
        tensors |= {f"net/{name}": t for name, t in self.ctx.network.state_dict().items()}
        tensors |= {f"best/{name}": t for name, t in self.validation.best.tensors.items()}
        if self._optimizer is not None:
            tensors |= {
                f"optimizer/{key}": t for key, t in self._optimizer.iterate_optimizer_state()
            }
        frozen = self.method.frozen_until_end_task  # these are stored with the parent, and large
        for kind, named in self.method.state.collect_tensors_by_type(without=frozen).items():
            tensors |= {f"state/{kind}/{name}": t for name, t in named.items()}
        state = TrainingLoopState(
            position=StoredPosition(**vars(self.position)),
            state=self.method.state.collect_json_by_type(without=frozen),
            validation=self.validation.get_validation_state(),
            loss=RunningLossState(sum=float(self._loss), steps=self._losses),
        )
        return RunSnapshot(tensors, state)

    def _handle_control_request(self) -> None:
        request = self._control.take_control_request()
        if request is JobControlRequest.ANYTIME and self.validation.anytime:
            self._callbacks.save_best(self.validation.best)
        if request not in (JobControlRequest.SNAPSHOT, JobControlRequest.STOP):
            return
        if not math.isfinite(float(self._loss)):
            # raises for weights that are not finite, before a snapshot of them is stored
            self._check_loss_and_report_progress()
        self._callbacks.save(self.build_snapshot())
        if request is JobControlRequest.STOP:
            raise TrainingStopped

    # Set-up.

    def _split_training_and_validation(self) -> tuple[Tensor, Tensor]:
        """Split the task's rows into (training rows, validation rows), int64."""
        labels, recipe = self._source.labels, self.ctx.recipe
        if recipe.validation == 0:
            return torch.arange(len(labels)), torch.zeros(0, dtype=torch.int64)
        # From the seed alone, so that a resumed run holds back the same images.
        order = draw_epoch_random_numbers(
            recipe.seed, self.ctx.task, VALIDATION_EPOCH, len(labels)
        )[:, 0]
        return self.ctx.problem.split_training_and_validation_rows(labels, recipe.validation, order)

    def _build_image_feed(self) -> TrainingBatchFeed:
        """Build the feed of training batches, ordered and augmented as the recipe says."""
        ctx, steps = self.ctx, self.schedule.per_epoch
        size = math.ceil(ctx.share * ctx.recipe.batch_size)
        return TrainingBatchFeed(
            self.method,
            self._source,
            self._rows,
            steps,
            size,
            ctx.recipe.batch_order,
            ctx.augment.changes_images,
        )

    def _set_trainable_parameters_by_depth(self, depth: int) -> None:
        """Make only the parameters at the recipe's depth trainable, and list them in the
        context.
        """
        ctx = self.ctx
        names = self.method.list_trainable_parameter_names(ctx.network, depth)
        ctx.trainable = {}
        for name, parameter in ctx.network.named_parameters():
            # Autograd then skips frozen layers, which saves their activations.
            parameter.requires_grad_(name in names)
            parameter.grad = None
            if name in names:
                ctx.trainable[name] = parameter

    def _set_module_modes(self, training: bool) -> None:
        """Set modules to training mode; frozen modules to eval mode, and BatchNorm too after the
        first task, with slices or single images.
        """
        # BatchNorm cannot train on a single image.
        tiny = self._rows.numel() == 1 or self.ctx.recipe.batch_size == 1
        sliced = self.ctx.recipe.shards > 1  # the statistics of a slice are not those of its batch
        set_training_mode_of_trainable_modules(
            self.ctx.network, training, fixed_norm=not self.ctx.first or tiny or sliced
        )

    def _make_optimizer(self, stage: int) -> NamedOptimizer:
        schedule, optimizer_recipe = self.schedule, self.ctx.recipe.optimizer
        steps = schedule.per_epoch * schedule.epochs[stage]
        training = stage < schedule.training
        recipe = (
            schedule.stages[stage].get_optimizer_with_stage_rates(optimizer_recipe)
            if training
            else rebalance.choose_rebalancing_optimizer_recipe(self.ctx)
        )
        pulls = find_anchored_parameters(self.ctx, self.olor) if recipe.olor and self.olor else []
        optimizer = NamedOptimizer(recipe, self.ctx.trainable, steps, pulls, self.ctx.warn)
        if self._pending_optimizer is not None:
            optimizer.load_state(self._pending_optimizer)
            self._pending_optimizer = None
        # `collect_carried_optimizer_state` is the state of the last stage
        elif stage == len(schedule.stages) - 1 and self._carried:
            optimizer.load_state(self._carried)
        return optimizer


def _sum_loss_terms(terms: Mapping[str, Tensor]) -> Tensor:
    values = iter(terms.values())
    total = next(values)
    for value in values:
        total = total + value
    return total
