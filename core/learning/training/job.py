"""Entry point of the job process: one task, from a spec file to a result folder, with events on a
pipe.

The spec names local files only; the result is parts (safetensors) and `result.json`. The process
has no database and no store, and its training does not depend on a clock. It reports events as JSON
lines and writes snapshots when its control pipe asks. Phases: measure (base and parent on the new
task) → inspect (the new images by the parent) → train → consolidate → evaluate (the new version on
every task that it can answer).
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from core.contract.figures import UpdateNorm, VersionFigures
from core.contract.jobs.job_event import (
    AliveEvent,
    BestStateFolderReadyEvent,
    DataReportEvent,
    DoneEvent,
    LogEvent,
    MetricEvent,
    PhaseEvent,
    SnapshotEvent,
    StoppedEvent,
)
from core.contract.jobs.job_result import BestStateSoFarResult, LearnedNetworkRecord, LearnJobResult
from core.contract.jobs.job_spec import LearnJobSpec
from core.contract.jobs.snapshot import SnapshotDocument
from core.contract.manifest import TOTALS, ValidationScore
from core.contract.recipe import Recipe as StoredRecipe
from core.learning.data import image_packs
from core.learning.data.augment import Augmentation, derive_seed
from core.learning.data.dataset import DataError, Dataset
from core.learning.data.held_out_features import HeldOutFeatures
from core.learning.data.known_features import FeatureCachingInputNormaliser
from core.learning.distributed.ranks import ALONE, SingleProcessRanks
from core.learning.evaluation import stored_predictions
from core.learning.evaluation.ancestors import (
    StartingVersions,
    load_method_state_of_parent,
    require_method_fits_network,
)
from core.learning.evaluation.comparison import compute_weight_update_norm
from core.learning.evaluation.evaluator import Evaluator, forecast_loss_rise_of_earlier_tasks
from core.learning.methods import registry
from core.learning.methods.method import Method
from core.learning.networks import Network
from core.learning.numerics import NumericsSettings
from core.learning.optimizers import rollback
from core.learning.precision import InputNormaliser, move_network_to_device, open_device_with_limit
from core.learning.recipe import Recipe, StartingPoint
from core.learning.reports.data_report import TaskImageInspector, log_data_findings_or_hold_batch
from core.learning.state import TYPES, MethodState, load_tensors
from core.learning.training import log_lines, output_folders
from core.learning.training.context import TaskTrainingContext
from core.learning.training.control import (
    ControlRequestSource,
    EmptyControlRequestSource,
    PipeControlRequestSource,
)
from core.learning.training.failures import classify_job_error
from core.learning.training.job_process import (
    Emit,
    ThrottledAliveEventEmitter,
    run_job_and_write_events,
)
from core.learning.training.loop import TrainingCallbacks, TrainingLoop, TrainingStopped
from core.learning.training.snapshot import UNFIT, RunSnapshot, require_snapshot_of_same_run
from core.learning.training.validation import BestValidatedState

EvaluationHook = Callable[[Network, Method, InputNormaliser], None]
"""Called with the learned network, on its device, before it is stored."""

OPTIMIZER_PART = "optimizer"


def learn_task(
    spec: LearnJobSpec,
    emit: Emit,
    control: ControlRequestSource | None = None,
    hook: EvaluationHook | None = None,
    ranks: SingleProcessRanks = ALONE,
) -> None:
    """Learn the task of a job spec, emitting events. Ends with a `done` or `stopped` event, or
    raises.

    Args:
        hook: measures more than the job does, for benchmarks; it must leave the network unchanged.
        ranks: the processes that share each batch; all but the first are silent, write nothing, and
            end with the training.

    Raises:
        DataError: a dataset does not fit.
        NonFiniteTrainingError: the loss diverged.
        ValueError: the spec contradicts itself.
    """
    job = LearningJob(spec, emit, control or EmptyControlRequestSource(), hook, ranks)
    with job.numerics.use_numerics_flags():
        job.run_job_phases()


@dataclass
class _TrainingRun:
    """Network, method, context and training loop of a running job."""

    network: Network
    method: Method
    ctx: TaskTrainingContext
    loop: TrainingLoop


class LearningJob:
    """A learning job in its process: trains one task and writes the result.

    `inputs`: prepared with features of all images, for repeated benchmarks.
    """

    def __init__(
        self,
        spec: LearnJobSpec,
        emit: Emit,
        control: ControlRequestSource,
        hook: EvaluationHook | None = None,
        ranks: SingleProcessRanks = ALONE,
        inputs: FeatureCachingInputNormaliser | None = None,
    ) -> None:
        # Sums over another number of threads have other bits, so it is part of the spec.
        torch.set_num_threads(spec.threads)
        self._spec = spec
        self._emit = emit
        self._control = control
        self._hook = hook
        self._ranks = ranks
        self._recipe = Recipe.model_validate(spec.recipe.to_json())
        self._device = open_device_with_limit(spec.device, spec.gpu_memory_share)
        self._devices = [self._device.type]
        self.numerics = NumericsSettings(self._recipe, self._device)
        # A model keeps the statistics of its first version: its weights expect inputs scaled by
        # them.
        normalise = spec.normalise or spec.parent.manifest.normalise
        self._inputs = inputs or FeatureCachingInputNormaliser(
            normalise, spec.image.channels, self._device
        )
        self._ancestors = StartingVersions(spec, self._device)
        self._features = HeldOutFeatures()
        self._evaluator = Evaluator(spec, self._ancestors, self._inputs, emit, self._features)
        self._warnings: list[str] = []
        self._numbers, self._best_numbers = itertools.count(1), itertools.count(1)
        self._start: dict[str, Tensor] = {}
        # Opened now, since a cache may delete the files before the task ends.
        parts = spec.parent.parts
        self._packs = {kind: image_packs.load_replay_image_packs(kind, parts) for kind in TYPES}
        self._number = spec.task.number
        self._classes = list(spec.task.classes)
        self._first = spec.parent.version == 0

    def run_job_phases(self) -> None:
        """Run all phases of the job, resuming from the spec's snapshot if it fits."""
        # Before everything else, so that a damaged file fails the job before minutes of measuring.
        data = self._ancestors.read_dataset(self._spec.task.train, self._classes)
        if len(data) == 0:
            raise DataError("the task has no training images")
        run = self._try_resume_run(data) or self._prepare_new_run_and_measure_ancestors(data)
        self._emit_phase("train")
        for text in self.numerics.iterate_numerics_warnings():
            self._report_warning(text)
        self._report_log(log_lines.format_training_plan_line(run.ctx, run.loop))
        for text in self.numerics.iterate_numerics_log_lines():
            self._report_log(text)
        if self._recipe.shards > 1:
            self._report_log(
                log_lines.format_batch_slices_line(self._recipe.shards, self._ranks.count)
            )
        try:
            run.loop.run_training_stages()
        except TrainingStopped:
            self._emit(StoppedEvent())
            return
        if not self._ranks.is_writing_rank:
            return
        # Before `end_task`, which may change weights and drop the parameters that only training
        # needs.
        moved = UpdateNorm.from_json(
            compute_weight_update_norm(run.network, self._start, set(run.ctx.trainable))
        )
        # Also before `end_task`, which merges this task into the state that the forecast reads.
        predicted, by_task = forecast_loss_rise_of_earlier_tasks(run.method, run.ctx)
        self._emit_phase("consolidate")
        self._report_log(log_lines.format_method_end_task_line(run.loop))
        run.loop.end_task()
        self._emit_phase("evaluate")
        self._report_log(log_lines.EVALUATING)
        figures = self._evaluator.measure_new_version(run.network, run.method, run.ctx)
        self._report_log(
            log_lines.format_accuracy_by_task_line(self._evaluator.rows, self._number, data.problem)
        )
        fields = {
            **figures.get_explicitly_set_field_values(),
            "update_norm": moved,
            "adp": run.loop.validation.build_anytime_performance(),
        }
        if predicted is not None:
            fields["forecast"] = self._evaluator.compare_forecast_with_measured_loss_rise(
                run.network, run.method, predicted, by_task
            )
        pulled = rollback.sum_olor_rollback_over_steps(run.ctx, run.loop.olor, run.loop.stage_steps)
        if pulled is not None:
            fields["rollback"] = pulled
        if self._hook is not None:
            self._hook(run.network, run.method, self._inputs)
        if self.numerics.operations:
            self._report_log(log_lines.format_nondeterminism_line(self.numerics.operations))
        self._emit(DoneEvent(path=self._write_job_result(run, VersionFigures(**fields))))

    def _prepare_new_run_and_measure_ancestors(self, data: Dataset) -> _TrainingRun:
        """Prepare a new training run before its first step, and measure base and parent."""
        # For whatever draws from the global generator, such as dropout.
        torch.manual_seed(derive_seed(self._recipe.seed, self._number, 0))
        network, method = self._ancestors.load_version_network("parent"), self._build_method()
        require_method_fits_network(network, method, self._spec)
        self._emit_phase("measure")
        self._cache_frozen_backbone_features(network, method, data)
        if self._spec.task.held_out and self._spec.with_ancestors:
            self._report_log(log_lines.format_parent_measurement_line(self._spec.parent.version))
        if self._ranks.is_writing_rank:
            # On rank 0 alone: the other ranks store nothing, and wait in the first step.
            if self._spec.with_ancestors:
                self._evaluator.measure_base_and_parent_on_new_task(network)
            if self._spec.task.known is None and self._spec.inspects_task:
                self._build_data_report_or_hold_batch(network, data)
        run = self._build_training_run(network, method, data)
        self._inherit_state_and_erase_deleted_tasks(method)
        # After the state is inherited: a method may fit it to the network that has grown.
        method.begin_task(run.ctx)
        if run.loop.olor is not None:
            rollback.report_olor_rollback(run.ctx, run.loop.olor, run.loop.stage_steps)
        outputs = run.network.list_classes(run.ctx.task_argument_of_forward)
        if warning := run.ctx.problem.build_output_count_warning(len(outputs)):
            self._report_warning(warning)
        return run

    def _cache_frozen_backbone_features(
        self, parent: Network, method: Method, data: Dataset
    ) -> None:
        """Compute the features of all images once, if the backbone stays frozen; stored ones are
        reused.
        """
        if method.keeps_backbone_frozen:
            base = None if self._ancestors.same else self._ancestors.load_version_network("base")
            parts = self._evaluator.read_held_out_parts()
            self._features.load_stored_features(self._spec, parent, parts)
            features_path, stored_features = self._spec.task.known, self._features.kept
            images = [part.images for task, part in parts.items() if task not in stored_features]
            if features_path is None:
                images.insert(0, data.images)
            self._inputs.cache_features_of_job_images(
                parent, base, images, lambda: self._emit(AliveEvent())
            )
            if features_path is not None:
                self._inputs.add_features(data.images, load_tensors(features_path)["features"])

    def _build_data_report_or_hold_batch(self, network: Network, data: Dataset) -> None:
        """Build the data report on the task's images, using the parent version, before training.

        Raises:
            BatchHeldSignal: the recipe holds the batch because of the findings.
        """
        if self._recipe.data_report == "off" or not data.problem.has_classes:
            return
        self._emit_phase("inspect")
        self._report_log(log_lines.INSPECTING)
        move_network_to_device(network, self._device)
        inspector = TaskImageInspector(
            network,
            self._inputs,
            self._spec,
            self._ancestors,
            lambda: self._emit(AliveEvent()),
            self._features.kept,
        )
        report = inspector.build_data_report(data)
        # `_build_training_run` copies and grows it on the CPU.
        network.to("cpu", memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        self._emit(DataReportEvent(report=report))
        log_data_findings_or_hold_batch(
            report, self._recipe.data_report, self._report_log, self._report_warning
        )

    def _try_resume_run(self, data: Dataset) -> _TrainingRun | None:
        """Resume the run from the spec's snapshot; return None without one, or if it does not fit
        this code.
        """
        if self._spec.snapshot is None:
            return None
        try:
            tensors, document = output_folders.read_training_snapshot(self._spec.snapshot)
            predictions = stored_predictions.pop_predictions_from_snapshot(tensors, data.problem)
            require_snapshot_of_same_run(
                document, self._number, self._recipe, type(self._build_method().hyper)
            )
            torch.manual_seed(derive_seed(self._recipe.seed, self._number, 0))
            network, method = self._ancestors.load_version_network("parent"), self._build_method()
            require_method_fits_network(network, method, self._spec)
            self._cache_frozen_backbone_features(network, method, data)
            run = self._build_training_run(network, method, data)
            if method.frozen_until_end_task:
                self._inherit_state_and_erase_deleted_tasks(method)
            run.loop.resume_from_snapshot(RunSnapshot(tensors, document))
        except UNFIT as error:
            if isinstance(error, DataError) or classify_job_error(error) != "code":
                raise
            # The run that begins instead gives its own warnings.
            self._warnings.clear()
            self._report_log(log_lines.format_unfit_snapshot_line(error), "warning")
            return None
        self._erase_deleted_tasks(method)  # tasks whose data was deleted after the snapshot
        self._evaluator.rows, self._evaluator.answers = list(document.results), predictions
        self._warnings = list(document.warnings)
        self._record_device_change(document.devices)
        # Numbers go on, so that a new snapshot never takes the place of the one that was resumed.
        self._numbers = itertools.count(document.number + 1)
        return run

    def _record_device_change(self, before: list[str]) -> None:
        """Record on which device kinds the run has been trained, and warn if the present one
        differs.
        """
        if not before:
            return
        self._devices = list(before)
        if before[-1] != self._device.type:
            self._devices.append(self._device.type)
            self._report_warning(
                log_lines.format_device_change_warning(before[-1], self._device.type)
            )

    def _build_training_run(self, network: Network, method: Method, data: Dataset) -> _TrainingRun:
        """Build the run: the network to train on its device, and the loop that trains it."""
        if self._spec.scenario == "data" and self._first:
            # Version 0 predicts by zero rows; training starts from rows of the recipe's init.
            network = self._ancestors.load_version_network("parent", without_classes=True)
        self._start = network.copy_parameters_to_cpu()
        network = method.build_network(network)
        # Parameters that the method added start here; it may have edited the others already.
        self._start |= network.copy_parameters_to_cpu(without=self._start)
        # A generator of its own: new head rows do not depend on what else was drawn.
        generator = torch.Generator().manual_seed(derive_seed(self._recipe.seed, self._number, 3))
        network.add_task_classes(
            self._number,
            self._ancestors.list_outputs_for_labels(self._classes),
            self._recipe.head.init,
            generator,
        )
        move_network_to_device(network, self._device)
        ctx = self._build_context(network)
        callbacks = TrainingCallbacks(
            self._emit,
            save=lambda snapshot: self._write_snapshot(snapshot, loop.epoch),
            save_best=lambda best: self._write_best_state(network, method, best),
            test=lambda: self._evaluator.measure_network_during_training(network, method),
        )
        loop = TrainingLoop(ctx, method, data, self._control, callbacks, self._ranks)
        if self._recipe.optimizer.carry_state:
            loop.set_carried_optimizer_state(
                self._ancestors.load_part_tensors("parent", OPTIMIZER_PART)
            )
        return _TrainingRun(network, method, ctx, loop)

    def _build_method(self) -> Method:
        method_type = registry.get_method(self._recipe.method["name"])
        return method_type(
            method_type.Hyper.model_validate(self._recipe.get_hyper_parameters()), MethodState()
        )

    def _build_context(self, network: Network) -> TaskTrainingContext:
        problem = self._ancestors.problem
        known_outputs = network.list_classes(self._number if network.scenario == "task" else None)
        row = {name: i for i, name in enumerate(known_outputs)}
        # Sorted, since methods look up the row of a label by binary search.
        class_rows = sorted(row[name] for name in problem.list_outputs_for_labels(self._classes))
        return TaskTrainingContext(
            network=network,
            scenario=network.scenario,
            task=self._number,
            classes=self._classes,
            class_rows=torch.tensor(class_rows, device=self._device),
            recipe=self._recipe,
            device=self._device,
            inputs=self._inputs,
            augment=Augmentation(self._recipe.augment, self._spec.image.size),
            first=self._first,
            warn=self._report_warning,
            weights_at=self._get_starting_parameters,
            problem=problem,
            log_metric=lambda name, value, data: self._emit(
                MetricEvent(name=name, step=None, value=value, data=dict(data))
            ),
            log=self._report_log,
            alive=ThrottledAliveEventEmitter(self._emit),
            folder=self._ranks.make_scratch_folder_of_rank(self._spec.out),
            has_keys=self._spec.task.known is not None,
        )

    def _get_starting_parameters(self, point: StartingPoint) -> Mapping[str, Tensor]:
        """Load the parameters at the start of the task, or those of version 0's backbone."""
        if point == "update_start":
            return self._start
        return self._ancestors.read_backbone_parameters("base")

    def _inherit_state_and_erase_deleted_tasks(self, method: Method) -> None:
        load_method_state_of_parent(method, self._spec.parent, self._device, self._report_warning)
        self._erase_deleted_tasks(method)

    def _erase_deleted_tasks(self, method: Method) -> None:
        """Delete examples of tasks whose data was deleted from the method's replay buffer."""
        if self._spec.erased_tasks:
            method.erase_task_examples(set(self._spec.erased_tasks))

    def _write_snapshot(self, snapshot: RunSnapshot, epoch: int) -> None:
        if not self._ranks.is_writing_rank:
            return
        document = SnapshotDocument(
            **snapshot.state.get_explicitly_set_field_values(),
            task=self._number,
            number=next(self._numbers),
            recipe=StoredRecipe.from_json(self._recipe.model_dump(by_alias=True)),
            results=self._evaluator.rows,
            warnings=self._warnings,
            devices=self._devices,
        )
        # Only reported: nothing that is learned depends on a clock.
        begun_at = time.monotonic()
        tensors = {
            **snapshot.tensors,
            **stored_predictions.convert_predictions_to_snapshot_tensors(self._evaluator.answers),
        }
        position = document.position
        path = output_folders.write_training_snapshot(self._spec.out, tensors, document)
        cost_s = round(time.monotonic() - begun_at, 3)
        self._emit(
            SnapshotEvent(
                path=path, stage=position.stage, epoch=epoch, step=position.step, cost_s=cost_s
            )
        )

    def _write_job_result(self, run: _TrainingRun, figures: VersionFigures) -> Path:
        network, state, loop = run.network, run.method.state, run.loop
        parts = output_folders.copy_network_as_version_parts(network)
        parts += image_packs.build_method_state_parts(state, self._number, self._packs)
        # Stored on request alone: it is as large as the weights, with Adam twice.
        if self._recipe.optimizer.carry_state and (
            carried := loop.collect_carried_optimizer_state()
        ):
            parts.append((OPTIMIZER_PART, OPTIMIZER_PART, carried))
        document = LearnJobResult(
            **self._describe_network(
                network, run.method, loop.position.step
            ).get_explicitly_set_field_values(),
            **figures.get_explicitly_set_field_values(),
            **self._evaluator.build_matrix_and_temperature_fields(),
            trainable=sum(p.numel() for p in run.ctx.trainable.values()),
            parameters=sum(p.numel() for p in network.parameters()),
            images=loop.position.images,
            warnings=self._warnings,
            **self._evaluator.score_trial(network, run.method, run.ctx),
        )
        return output_folders.replace_network_result_folder(
            self._spec.out,
            "result",
            parts,
            document,
            lambda folder: output_folders.write_predictions_features_and_totals(
                folder, self._evaluator.answers, self._features, state[TOTALS].to_tensors()
            ),
        )

    def _write_best_state(self, network: Network, method: Method, best: BestValidatedState) -> None:
        """Write the best validated state so far as parts of a version, while training continues."""
        if not self._ranks.is_writing_rank:
            return
        parts = output_folders.copy_network_as_version_parts(network, best.tensors)
        document = BestStateSoFarResult(
            **self._describe_network(network, method, best.step).get_explicitly_set_field_values(),
            validation=ValidationScore(correct=best.correct, total=best.total),
        )
        name = f"anytime-{next(self._best_numbers)}"
        self._emit(
            BestStateFolderReadyEvent(
                path=output_folders.replace_network_result_folder(
                    self._spec.out, name, parts, document
                )
            )
        )

    def _describe_network(
        self, network: Network, method: Method, steps: int
    ) -> LearnedNetworkRecord:
        environment = output_folders.describe_environment(
            self._device, self.numerics, self._devices
        )
        hyper, normalise = self._recipe.get_hyper_parameters(), self._inputs.normalise
        record = output_folders.describe_network_for_result(
            network, method, hyper, normalise, environment, steps
        )
        # Named only where it is not the default: older results stay as they are.
        problem = self._spec.problem
        return record if problem is None else record.model_copy(update={"problem": problem})

    def _report_warning(self, message: str) -> None:
        if message not in self._warnings:  # a resumed run warns again
            self._warnings.append(message)
            self._report_log(message, "warning")

    def _report_log(self, message: str, level: str = "info") -> None:
        self._emit(LogEvent(level=level, message=message))

    def _emit_phase(self, name: str) -> None:
        self._emit(PhaseEvent(phase=name))


def main(spec_path: str, out_fd: int, control_fd: int, before: Emit = lambda event: None) -> int:
    """Run the learning job of a spec file, and return the exit status.

    Events go to `out_fd`, requests come from `control_fd`. Every failure is an `error` event
    (`core.learning.training.job_process`). `before` is called with each event first.
    """

    def run_job(emit: Emit) -> None:
        learn_task(
            output_folders.read_learn_job_spec(spec_path),
            emit,
            PipeControlRequestSource(control_fd),
        )

    return run_job_and_write_events(out_fd, before, run_job)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
