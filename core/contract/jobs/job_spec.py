"""Specification for a job process, `spec.json`. It names local files only."""

from pathlib import Path

from pydantic import Field

from core.contract.architecture import (
    ArchitectureWithHyperParameters,
    ImageSettings,
    Normalisation,
    Scenario,
)
from core.contract.document import StrictDocument
from core.contract.manifest import Manifest
from core.contract.recipe import Recipe
from core.contract.reports.data_report import DataReport, FindingKind


class FileByteRange(StrictDocument):
    """A range of bytes of a local file, from `begin` to `end`."""

    path: Path
    begin: int
    end: int


class EarlierTask(StrictDocument):
    """A task that the parent version has learned: classes, held-out images and stored predictions.

    Attributes:
        held_out: its held-out part, if it is retained.
        answers: the parent's predictions on it, if they are stored.
        features: its features by the parent's backbone, if they are stored.
        traces: hashes of its images, if they are stored.
    """

    number: int
    classes: list[str]
    held_out: Path | None = None
    answers: FileByteRange | None = None
    features: Path | None = None
    traces: Path | None = None


class TaskToLearn(EarlierTask):
    """The task that a job learns: its training images, classes and held-out images.

    Attributes:
        train: its training part.
        paths: JSON list of image paths in its archive.
        known: kept features of the training images, `features` float32 [N, D]. The images of
            `train` are then the features' keys, uint8 [N, 1, 1, 16].
    """

    train: Path
    paths: Path | None = None
    known: Path | None = None


class LocalVersionPartFile(StrictDocument):
    """A part of a version as a local safetensors file.

    Attributes:
        numbers: place among the version's `class_numbers` of the map that its numbers of classes
            need; null: none.
    """

    name: str
    type: str
    path: Path
    numbers: int | None = None


class StartingVersion(StrictDocument):
    """A version that a job starts from or compares with: its parts and classes as local files.

    Attributes:
        deleted: types of its parts that were deleted by request.
        class_numbers: maps from the numbers of classes in parts of older versions to the present
            ones; -1: the class no longer exists.
    """

    version: int
    manifest: Manifest
    parts: list[LocalVersionPartFile]
    class_numbers: list[list[int]] = Field(default_factory=list)
    deleted: list[str] = Field(default_factory=list)


class SelectionDataset(StrictDocument):
    """Dataset of a task's images that are set aside to compare trials and never learned."""

    task: int
    classes: list[str]
    path: Path


class LearnJobSpec(StrictDocument):
    """Specification of a learning job: learn `task` on top of version `parent`; `base` is version
    0.

    Attributes:
        problem: what the labels mean; null is classification.
        normalise: that of the base; null leaves it to the parent's manifest.
        classes: those of the model, in the data scenario.
        history: earlier tasks, on which the result is measured.
        erased_tasks: tasks whose images are removed from every replay buffer.
        held_out_stays: whether held-out images are retained after their version.
        snapshot: folder of the snapshot to resume from.
        data: findings about the batch's images so far.
        settled: those that a person has accepted.
        trial: whether the result is compared with those of other recipes.
        selection: images that it is compared on; empty: by left-out answers.
        out: folder for results.
        with_ancestors: whether base and parent are measured and compared with the result.
        inspects_task: whether the parent inspects the task's images.
        sure_from: probability from which the parent's predictions are sure; null: its model
            promises nothing, or it keeps no promise.
        device: auto, cpu, cuda or cuda:N.
        ranks: devices that may share a recipe's slices; 0: all visible ones.
        gpu_memory_share: share of the GPU's memory that the job may use, in (0, 1].
    """

    architecture: ArchitectureWithHyperParameters
    image: ImageSettings
    scenario: Scenario
    problem: str | None = None
    recipe: Recipe
    normalise: Normalisation | None = None
    classes: list[str] | None = None
    task: TaskToLearn
    history: list[EarlierTask] = Field(default_factory=list)
    erased_tasks: list[int] = Field(default_factory=list)
    held_out_stays: bool = True
    parent: StartingVersion
    base: StartingVersion
    snapshot: Path | None = None
    data: DataReport | None = None
    settled: list[FindingKind] = Field(default_factory=list)
    with_ancestors: bool = True
    inspects_task: bool = True
    sure_from: float | None = None
    trial: bool = False
    selection: list[SelectionDataset] = Field(default_factory=list)
    out: Path
    threads: int
    device: str = "auto"
    ranks: int = 0
    gpu_memory_share: float = 1.0
