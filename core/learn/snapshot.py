"""The state that a run resumes from: its position, and all of its tensors."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from core.protocol.snapshot import LoopState


@dataclass
class Position:
    """Progress of a run.

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
class Snapshot:
    """All that a run needs to continue: tensors by name, and the loop's state."""

    tensors: dict[str, Tensor]
    state: LoopState
