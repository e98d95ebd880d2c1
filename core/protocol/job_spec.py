"""What the worker asks of a job process: `spec.json`. It names local files only."""

from pathlib import Path

from pydantic import ConfigDict, Field

from core.protocol.architecture import Architecture, Image, Normalisation, Scenario
from core.protocol.data_report import DataReport, FindingKind
from core.protocol.document import Document
from core.protocol.manifest import Manifest
from core.protocol.recipe import Recipe


class _Strict(Document):
    """Worker and job process are of one code version: a field that has no name here is a mistake."""

    model_config = ConfigDict(extra="forbid")


class EarlierTask(_Strict):
    """A task that the parent was taught: its classes as its dataset numbers them, and its held-out part if it
    is kept; `answers`: what the parent answers there, and `features` by its backbone, if they are stored;
    `traces`: hashes of its images, if it keeps them."""

    number: int
    classes: list[str]
    held_out: Path | None = None
    answers: Path | None = None
    features: Path | None = None
    traces: Path | None = None


class SpecTask(EarlierTask):
    """The task to learn; `train` is its training part, `paths` a JSON list of its images' paths in their archive."""

    train: Path
    paths: Path | None = None


class LocalPart(_Strict):
    """A part of a version as a local safetensors file."""

    name: str
    type: str
    path: Path


class SpecVersion(_Strict):
    """A version to start from: `deleted` are the types of its parts that were deleted by request."""

    version: int
    manifest: Manifest
    parts: list[LocalPart]
    deleted: list[str] = Field(default_factory=list)


class JobSpec(_Strict):
    """Learn `task` on top of `parent`; `base` is version 0 of the model.

    normalise: the base's; null leaves it to the parent's manifest. classes: the model's, in the data scenario.
    history: earlier tasks, which the result is measured on. erased_tasks: their images leave every memory.
    held_out_stays: whether held-out images are kept after their version. snapshot: folder to go on from.
    data: what the batch's images have shown so far; settled: what of it a person has accepted. out: folder for
    results. sure_from: the probability from which on the parent's answers are sure; null: its model promises nothing,
    or it keeps no promise.
    device: auto, cpu, cuda or cuda:N. ranks: devices that may share a recipe's slices; 0: all that the job can see.
    gpu_memory_share: of the GPU's memory that the job may take, in (0, 1].
    """

    architecture: Architecture
    image: Image
    scenario: Scenario
    recipe: Recipe
    normalise: Normalisation | None = None
    classes: list[str] | None = None
    task: SpecTask
    history: list[EarlierTask] = Field(default_factory=list)
    erased_tasks: list[int] = Field(default_factory=list)
    held_out_stays: bool = True
    parent: SpecVersion
    base: SpecVersion
    snapshot: Path | None = None
    data: DataReport | None = None
    settled: list[FindingKind] = Field(default_factory=list)
    sure_from: float | None = None
    out: Path
    threads: int
    device: str = "auto"
    ranks: int = 0
    gpu_memory_share: float = 1.0
