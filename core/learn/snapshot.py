"""The state that a run resumes from: its position, and all of its tensors."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from core.protocol.snapshot import LoopState


@dataclass
class Position:
    """Position of a run.

    `batch`: batches done in this epoch. `step`: optimizer steps in this task.
    """

    stage: int = 0
    epoch: int = 0
    batch: int = 0
    step: int = 0
    images: int = 0


@dataclass
class Snapshot:
    """All that a run needs to continue: tensors by name, and the loop's state."""

    tensors: dict[str, Tensor]
    state: LoopState
