"""The state that a run resumes from: its position, and all of its tensors."""

from __future__ import annotations

from dataclasses import dataclass

from safetensors import SafetensorError
from torch import Tensor

from core.contract.jobs.snapshot import SnapshotDocument, TrainingLoopState
from core.learning.recipe import Recipe, StrictRecipeModel

# All that reading tensors of another shape or name can raise: such a snapshot costs a restart, not
# the job.
UNFIT = (KeyError, TypeError, ValueError, RuntimeError, IndexError, SafetensorError)
"""Errors raised by reading a snapshot whose content does not fit this code."""


@dataclass
class RunPosition:
    """Position of a training run: stage, epoch and step.

    Attributes:
        stage: stages done.
        epoch: epochs done in this stage.
        batch: batches done in this epoch.
        step: optimizer steps done in this task.
        images: images trained on in this task, repeats included.
    """

    stage: int = 0
    epoch: int = 0
    batch: int = 0
    step: int = 0
    images: int = 0


@dataclass
class RunSnapshot:
    """Snapshot of a training run: tensors by name, and the loop's state."""

    tensors: dict[str, Tensor]
    state: TrainingLoopState


def require_snapshot_of_same_run(
    document: SnapshotDocument, task: int, recipe: Recipe, hyper_type: type[StrictRecipeModel]
) -> None:
    """Raise ValueError for a snapshot of another task or recipe than the run's."""
    # Validated, so that a snapshot from before a field existed compares by that field's default.
    stored = Recipe.model_validate(document.recipe.to_json())
    same = (
        document.task == task
        and stored.method["name"] == recipe.method["name"]
        and hyper_type.model_validate(stored.get_hyper_parameters())
        == hyper_type.model_validate(recipe.get_hyper_parameters())
        # Placement changes nothing of what is learned. The worker decides whether a run may
        # resume elsewhere.
        and stored.model_copy(update={"method": recipe.method, "resources": recipe.resources})
        == recipe
    )
    if not same:
        raise ValueError("the snapshot belongs to another task or recipe")
