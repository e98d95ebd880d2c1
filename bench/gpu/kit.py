"""The tests' kit for the steps: small streams of tasks, learned by the product's job, and the
simulated device.

The runner puts the kit on the path of each step's process, and names the device in
`PERENNIAL_TEST_DEVICE`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import simulated_device
import torch
from conformance import SMALL
from streams import Bench, Learned
from torch import Tensor

from core.contract.jobs.control_request import JobControlRequest
from core.learning.methods import registry

__all__ = ["SMALL", "Bench", "Learned"]

ROOT = Path(__file__).resolve().parents[2]
NETWORK_PARTS = ("backbone", "displacement", "head", "expert")
TINY_METHODS = ("finetune", "der++", "ewc-online")


def open_torch_device(name: str) -> torch.device:
    """Open a torch device by name. Raises RuntimeError if this machine does not have it."""
    if name == simulated_device.NAME:
        simulated_device.install_device()
    if name == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(
            "CUDA is not available: run with --device cpu, or where a GPU is visible"
        )
    return torch.device(name)


def wait_for_device(device: torch.device) -> None:
    """Wait until the device has finished all work that was queued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def list_methods_for_gpu_check(tiny: bool) -> Sequence[str]:
    """Return the continual-learning methods to test: all, or a few of different kinds in a dry run."""
    return TINY_METHODS if tiny else tuple(registry.METHODS)


def create_job_bench(
    folder: Path, device: str, architecture: dict[str, Any], **settings: Any
) -> Bench:
    """Create a bench that runs jobs on RGB images, in a folder and on a device."""
    folder.mkdir(parents=True, exist_ok=True)
    return Bench(folder, architecture=architecture, device=device, channels=3, **settings)


def choose_small_architecture(method: str, family: str) -> dict[str, Any]:
    """Choose a small network of an architecture family that the method accepts."""
    accepted = registry.get_method(method).accepts.architectures
    return SMALL[family if accepted is None or family in accepted else accepted[0]]


def load_network_tensors(learned: Learned) -> dict[str, Tensor]:
    """Load all tensors of the network that a learning run has stored."""
    names = [
        part["name"] for part in learned.result["parts"] if part["name"].startswith(NETWORK_PARTS)
    ]
    return {f"{part}/{name}": t for part in names for name, t in learned.tensors(part).items()}


def list_task_accuracies(learned: Learned) -> list[float]:
    """Return the accuracy of a run's new version on each task, in order."""
    cells = sorted(
        (r for r in learned.result["results"] if r["version"] == "new"), key=lambda r: r["task"]
    )
    return [cell["correct"] / cell["total"] for cell in cells]


class TrainingStepClock:
    """Training control that measures the duration of `steps` steps after warm-up, then stops the
    job.

    The host waits for the device at the two ends alone, so that steps overlap as they do in a job.
    """

    def __init__(self, device: torch.device, warm: int, steps: int) -> None:
        self._device = device
        self._warm = warm
        self._steps = steps
        self._done = 0
        self._start = 0.0
        self._end = 0.0

    @property
    def has_pending_request(self) -> bool:
        """Count a finished training step; True once enough steps were measured."""
        self._done += 1
        if self._done in (self._warm, self._warm + self._steps):
            wait_for_device(self._device)
            self._start, self._end = self._end, time.perf_counter()
        return self._done >= self._warm + self._steps

    def take_control_request(self) -> JobControlRequest:
        """Request that the training job stops."""
        return JobControlRequest.STOP

    @property
    def mean_step_seconds(self) -> float:
        """Mean seconds of the measured training steps. Raises RuntimeError if there were too few."""
        if self._done < self._warm + self._steps:
            raise RuntimeError(f"the run took {self._done} steps, not {self._warm + self._steps}")
        return (self._end - self._start) / self._steps
