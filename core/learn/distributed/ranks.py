"""The processes that share the slices of each batch, and what they tell each other once per step.

Rank 0 holds the pipes and is the only one that writes. All others compute the same state beside it. What a step
exchanges is one flat float32 vector of each slice, gathered and never reduced: sums are then taken in the order of
the slices on every rank, so that the bits do not depend on the number of ranks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor

from core.learn.control import Control
from core.protocol.control_request import ControlRequest

EXIT_RANK_LOST = 4
"""Exit status of a rank that another one left: the attempt ends without a word and goes on from its snapshot."""
PATIENCE = timedelta(days=1)
"""Other ranks wait as long as rank 0 measures; the end of a rank is torchrun's to notice, not a timeout's."""
_REQUESTS: Sequence[ControlRequest | None] = (None, *ControlRequest)


class Ranks:
    """This process alone. `rank` of `count`; rank 0 writes."""

    rank = 0
    count = 1

    @property
    def writes(self) -> bool:
        """True for the rank that reports, keeps snapshots and stores the result."""
        return self.rank == 0

    def folder(self, out: Path) -> Path:
        """The folder of this rank's scratch files: the job's, or one of its own in it."""
        if self.writes:
            return out
        own = out / f"rank-{self.rank}"
        own.mkdir(parents=True, exist_ok=True)
        return own

    def numbers(self, slices: int) -> range:
        """The slices that this rank computes; all ranks compute the single one of a batch that is too small to cut."""
        if slices < self.count:
            return range(slices)
        each = slices // self.count
        return range(self.rank * each, (self.rank + 1) * each)

    def gather(self, own: list[Tensor], slices: int) -> list[Tensor]:
        """The vectors [d] of all slices in their order, given this rank's."""
        return own


class Group(Ranks):
    """A process of a group that torchrun has started: gloo on the CPU, NCCL on CUDA."""

    def __init__(self, device: torch.device) -> None:
        import torch.distributed as dist

        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
        self._dist = dist
        self.rank, self.count = dist.get_rank(), dist.get_world_size()

    def gather(self, own: list[Tensor], slices: int) -> list[Tensor]:
        """As `Ranks.gather`; ends this process when another rank is gone."""
        mine = torch.cat(own)
        found = [torch.empty_like(mine) for _ in range(self.count)]
        try:
            self._dist.all_gather(found, mine)
        except RuntimeError:
            os._exit(EXIT_RANK_LOST)  # no error of this rank: an `error` event would end the job for good
        each: list[Tensor] = [part for flat in found for part in flat.split(len(own[0]))]  # type: ignore[no-untyped-call]
        return each[:slices]  # where every rank computed the only slice, rank 0's counts

    def leave(self) -> None:
        """End the group in order."""
        self._dist.destroy_process_group()


class SharedControl:
    """Requests to rank 0, which all ranks see after the same step: they travel with the step's gradients.

    Args:
        control: rank 0's pipe; of other ranks it has nothing to say.
    """

    def __init__(self, control: Control) -> None:
        self._control = control
        self._asked: ControlRequest | None = None
        self.pending = False

    def take(self) -> ControlRequest | None:
        """The request of the last step, which is cleared."""
        asked, self._asked, self.pending = self._asked, None, False
        return asked

    def outgoing(self) -> int:
        """A number for the request that this rank has at hand; 0: none."""
        return _REQUESTS.index(self._control.take()) if self._control.pending else 0

    def incoming(self, number: int) -> None:
        """Keep the request that rank 0 sent."""
        self._asked = _REQUESTS[number]
        self.pending = self._asked is not None


ALONE = Ranks()
