"""The job process that measures a version on one task: from a spec file to a result folder.

It is for a version that no job has made, which therefore nothing has measured yet.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

from core.contract.jobs.job_event import DoneEvent, LogEvent, MetricEvent, PhaseEvent
from core.contract.jobs.job_result import (
    MeasuredMatrixCell,
    MeasuredVersion,
    TaskPredictionsByteRange,
)
from core.contract.jobs.measure_job import MeasurementSpec, MeasureResult
from core.learning.data.dataset import Dataset
from core.learning.evaluation import predicting, stored_predictions
from core.learning.evaluation.calibration.error import measure_version_calibration
from core.learning.evaluation.evaluate import compute_task_logits, count_correct_by_class
from core.learning.precision import InputNormaliser, move_network_to_device, open_device_with_limit
from core.learning.problems.registry import get_problem
from core.learning.training.job_process import (
    Emit,
    run_job_and_write_events,
    start_exit_on_stop_request_listener,
)

RESULT = "result.json"
_VERSION: MeasuredVersion = "new"


def measure_version_on_spec_images(spec: MeasurementSpec, emit: Emit) -> Path:
    """Measure a version on the images of a spec; return the folder with the result.

    Raises:
        DataError: the images do not fit.
    """
    torch.set_num_threads(spec.threads)
    emit(PhaseEvent(phase="measure"))
    device = open_device_with_limit(spec.device, spec.gpu_memory_share)
    manifest, paths = spec.manifest, {part.name: part.path for part in spec.parts}
    network = predicting.load_version_network(manifest, paths)
    method = predicting.load_prediction_method(manifest, paths, device)
    move_network_to_device(network, device)
    problem = get_problem(manifest.problem)
    data = Dataset.read_dataset_file(spec.held_out, spec.classes, problem)
    inputs = InputNormaliser(manifest.normalise, manifest.image.channels, device)
    logits = compute_task_logits(network, data, spec.task, method.predict_logits, inputs)
    predictions = problem.decode(logits.values, logits.targets, manifest.logit_divisor)
    scores = problem.score(predictions, logits.targets)
    counts = {
        name: n for name, n in vars(count_correct_by_class(data, scores)).items() if n is not None
    }
    cell = MeasuredMatrixCell(version=_VERSION, task=spec.task, **counts)
    emit(MetricEvent(name="result", step=None, value=None, data=cell.to_json()))
    text = f"Version {manifest.version} predicts {cell.correct:,} of {cell.total:,} images right."
    emit(LogEvent(level="info", message=text))
    spec.out.mkdir(parents=True, exist_ok=True)
    files: list[TaskPredictionsByteRange] = stored_predictions.write_prediction_file(
        spec.out, {(_VERSION, spec.task): predictions}
    )
    result = MeasureResult(
        results=[cell],
        answers=files,
        calibration=measure_version_calibration(logits, manifest.logit_divisor),
    )
    (spec.out / RESULT).write_text(json.dumps(result.to_json()))
    return spec.out


def main(spec_path: str, out_fd: int, control_fd: int, before: Emit = lambda event: None) -> int:
    """Measure the version of a spec file, sending events to `out_fd`; return the exit status.

    The process ends on a stop request, and when the control pipe closes.
    """

    def run_measurement(emit: Emit) -> None:
        start_exit_on_stop_request_listener(control_fd, out_fd)
        spec = MeasurementSpec.from_json(json.loads(Path(spec_path).read_text()))
        emit(DoneEvent(path=measure_version_on_spec_images(spec, emit)))

    return run_job_and_write_events(out_fd, before, run_measurement)
