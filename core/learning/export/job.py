"""The job process that exports a version: from a spec file to a folder with a checked graph.

Phases: load (the version as a network) → export → check.
"""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import torch

from core.contract.jobs.export_job import OPSET, ExportPackageVersions, ExportResult, ExportSpec
from core.contract.jobs.job_event import DoneEvent, PhaseEvent
from core.learning.evaluation import predicting
from core.learning.export import graph
from core.learning.export.check import BATCHES, MAX_HELD_OUT, Images, compare_graph_with_version
from core.learning.export.probability_module import ProbabilityModule
from core.learning.state import load_tensors
from core.learning.training.job_process import (
    Emit,
    run_job_and_write_events,
    start_exit_on_stop_request_listener,
)

RESULT = "result.json"


def export_and_check_version_graph(spec: ExportSpec, emit: Emit) -> Path:
    """Export a version's ONNX graph and check it; return the folder with its files and
    `result.json`.

    Raises:
        ExportFailed: it cannot be exported, or the graph answers differently.
    """
    torch.set_num_threads(spec.threads)
    emit(PhaseEvent(phase="load"))
    manifest, image = spec.manifest, spec.manifest.image
    paths = {part.name: part.path for part in spec.parts}
    network, method = (
        predicting.load_version_network(manifest, paths),
        predicting.load_prediction_method(manifest, paths),
    )
    module = ProbabilityModule(
        network, method, manifest.normalise, image.channels, manifest.logit_divisor, spec.sure_from
    )
    spec.out.mkdir(parents=True, exist_ok=True)
    emit(PhaseEvent(phase="export"))
    files = graph.write_onnx_graph(module, image.channels, image.size, spec.out)
    emit(PhaseEvent(phase="check"))
    held_out = {each.task: _load_first_held_out_images(each.path) for each in spec.held_out}
    size = (image.size, image.channels)
    checked = compare_graph_with_version(spec.out / files[0], module, size, held_out, spec.threads)
    result = ExportResult(
        opset=OPSET,
        files=files,
        max_difference=checked.max_difference,
        tolerance=checked.tolerance,
        batches=list(BATCHES),
        images=checked.images,
        held_out_images=checked.held_out_images,
        exporter=ExportPackageVersions(torch=torch.__version__, **_get_export_package_versions()),
    )
    (spec.out / RESULT).write_text(json.dumps(result.to_json()))
    return spec.out


def _load_first_held_out_images(path: Path) -> Images:
    """Load the first images of a dataset file, up to `MAX_HELD_OUT`."""
    images: Images = load_tensors(path)["images"][:MAX_HELD_OUT].numpy()
    return images


def _get_export_package_versions() -> dict[str, str]:
    """Return the installed versions of the packages used for an ONNX export."""
    return {
        name: importlib.metadata.version(name) for name in ("onnx", "onnxscript", "onnxruntime")
    }


def main(spec_path: str, out_fd: int, control_fd: int, before: Emit = lambda event: None) -> int:
    """Run the export that a spec file describes, with events to `out_fd`; return the exit status.

    The process ends on a stop request, and when the control pipe closes.
    """

    def run_export(emit: Emit) -> None:
        start_exit_on_stop_request_listener(control_fd, out_fd)
        spec = ExportSpec.from_json(json.loads(Path(spec_path).read_text()))
        emit(DoneEvent(path=export_and_check_version_graph(spec, emit)))

    return run_job_and_write_events(out_fd, before, run_export)
