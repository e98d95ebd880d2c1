"""Input and output of a process that measures a version: `measure.json` and `result.json`."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from core.contract.document import Document, StrictDocument
from core.contract.figures import Calibration
from core.contract.jobs.job_result import MeasuredMatrixCell, TaskPredictionsByteRange
from core.contract.jobs.job_spec import LocalVersionPartFile
from core.contract.manifest import Manifest

MEASURE = "measure"


class MeasurementSpec(StrictDocument):
    """Specification of a measuring job: a version, and the held-out images of one task.

    Attributes:
        work: the kind of work.
        manifest: the version's manifest.
        parts: its parts.
        task: number of the task.
        classes: names of the labels in the file, in the order of their numbers.
        held_out: file of the images.
        out: folder for the result.
        threads: threads of the process.
        device: auto, cpu, cuda or cuda:N.
        gpu_memory_share: share of the GPU's memory that the job may use, in (0, 1].
    """

    work: Literal["measure"]
    manifest: Manifest
    parts: list[LocalVersionPartFile]
    task: int
    classes: list[str]
    held_out: Path
    out: Path
    threads: int
    device: str = "auto"
    gpu_memory_share: float = 1.0


class MeasureResult(Document):
    """Result of a measuring job: one cell of the accuracy matrix, its predictions, and the
    calibration.

    The version is `new` in it.
    """

    results: list[MeasuredMatrixCell]
    answers: list[TaskPredictionsByteRange] = Field(default_factory=list)
    calibration: Calibration | None = None
