"""What a run is continued from: where it was, and all that it held."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from core.protocol.snapshot import LoopState


@dataclass
class Position:
    """Where a run is. `batch`: batches done in this epoch. `step`: optimizer steps done in this task."""

    stage: int = 0
    epoch: int = 0
    batch: int = 0
    step: int = 0
    images: int = 0


@dataclass
class Snapshot:
    """All that a run needs to continue: tensors by name and the rest."""

    tensors: dict[str, Tensor]
    state: LoopState
