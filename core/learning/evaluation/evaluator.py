"""Measurements of a job: base and parent on the new task, the new version on every task."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import torch
from pydantic import JsonValue
from torch import Tensor

from core.contract.figures import (
    AnswerChangeCounts,
    Calibration,
    Counts,
    EarlierTaskLossRise,
    EarlierTasksLossRiseForecast,
    VersionFeatureKnnProbeResult,
    VersionFigures,
)
from core.contract.jobs.job_event import AliveEvent, JobEvent, LogEvent, MetricEvent
from core.contract.jobs.job_result import MeasuredMatrixCell, MeasuredVersion
from core.contract.jobs.job_spec import EarlierTask, LearnJobSpec
from core.contract.jobs.trial import TrialScore
from core.contract.manifest import Temperature
from core.learning.data.dataset import Dataset
from core.learning.data.held_out_features import (
    HeldOutFeatures,
    replace_held_out_images_by_features,
)
from core.learning.evaluation import stored_predictions
from core.learning.evaluation.ancestors import StartingVersions, Which
from core.learning.evaluation.anytime import Accuracy
from core.learning.evaluation.baselines import BaselineCorrectCounts, evaluate_feature_baselines
from core.learning.evaluation.calibration.error import measure_version_calibration
from core.learning.evaluation.calibration.held_out import (
    choose_stride_of_images_with_stored_logits,
    concatenate_task_logits,
)
from core.learning.evaluation.calibration.temperature import choose_softmax_temperature_and_source
from core.learning.evaluation.comparison import (
    ComparedParent,
    count_prediction_changes_since_parent,
    measure_weight_drift_from_base,
    run_knn_probe_on_tasks,
)
from core.learning.evaluation.evaluate import (
    can_predict_task,
    compute_logits_of_tasks,
    compute_mean_loss,
    count_correct_by_class,
    make_class_predictions_of_tasks,
    predict_and_score_dataset,
    score_network_on_task,
)
from core.learning.evaluation.probe import (
    VersionKnnProbe,
    choose_probe_image_limit,
)
from core.learning.evaluation.trial_score import score_trial
from core.learning.methods.method import Method
from core.learning.networks import Network
from core.learning.networks.network import use_eval_mode
from core.learning.precision import InputNormaliser, move_network_to_device
from core.learning.problems.problem import PredictionBatch
from core.learning.reports.duplicates import read_or_compute_hashes
from core.learning.training import log_lines
from core.learning.training.context import TaskTrainingContext
from core.learning.training.loop import NonFiniteTrainingError
from core.statistics.near_duplicates import Hashes


class Evaluator:
    """Evaluates the versions of a job on the held-out datasets of all tasks.

    Attributes:
        rows: the measured cells so far, each also reported as a metric.
        answers: predictions by version and task.
        temperature: that of the new version, once it was measured.
    """

    def __init__(
        self,
        spec: LearnJobSpec,
        ancestors: StartingVersions,
        inputs: InputNormaliser,
        emit: Callable[[JobEvent], None],
        features: HeldOutFeatures | None = None,
    ) -> None:
        self.rows: list[MeasuredMatrixCell] = []
        self.answers: dict[tuple[MeasuredVersion, int], PredictionBatch] = {}
        self.temperature: Temperature | None = None
        self._spec = spec
        self._ancestors = ancestors
        self._inputs = inputs
        self._emit = emit
        self._features = features or HeldOutFeatures()
        self._number = spec.task.number
        self._problem = ancestors.problem

    def measure_base_and_parent_on_new_task(self, network: Network) -> None:
        """Evaluate base and parent version as they are on the new task's held-out dataset.

        The parent is `network`, which is back on the CPU afterwards.
        """
        if not self._spec.task.held_out:
            return
        held_out = self._read_held_out(self._spec.task)
        outputs = held_out.list_outputs_needed_to_measure()
        same = self._ancestors.same
        versions: tuple[Which, ...] = ("parent",) if same else ("base", "parent")
        for version in versions:
            # By the manifest: no network is loaded only to find that it cannot answer.
            if not self._ancestors.can_version_predict_task(
                version, self._number, outputs
            ) or not len(held_out):
                continue
            measured = (
                network if version == "parent" else self._ancestors.load_version_network("base")
            )
            move_network_to_device(measured, self._inputs.device)
            predictions = predict_and_score_dataset(
                measured,
                held_out,
                self._number,
                self._ancestors.load_prediction_function(version),
                self._inputs,
                self._ancestors.get_temperature(version),
            )
            self._record_matrix_cell(version, self._number, held_out, predictions)
        if same:
            # In a first task base and parent are one version: its cells are copied, not measured
            # again.
            self.rows += [row.model_copy(update={"version": "base"}) for row in self.rows]
            self.answers |= {
                ("base", task): predictions for (_, task), predictions in self.answers.items()
            }
        network.to("cpu", memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def measure_new_version(
        self, network: Network, method: Method, ctx: TaskTrainingContext
    ) -> VersionFigures:
        """Evaluate the newly trained version on every task it can predict, and its changes since
        its parent.
        """
        with use_eval_mode(network):
            return self._measure_new_version(network, method, ctx)

    def _measure_new_version(
        self, network: Network, method: Method, ctx: TaskTrainingContext
    ) -> VersionFigures:
        parts = self.read_held_out_parts()
        stored_features = self._features.kept
        measured_parts = replace_held_out_images_by_features(
            network, parts, self._inputs, stored_features, lambda: self._emit(AliveEvent())
        )
        if self._features.is_on and self._spec.held_out_stays:
            self._features.collect_new_features(measured_parts, self._number)
        right, calibration = self._fit_temperature_and_measure_matrix(
            network, method, ctx, measured_parts
        )
        # Loaded again: the one that the task started from has been trained.
        older: dict[str, Network] = {}
        if self._ancestors.same or self._spec.with_ancestors:
            older["parent"] = self._ancestors.load_version_network("parent")
        if not self._ancestors.same:
            older["base"] = self._ancestors.load_version_network("base")
        for ancestor in older.values():
            move_network_to_device(ancestor, self._inputs.device)
        base = dict(older["parent" if self._ancestors.same else "base"].named_parameters())
        figures = VersionFigures(drift=measure_weight_drift_from_base(network, base))
        if self._spec.with_ancestors:
            changes = self._count_changes_since_parent(older["parent"], parts, right)
            figures = figures.model_copy(update={"changes": changes})
        # The others compare classes.
        if not self._problem.has_classes:
            return figures
        classes = {
            (self._get_head_task(task), name)
            for task, dataset in parts.items()
            for name in dataset.names
        }
        probe = VersionKnnProbe(
            network,
            len(parts),
            self._inputs,
            self._read_parent_probe_of_unchanged_tasks(),
            choose_probe_image_limit(len(classes)),
        )
        hashes = self._collect_held_out_hashes(parts)
        neighbours = run_knn_probe_on_tasks(probe, measured_parts, hashes, self._emit_metric)
        if self._spec.with_ancestors:
            neighbours["before"] = self._probe_ancestors_on_new_task_by_knn(older, parts, hashes)
        baselines = self._evaluate_ncm_and_lda_baselines(network, probe, right)
        return figures.model_copy(
            update={
                "knn_probe": VersionFeatureKnnProbeResult.from_json(neighbours),
                "baseline_ncm": baselines.ncm,
                "baseline_lda": baselines.lda,
                "baseline_later": baselines.later,
                "calibration": calibration,
            }
        )

    def _count_changes_since_parent(
        self, network: Network, parts: Mapping[int, Dataset], right: Mapping[int, Tensor]
    ) -> dict[str, AnswerChangeCounts]:
        """Count by task how many predictions changed since the parent; keep the parent's
        predictions.
        """
        parent = ComparedParent(
            network,
            self._ancestors.load_prediction_function("parent"),
            self._ancestors.get_temperature("parent"),
            self._read_parent_correctness(network, parts),
        )
        changes, predictions = count_prediction_changes_since_parent(
            parent, parts, right, self._inputs, self._emit_metric
        )
        for task, of_task in predictions.items():
            # Those of the new task were measured before training, and stay.
            self.answers.setdefault(("parent", task), of_task)
        return {task: AnswerChangeCounts(**counts) for task, counts in changes.items()}

    def build_matrix_and_temperature_fields(self) -> dict[str, object]:
        """Return the accuracy matrix's measured cells and the temperature, as fields of a job
        result.
        """
        return {"results": self.rows, "temperature": self.temperature}

    def _read_parent_probe_of_unchanged_tasks(self) -> dict[int, Counts]:
        """Return the parent's stored k-NN probe of the tasks whose images and features did not
        change.
        """
        probe = self._ancestors.get_parent_or_base_manifest("parent").knn_probe
        if probe is None:
            return {}
        # Stored features are those of the backbone that the job starts from and leaves unchanged.
        return {
            task: probe.tasks[str(task)] for task in self._features.kept if str(task) in probe.tasks
        }

    def _probe_ancestors_on_new_task_by_knn(
        self,
        older: Mapping[str, Network],
        parts: Mapping[int, Dataset],
        hashes: Mapping[int, Hashes | None],
    ) -> dict[str, list[int]]:
        """Run the k-NN probe of older versions' networks on the new task: name → [correct,
        total].
        """
        number, data = self._number, parts.get(self._number)
        if data is None:
            return {}
        return {
            name: VersionKnnProbe(network, 1, self._inputs).probe_task(
                number, data, hashes.get(number)
            )
            for name, network in older.items()
        }

    def _collect_held_out_hashes(self, parts: Mapping[int, Dataset]) -> dict[int, Hashes | None]:
        """Return the perceptual hashes of each task's held-out images."""
        traces = {task.number: task.traces for task in (*self._spec.history, self._spec.task)}
        return {
            task: read_or_compute_hashes(traces.get(task), "held_out", data)
            for task, data in parts.items()
        }

    def _read_parent_correctness(
        self, parent: Network, parts: Mapping[int, Dataset]
    ) -> dict[int, Tensor]:
        """Return masks of the parent's correct predictions by task; tasks without stored
        predictions are left out.
        """
        right_by_task: dict[int, Tensor] = {}
        contents = {
            path: path.read_bytes()
            for path in {task.answers.path for task in self._spec.history if task.answers}
        }
        for task in self._spec.history:
            data = parts.get(task.number)
            if task.answers is None or data is None:
                continue
            head = self._get_head_task(task.number)
            if not can_predict_task(parent, task.number, data.list_outputs_needed_to_measure()):
                continue
            problem = data.problem
            prediction_bytes = contents[task.answers.path][task.answers.begin : task.answers.end]
            stored = stored_predictions.parse_stored_predictions(prediction_bytes, problem)
            # Images may have been deleted since the predictions were stored.
            if len(stored) == len(data):
                scores = problem.score(
                    stored, data.convert_labels_to_targets(parent.list_classes(head))
                )
                right_by_task[task.number] = problem.mask_right_scores(scores)
        return right_by_task

    def _evaluate_ncm_and_lda_baselines(
        self, network: Network, probe: VersionKnnProbe, right: Mapping[int, Tensor]
    ) -> BaselineCorrectCounts:
        """Evaluate baseline classifiers on the held-out features; none if held-out images are not
        retained.
        """
        if not self._spec.held_out_stays:
            return BaselineCorrectCounts()
        rows = None
        if network.scenario == "class":
            row_of = {name: row for row, name in enumerate(network.list_classes(None))}
            # A class that the version does not know gets a row behind the head: no task that it can
            # answer has it.
            rows = torch.tensor(
                [row_of.get(name, len(row_of)) for name in probe.class_names], dtype=torch.int64
            )
        baselines = evaluate_feature_baselines(network, probe.samples, right, rows, probe.groups)
        for name, baseline in (("ncm", baselines.ncm), ("lda", baselines.lda)):
            if baseline is not None:
                correct, total = baseline.all
                self._emit_metric(
                    f"baseline_{name}", {"correct": correct, "total": total}, correct / total
                )
        return baselines

    def compare_forecast_with_measured_loss_rise(
        self, network: Network, method: Method, predicted: float, by_task: Mapping[int, float]
    ) -> EarlierTasksLossRiseForecast:
        """Compare the loss rise that the method forecast for earlier tasks with the measured one.

        In the units of the method's `compute_example_losses`; `before` is the parent's. The mean
        weighs tasks alike.
        """
        parent = self._ancestors.load_version_network("parent")
        move_network_to_device(parent, self._inputs.device)
        tasks: dict[str, EarlierTaskLossRise] = {}
        rises: list[float] = []
        for task, data in self.read_held_out_parts().items():
            outputs = data.list_outputs_needed_to_measure()
            if task == self._number or not len(data) or not can_predict_task(parent, task, outputs):
                continue
            before, after = (
                compute_mean_loss(n, data, task, method.compute_example_losses, self._inputs)
                for n in (parent, network)
            )
            # A diverged loss is no number for a manifest.
            if not (math.isfinite(before) and math.isfinite(after)):
                continue
            rise = EarlierTaskLossRise(predicted=by_task.get(task), before=before, after=after)
            tasks[str(task)] = rise
            rises.append(after - before)
            self._emit_metric("loss_rise", {"task": task, **rise.to_json()}, after - before)
        measured = sum(rises) / len(rises) if rises else None
        self._emit_metric("predicted_loss_rise", {"measured": measured}, predicted)
        return EarlierTasksLossRiseForecast(predicted=predicted, measured=measured, tasks=tasks)

    def measure_network_during_training(self, network: Network, method: Method) -> Accuracy:
        """Measure the primary measure of the network in training on each task that it can
        predict.
        """
        accuracies: Accuracy = {}
        with use_eval_mode(network):
            for task, data in self.read_held_out_parts().items():
                if not len(data) or not can_predict_task(
                    network, task, data.list_outputs_needed_to_measure()
                ):
                    continue
                scores = score_network_on_task(
                    network, data, task, method.predict_logits, self._inputs
                )
                accuracies[str(task)] = data.problem.multiply_measure_by_image_count(scores) / len(
                    data
                )
                self._emit(AliveEvent())  # measuring many tasks takes long
        return accuracies

    def _emit_metric(
        self, name: str, data: Mapping[str, JsonValue], value: float | None = None
    ) -> None:
        self._emit(MetricEvent(name=name, step=None, value=value, data=dict(data)))

    def _fit_temperature_and_measure_matrix(
        self,
        network: Network,
        method: Method,
        ctx: TaskTrainingContext,
        parts: Mapping[int, Dataset],
    ) -> tuple[dict[int, Tensor], Calibration | None]:
        """Choose the new version's softmax temperature, and measure its cells of the accuracy
        matrix.

        Returns task → mask of correct predictions, and the calibration. Logits of all images are
        retained if they fit into memory; else those of some, and a second pass computes the
        predictions.
        """
        answerable = {
            task: data
            for task, data in parts.items()
            if len(data) and can_predict_task(network, task, data.list_outputs_needed_to_measure())
        }
        sizes = [
            (len(data), len(network.list_classes(self._get_head_task(task))))
            for task, data in answerable.items()
        ]
        predict = method.predict_logits
        # Outputs that are no scores of classes have no temperature.
        if not self._problem.has_classes:
            return self._record_matrix_cells(
                (task, data, predict_and_score_dataset(network, data, task, predict, self._inputs))
                for task, data in answerable.items()
            ), None
        # Some of the images are enough for a temperature; predictions need all of them.
        stride = choose_stride_of_images_with_stored_logits(sizes)
        logits = compute_logits_of_tasks(
            network,
            {task: data.select_every_nth_image(stride) for task, data in answerable.items()},
            predict,
            self._inputs,
            lambda: self._emit(AliveEvent()),
        )
        together, parent = (
            concatenate_task_logits(logits),
            self._ancestors.get_parent_or_base_manifest("parent").temperature,
        )
        self.temperature = choose_softmax_temperature_and_source(
            together, lambda: method.compute_left_out_scores(ctx), parent
        )
        value, calibration = (
            self.temperature.value,
            measure_version_calibration(together, self.temperature.value),
        )
        self._emit(
            LogEvent(
                level="info",
                message=log_lines.format_calibration_line(self.temperature, calibration),
            )
        )

        decoded = make_class_predictions_of_tasks(logits, value) if stride == 1 else {}

        def predict_and_score_task(task: int, data: Dataset) -> tuple[PredictionBatch, Tensor]:
            if stride != 1:
                return predict_and_score_dataset(network, data, task, predict, self._inputs, value)
            return decoded[task], data.problem.score(decoded[task], logits[task].targets)

        cells = (
            (task, data, predict_and_score_task(task, data)) for task, data in answerable.items()
        )
        return self._record_matrix_cells(cells), calibration

    def _record_matrix_cells(
        self, cells: Iterable[tuple[int, Dataset, tuple[PredictionBatch, Tensor]]]
    ) -> dict[int, Tensor]:
        """Store and report the new version's cells of the accuracy matrix; return masks of right
        predictions.
        """
        return {
            task: self._record_matrix_cell("new", task, data, predictions_and_scores)
            for task, data, predictions_and_scores in cells
        }

    def _record_matrix_cell(
        self,
        version: MeasuredVersion,
        task: int,
        data: Dataset,
        predictions_and_scores: tuple[PredictionBatch, Tensor],
    ) -> Tensor:
        """Store and report one cell of the accuracy matrix; return the mask of right
        predictions.
        """
        self.answers[version, task], scores = predictions_and_scores
        counts = {
            name: n
            for name, n in vars(count_correct_by_class(data, scores)).items()
            if n is not None
        }
        row = MeasuredMatrixCell(version=version, task=task, **counts)
        self.rows.append(row)
        self._emit_metric("result", row.to_json())
        return data.problem.mask_right_scores(scores)

    def _get_head_task(self, task: int) -> int | None:
        return task if self._spec.scenario == "task" else None

    def score_trial(
        self, network: Network, method: Method, ctx: TaskTrainingContext
    ) -> dict[str, TrialScore | None]:
        """Score the network of a trial by the accuracy that trials are compared by, as a result
        field.

        Called last, so that nothing which is stored depends on it.
        """
        if not self._spec.trial:
            return {}
        return {"score": score_trial(network, method, ctx, self._spec.selection, self._ancestors)}

    def read_held_out_parts(self) -> dict[int, Dataset]:
        """Read the held-out datasets of the new task and of earlier tasks that still exist, by task
        number.
        """
        # The order decides the last bits of sums over all images, whichever task is learned last.
        tasks = sorted((*self._spec.history, self._spec.task), key=lambda task: task.number)
        return {task.number: self._read_held_out(task) for task in tasks if task.held_out}

    def _read_held_out(self, task: EarlierTask) -> Dataset:
        assert task.held_out is not None
        return self._ancestors.read_dataset(task.held_out, task.classes)


def forecast_loss_rise_of_earlier_tasks(
    method: Method, ctx: TaskTrainingContext
) -> tuple[float | None, dict[int, float]]:
    """Return the method's forecast of the loss rise on earlier tasks, mean and by task; None for
    the first.
    """
    predicted = None if ctx.first else method.forecast_loss_rise(ctx)
    by_task = method.forecast_loss_rise_by_task(ctx).items()
    if predicted is not None and not math.isfinite(predicted):
        raise NonFiniteTrainingError(
            f"the forecast of what earlier tasks lose is {predicted}: lower lr or set "
            f"optimizer.clip"
        )
    return predicted, {task: value for task, value in by_task if math.isfinite(value)}
