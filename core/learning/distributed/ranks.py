"""Processes that share the slices of each batch, and their exchange once per step.

Rank 0 holds the pipes and is the only one that writes. All others compute the same state beside it.
A step exchanges one flat float32 vector of each slice, gathered and never reduced. Every rank then
sums in the order of the slices, so that the bits do not depend on the number of ranks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor

from core.contract.jobs.control_request import JobControlRequest
from core.learning.training.control import LoopControl

EXIT_RANK_LOST = 4
"""Exit status of a rank after another rank ended.

The attempt ends without an event, and the next one resumes from the snapshot.
"""
PATIENCE = timedelta(days=1)
"""Timeout of the group: other ranks wait as long as rank 0 measures.

torchrun, not a timeout, detects the end of a rank.
"""
# Requests travel as numbers among the gradients; 0 is none.
_REQUESTS: Sequence[JobControlRequest | None] = (None, *JobControlRequest)


class ProcessRanks:
    """A single process as rank 0 of 1, and the interface of `TorchrunRanks`. Only rank 0 writes."""

    rank = 0
    count = 1

    @property
    def is_writing_rank(self) -> bool:
        """True for the rank that reports, writes snapshots and stores the result."""
        return self.rank == 0

    def open_scratch_folder(self, out: Path) -> Path:
        """Return the folder for this rank's scratch files: the job's, or its own within it."""
        if self.is_writing_rank:
            return out
        # Ranks of one host share the job's folder, and their scratch files have the same names.
        rank_folder = out / f"rank-{self.rank}"
        rank_folder.mkdir(parents=True, exist_ok=True)
        return rank_folder

    def get_slices_of_rank(self, slices: int) -> range:
        """Return the numbers of the slices that this rank computes.

        All ranks compute the single slice of a batch that is too small to cut.
        """
        if slices < self.count:
            return range(slices)
        # Exact, since `choose_rank_count` picks a divisor.
        each = slices // self.count
        return range(self.rank * each, (self.rank + 1) * each)

    def gather_slices(self, own: list[Tensor], slices: int) -> list[Tensor]:
        """Return the vectors [d] of all slices in their order, given this rank's."""
        return own


class TorchrunRanks(ProcessRanks):
    """A process of a group that torchrun has started: gloo on the CPU, NCCL on CUDA."""

    def __init__(self, device: torch.device) -> None:
        # Imported here: jobs of a single process do not need it.
        import torch.distributed as dist

        if device.type == "cuda":
            # NCCL expects each process on a device of its own.
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
        self._dist = dist
        self.rank, self.count = dist.get_rank(), dist.get_world_size()

    def gather_slices(self, own: list[Tensor], slices: int) -> list[Tensor]:
        """Return the vectors [d] of all slices; end this process if another rank is gone."""
        mine = torch.cat(own)
        gathered = [torch.empty_like(mine) for _ in range(self.count)]
        try:
            # Gathered and not reduced: a reduction adds in an order that depends on the ranks.
            self._dist.all_gather(gathered, mine)
        except RuntimeError:
            # This is no error of this rank: an `error` event would end the job for good.
            os._exit(EXIT_RANK_LOST)
        each: list[Tensor] = [part for flat in gathered for part in flat.split(len(own[0]))]  # type: ignore[no-untyped-call]
        return each[:slices]  # where every rank computed the only slice, take rank 0's

    def leave_process_group(self) -> None:
        """Leave the group in an orderly way."""
        self._dist.destroy_process_group()


class SharedControl:
    """Requests to rank 0, which all ranks receive after the same step with the step's gradients.

    Args:
        control: rank 0's pipe; on other ranks it never has a request.
    """

    def __init__(self, control: LoopControl) -> None:
        self._control = control
        self._asked: JobControlRequest | None = None
        self.pending = False

    def take_request(self) -> JobControlRequest | None:
        """Return the control request that rank 0 sent with the last step, and clear it."""
        request, self._asked, self.pending = self._asked, None, False
        return request

    def take_request_number(self) -> int:
        """Take this rank's pending control request and return its number; 0 if there is none.

        The other ranks receive the number.
        """
        return _REQUESTS.index(self._control.take_request()) if self._control.pending else 0

    def store_received_request(self, number: int) -> None:
        """Store the request that rank 0 sent."""
        self._asked = _REQUESTS[number]
        self.pending = self._asked is not None


ALONE = ProcessRanks()
