"""Input and output of a process that makes an ONNX graph: `export.json` and `result.json`."""

from pathlib import Path
from typing import Literal

from core.contract.document import Document, Number, StrictDocument
from core.contract.jobs.job_spec import LocalVersionPartFile
from core.contract.manifest import Manifest

OPSET = 20
INPUT = "images"
SINGLE = "probabilities"
"""Name of the output of a version with one head."""
GRAPH = "model.onnx"
GRAPH_DATA = "model.onnx.data"
"""Name of the file with the weights, if they are too large for the graph's file."""


def get_head_output_name(task: int | None) -> str:
    """Return the name of a head's output in an exported graph; task None means the only head."""
    return SINGLE if task is None else f"task_{task}"


def get_sure_flag_output_name(task: int | None) -> str:
    """Return the name of the exported graph's output that says whether a head's answer is sure."""
    return "sure" if task is None else f"sure_{task}"


class TaskHeldOutDatasetPath(StrictDocument):
    """A task's held-out images as a dataset in a local file."""

    task: int
    path: Path


class ExportSpec(StrictDocument):
    """Specification of an export job: the version's manifest and parts, and images to check the
    export with.

    Attributes:
        work: the kind of work.
        manifest: the version's manifest.
        parts: parts that the version needs for inference.
        held_out: images that the graph is checked on, in addition to noise.
        out: folder for the result.
        threads: threads of the check.
        sure_from: least probability of a sure answer; None leaves that output out of the graph.
    """

    work: Literal["export"]
    manifest: Manifest
    parts: list[LocalVersionPartFile]
    held_out: list[TaskHeldOutDatasetPath]
    out: Path
    threads: int
    sure_from: float | None = None


class ExportPackageVersions(Document):
    """Versions of the Python packages that made and checked an exported graph."""

    torch: str
    onnx: str
    onnxscript: str
    onnxruntime: str


class ExportResult(Document):
    """Files of an exported graph, and the result of checking it.

    Attributes:
        opset: version of ONNX's operators.
        files: names in the folder, the graph first.
        max_difference: largest difference of a probability between the graph in ONNX Runtime and
            the version in PyTorch.
        tolerance: largest difference that is allowed.
        batches: sizes of the batches in the check.
        images: images of noise in the check.
        held_out_images: images of the version's tasks in the check.
        exporter: versions of the packages.
    """

    opset: int
    files: list[str]
    max_difference: Number
    tolerance: float
    batches: list[int]
    images: int
    held_out_images: int
    exporter: ExportPackageVersions
