"""The accuracy matrix of a model, and the figures along the ancestors of one version."""

from typing import Literal

from typing_extensions import TypedDict

from core.contract.responses.versions.manifest import CalibrationOut
from core.contract.responses.versions.sure import SureOut


class MatrixRow(TypedDict):
    """Row of the accuracy matrix: a version, the task that it learned and its parent; both null for
    version 0.
    """

    version: int
    task: int | None
    parent: int | None
    status: str


class MatrixColumn(TypedDict):
    """Column of the accuracy matrix: a learned task with its classes and number of held-out images."""

    task: int
    name: str | None
    classes: list[str]
    n: int


class TaskAccuracy(TypedDict):
    """A version's accuracy on one task's held-out images."""

    task: int
    accuracy: float | None


class TaskForgetting(TypedDict):
    """Forgetting of one task: its accuracy when it was learned and now, and the difference."""

    task: int
    when_learned: float | None
    now: float | None
    forgetting: float | None


class ProbeAccuracy(TypedDict):
    """Accuracy of a k-nearest-neighbour classifier on a version's features, over all tasks and by
    task.
    """

    accuracy: float | None
    per_task: list[TaskAccuracy]


UnmeasuredClass = TypedDict("UnmeasuredClass", {"task": int, "class": str})
"""A learned class without held-out images."""


class MatrixSummary(TypedDict):
    """Summary figures of a version that follow from the accuracy matrix, such as mean accuracy and
    forgetting.
    """

    acc: float | None
    pooled: float | None
    macro: float | None
    last: float | None
    by_stage: list[float | None]
    average_incremental: float | None
    bwt: float | None
    fwt: float | None
    forgetting: float | None
    forgetting_literal: float | None
    forgetting_by_stage: list[float | None]
    per_task: list[TaskForgetting]
    learning_accuracy: float | None
    intransigence: float | None
    intransigence_last: float | None
    gap_to_joint: float | None
    gap_by_stage: list[float | None] | None


class JobMeasuredFigures(TypedDict):
    """Figures that the learning jobs of the version and of its ancestors measured, such as drift
    and update norms.
    """

    fwt_probe: float | None
    update_norm: list[float | None]
    update_norm_head: list[float | None]
    update_norm_relative: list[float | None]
    drift: list[float | None]
    baseline_ncm: list[float | None]
    baseline_lda: list[float | None]
    predicted_loss_rise: list[float | None]
    measured_loss_rise: list[float | None]


class SingleVersionFigures(TypedDict):
    """Figures measured for the requested version alone, not for its ancestors."""

    calibration: CalibrationOut | None
    regression_rate: float | None
    improvement_rate: float | None
    knn_probe: ProbeAccuracy | None


class Summary(MatrixSummary, JobMeasuredFigures, SingleVersionFigures):
    """Summary figures of a version, defined in `definitions` beside it; null: undefined.

    Lists follow the version's ancestors, from the first on. `adp_mean`: for each of them by task;
    null if its job did not measure it.
    """

    sure: SureOut | None
    adp_mean: list[list[TaskAccuracy] | None]
    seconds: list[float | None]
    bytes: list[int]
    degenerate: list[int]
    unmeasured_classes: list[UnmeasuredClass]


class CellMark(TypedDict):
    """Mark of an accuracy-matrix cell whose labels or images an edit changed after it was counted.

    - `counted_again`: true if it was counted by the present labels, from stored predictions; else
      it is what was measured by the former labels.
    """

    version: int
    task: int
    mark: Literal["labels edited"]
    counted_again: bool


class MetricsOut(TypedDict):
    """Response with the accuracy matrix, and figures along the ancestors of `version`; null:
    undefined.

    A row is a version, including held ones; a column is a task. `definitions` defines each figure
    of the summary by name. A window has only its rows, columns and cells, but `summary` covers
    everything. `marks` lists the cells of older versions whose labels were edited since.
    """

    version: int
    rows: list[MatrixRow]
    columns: list[MatrixColumn]
    accuracy_matrix: list[list[float | None]]
    marks: list[CellMark]
    summary: Summary
    definitions: dict[str, str]
