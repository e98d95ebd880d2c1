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
from core.learning.training.control import ControlRequestSource

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


class SingleProcessRanks:
    """Distributed ranks of a single process: rank 0 of 1, with the interface of `TorchrunRanks`."""

    rank = 0
    count = 1

    @property
    def is_writing_rank(self) -> bool:
        """True for the rank that reports, writes snapshots and stores the result: rank 0."""
        return self.rank == 0

    def make_scratch_folder_of_rank(self, out: Path) -> Path:
        """Return a folder for this rank's scratch files: the job's folder, or a subfolder."""
        if self.is_writing_rank:
            return out
        # Ranks of one host share the job's folder, and their scratch files have the same names.
        rank_folder = out / f"rank-{self.rank}"
        rank_folder.mkdir(parents=True, exist_ok=True)
        return rank_folder

    def get_slice_numbers_of_rank(self, slices: int) -> range:
        """Return the numbers of the batch slices that this rank computes.

        All ranks compute the single slice of a batch that is too small to cut.
        """
        if slices < self.count:
            return range(slices)
        # Exact, since `choose_slice_process_count` picks a divisor.
        each = slices // self.count
        return range(self.rank * each, (self.rank + 1) * each)

    def gather_slice_vectors(self, own_vectors: list[Tensor], slices: int) -> list[Tensor]:
        """Gather the vectors [d] of all batch slices in their order, given this rank's."""
        return own_vectors


class TorchrunRanks(SingleProcessRanks):
    """A rank in a group of processes started by torchrun: gloo on the CPU, NCCL on CUDA."""

    def __init__(self, device: torch.device) -> None:
        # Imported here: jobs of a single process do not need it.
        import torch.distributed as dist

        if device.type == "cuda":
            # NCCL expects each process on a device of its own.
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
        self._dist = dist
        self.rank, self.count = dist.get_rank(), dist.get_world_size()

    def gather_slice_vectors(self, own_vectors: list[Tensor], slices: int) -> list[Tensor]:
        """Gather the vectors [d] of all batch slices; end this process if another rank is gone."""
        mine = torch.cat(own_vectors)
        gathered = [torch.empty_like(mine) for _ in range(self.count)]
        try:
            # Gathered and not reduced: a reduction adds in an order that depends on the ranks.
            self._dist.all_gather(gathered, mine)
        except RuntimeError:
            # This is no error of this rank: an `error` event would end the job for good.
            os._exit(EXIT_RANK_LOST)
        each: list[Tensor] = [part for flat in gathered for part in flat.split(len(own_vectors[0]))]  # type: ignore[no-untyped-call]
        return each[:slices]  # where every rank computed the only slice, take rank 0's

    def leave_process_group(self) -> None:
        """Destroy this process's distributed process group."""
        self._dist.destroy_process_group()


class SharedControlRequestSource:
    """Distributes control requests (stop, snapshot …) from rank 0 to all ranks, with a step's
    gradients.

    Args:
        control: rank 0's pipe; on other ranks it never has a request.
    """

    def __init__(self, control: ControlRequestSource) -> None:
        self._control = control
        self._asked: JobControlRequest | None = None
        self.has_pending_request = False

    def take_control_request(self) -> JobControlRequest | None:
        """Return the control request that all ranks received with the last step, and clear it."""
        request, self._asked, self.has_pending_request = self._asked, None, False
        return request

    def take_request_number_to_send(self) -> int:
        """Take rank 0's pending control request to send it, as a number; 0 if there is none.

        The other ranks receive the number.
        """
        return (
            _REQUESTS.index(self._control.take_control_request())
            if self._control.has_pending_request
            else 0
        )

    def store_broadcast_request(self, number: int) -> None:
        """Store the control request that all ranks received from rank 0."""
        self._asked = _REQUESTS[number]
        self.has_pending_request = self._asked is not None


ALONE = SingleProcessRanks()
