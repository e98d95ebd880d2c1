"""Lines of a job's log about learning: each phase with its numbers, for a person.

The worker logs epochs, since it has a clock (`core.execution.progress`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.contract.figures import Calibration
from core.contract.jobs.job_result import MeasuredMatrixCell
from core.contract.manifest import Temperature
from core.learning.problems.classification import CLASSIFICATION
from core.learning.problems.problem import Problem
from core.learning.training.context import TaskTrainingContext
from core.learning.training.loop import TrainingLoop

MAX_TASKS = 12
"""Maximum number of tasks whose accuracy is listed one by one."""


INSPECTING = (
    "Looking through the images before they are learned: labels that look wrong, and how they "
    "differ from earlier ones."
)


def format_device_change_warning(before: str, now: str) -> str:
    """Format the warning that a run resumes from a snapshot of another kind of device."""
    return (
        f"This run was started on {before} and continues on {now}, as its recipe allows "
        "(resources.resume: any). The two compute different bits: another run will not give "
        "exactly this version."
    )


def format_parent_measurement_line(version: int) -> str:
    """Format the log line about measuring the parent version before training."""
    return (
        f"Measuring version {version}, which the task starts from, on the held-out images of "
        f"this task."
    )


def format_batch_slices_line(shards: int, ranks: int) -> str:
    """Format the log line about the slices of a batch, and the processes that compute them."""
    execution_mode = (
        "one after the other"
        if ranks == 1
        else f"on {ranks} processes, each with a device of its own"
    )
    return (
        f"Each batch is cut into {shards} slices, computed {execution_mode}; the result has the same bits "
        f"either way."
    )


def format_training_plan_line(ctx: TaskTrainingContext, loop: TrainingLoop) -> str:
    """Format the log line about what is trained, how and for how long, or where the run resumes."""
    recipe, schedule, done = ctx.recipe, loop.schedule, loop.position.step
    if done:
        return (
            f"Going on from a snapshot: epoch {loop.epoch:,} of {schedule.total_epochs:,}, "
            f"step {done:,} of {schedule.total_steps:,}."
        )
    outputs = ctx.problem.format_output_count(ctx.class_rows.numel())
    if not schedule.total_steps:
        return (
            f"Learning by {recipe.method['name']}: one pass over {ctx.num_images:,} images of "
            f"{outputs}; the network stays as it is, and what reads it is solved "
            f"for."
        )
    moving = sum(parameter.numel() for parameter in ctx.trainable.values())
    return (
        f"Training by {recipe.method['name']} with {recipe.optimizer.name} at depth "
        f"{recipe.depth}: {schedule.total_epochs:,} epochs, {schedule.total_steps:,} steps, on "
        f"{ctx.num_images:,} images of {outputs}; {moving:,} parameters move."
    )


def format_unfit_snapshot_line(error: Exception) -> str:
    """Format the log line with the reason why a snapshot cannot be used."""
    # torch's messages list all tensors that do not fit, one a line.
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    return (
        f"This version of the code cannot go on from the snapshot, so the task is learned again: "
        f"{reason[:300]}"
    )


def format_method_end_task_line(loop: TrainingLoop) -> str:
    """Format the log line about the method's work between training and measuring."""
    trained = "Trained. " if loop.schedule.total_steps else ""
    return f"{trained}The method takes from this task what it needs to keep it."


EVALUATING = "Measuring the new version on the held-out images of every task that it can answer."


def format_accuracy_by_task_line(
    rows: Sequence[MeasuredMatrixCell], task: int, problem: Problem[Any] = CLASSIFICATION
) -> str:
    """Format the log line with the new version's primary measure on each task."""
    noun = problem.primary_measure.noun
    new = {row.task: row for row in rows if row.version == "new" and row.total}
    if not new:
        return (
            f"No task has a held-out image that the new version can answer: its {noun} is not "
            "known."
        )
    by_task = [
        f"task {number} {_format_matrix_cell_measure(row)}" for number, row in sorted(new.items())
    ]
    # A line of a hundred accuracies is not read: beyond a dozen, mean and worst say more.
    if len(by_task) <= MAX_TASKS:
        return f"{noun.capitalize()} of the new version: {', '.join(by_task)}."
    shares = {number: row.primary_measure or 0.0 for number, row in new.items()}
    worst = min(shares, key=lambda number: shares[number])
    own_task = f"task {task} {_format_matrix_cell_measure(new[task])}, " if task in new else ""
    mean = sum(shares.values()) / len(shares)
    return (
        f"{noun.capitalize()} of the new version: {own_task}{mean:.1%} on average of "
        f"{len(by_task)} tasks, least of task {worst}: {_format_matrix_cell_measure(new[worst])}."
    )


def format_nondeterminism_line(operations: Sequence[str]) -> str:
    """Format the log line about operations without a deterministic kernel on this device."""
    return (
        f"No deterministic kernel on this device for {', '.join(operations)}: the same job may end "
        "with other bits. The manifest names them too."
    )


def format_calibration_line(temperature: Temperature, calibration: Calibration | None) -> str:
    """Format the log line with the softmax temperature, its source, and the calibration error."""
    source = {
        "held-out": f"from {temperature.images:,} held-out images" if temperature.images else "",
        "left-out": f"from {temperature.images:,} training images, each left out"
        if temperature.images
        else "",
        "parent": "from its parent",
        "none": "since too few images are held out to measure it",
    }[temperature.source]
    sentence = f"The temperature of its probabilities is {temperature.value:.3g}, {source}."
    if calibration is None:
        return sentence
    return (
        f"{sentence} They are off by {calibration.error:.3f} (calibration error; 95 %: "
        f"{calibration.low:.3f} to {calibration.high:.3f}, {calibration.images:,} images)."
    )


def _format_matrix_cell_measure(row: MeasuredMatrixCell) -> str:
    if row.measure is not None:
        return f"{row.measure:.3f}"
    return f"{row.correct / row.total:.1%} ({row.correct} of {row.total})"
