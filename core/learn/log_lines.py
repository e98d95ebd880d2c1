"""What a job's log says of learning: each phase with its numbers, for a person.

Epochs are told by the worker, which has a clock (`core.work.progress`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.learn.context import Context
from core.learn.loop import Loop

MAX_TASKS = 12
"""Tasks whose accuracy is told one by one."""


def measuring(version: int) -> str:
    """Before training: what is measured."""
    return f"Measuring version {version}, which the task starts from, on the held-out images of this task."


def training(ctx: Context, loop: Loop) -> str:
    """What is trained, how, and for how long; or from where on, after a snapshot."""
    recipe, done = ctx.recipe, loop.position.step
    if done:
        return f"Going on from a snapshot: epoch {loop.epoch:,} of {loop.epochs:,}, step {done:,} of {loop.total_steps:,}."
    moving = sum(parameter.numel() for parameter in ctx.trainable.values())
    return (
        f"Training by {recipe.method['name']} with {recipe.optimizer.name} at depth {recipe.depth}: {loop.epochs:,} epochs,"
        f" {loop.total_steps:,} steps, on {ctx.count:,} images of {len(ctx.classes)} classes; {moving:,} parameters move."
    )


CONSOLIDATING = "Trained. The method takes from this task what it needs to keep it."
EVALUATING = "Measuring the new version on the held-out images of every task that it can answer."


def measured(rows: Sequence[Mapping[str, Any]], task: int) -> str:
    """The new version's accuracy, by task."""
    new = {int(row["task"]): row for row in rows if row["version"] == "new" and row["total"]}
    if not new:
        return "No task has a held-out image that the new version can answer: its accuracy is not known."
    told = [f"task {number} {_share(row)}" for number, row in sorted(new.items())]
    if len(told) <= MAX_TASKS:
        return f"Accuracy of the new version: {', '.join(told)}."
    shares = {number: row["correct"] / row["total"] for number, row in new.items()}
    worst = min(shares, key=lambda number: shares[number])
    own = f"task {task} {_share(new[task])}, " if task in new else ""
    mean = sum(shares.values()) / len(shares)
    return f"Accuracy of the new version: {own}{mean:.1%} on average of {len(told)} tasks, least of task {worst}: {_share(new[worst])}."


def _share(row: Mapping[str, Any]) -> str:
    return f"{row['correct'] / row['total']:.1%} ({row['correct']} of {row['total']})"
