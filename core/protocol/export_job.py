"""What the worker asks of a process that makes an ONNX graph (`export.json`), and what it leaves behind
(`result.json`)."""

from pathlib import Path
from typing import Literal

from pydantic import ConfigDict

from core.protocol.document import Document, Number
from core.protocol.job_spec import LocalPart
from core.protocol.manifest import Manifest

OPSET = 20
INPUT = "images"
SINGLE = "probabilities"
"""The output of a version with one head."""
GRAPH = "model.onnx"
GRAPH_DATA = "model.onnx.data"
"""Weights beside a graph that would be too large for one file."""


def output_name(task: int | None) -> str:
    """The name of a head's output; None: the only head."""
    return SINGLE if task is None else f"task_{task}"


def sure_name(task: int | None) -> str:
    """The name of the output that says whether a head's answer is sure."""
    return "sure" if task is None else f"sure_{task}"


class _Strict(Document):
    """Worker and job process are of one code version: a field that has no name here is a mistake."""

    model_config = ConfigDict(extra="forbid")


class HeldOut(_Strict):
    """A task's held-out images as a local dataset file."""

    task: int
    path: Path


class ExportSpec(_Strict):
    """Export a version. `parts`: those that it answers with; `held_out`: what it is checked on beside noise;
    `out`: folder for the result; `threads`: of the check; `sure_from`: the probability from which on an answer is
    sure, null: the graph does not say it.
    """

    work: Literal["export"]
    manifest: Manifest
    parts: list[LocalPart]
    held_out: list[HeldOut]
    out: Path
    threads: int
    sure_from: float | None = None


class Exporter(Document):
    """Versions of the packages that made and checked a graph."""

    torch: str
    onnx: str
    onnxscript: str
    onnxruntime: str


class ExportResult(Document):
    """What was made and how it was checked.

    `files`: names in the folder, the graph first. `max_difference`: the largest difference of a probability between
    the graph in ONNX Runtime and the version in PyTorch, over `images` images of noise and `held_out_images`
    of the version's tasks, in batches of the sizes `batches`; `tolerance`: what it may be.
    """

    opset: int
    files: list[str]
    max_difference: Number
    tolerance: float
    batches: list[int]
    images: int
    held_out_images: int
    exporter: Exporter
