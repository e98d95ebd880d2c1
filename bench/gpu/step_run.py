"""One step while it runs: its device, its folder, and the figures that it has measured so far."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch

from worker.devices.device_check import read_driver_version

Case = TypeVar("Case")
Figures = TypeVar("Figures")

PROCESSES = 8
"""At most so many at a time share one device: each holds half a gigabyte of it for its context."""


@dataclass
class GpuCheckStepRun:
    """Input of a step of the GPU check, with its record of figures and problems.

    Attributes:
        device: `cuda`, `cpu` or `sim`.
        tiny: sizes that show that the code runs, and no figure.
        folder: for files, removed after the step.
        report: the file that its figures are written to as soon as they are known.
    """

    device: str
    tiny: bool
    folder: Path
    report: Path
    _figures: dict[str, Any] = field(default_factory=dict)
    _problems: list[str] = field(default_factory=list)

    def record_measurement(self, name: str, value: Any) -> None:
        """Record a measured figure of the step; it is kept even if the step is killed later."""
        self._figures[name] = value
        self._write_step_report()

    def record_problem(self, problem: str) -> None:
        """Record a problem and continue; the step then counts as failed."""
        self._problems.append(problem)
        self._write_step_report()

    @property
    def problem_text(self) -> str | None:
        """All problems of the step so far, one per line; None without any."""
        return "\n".join(self._problems) or None

    def iterate_parallel_case_results(
        self, work: Callable[[Case], Figures], cases: Sequence[Case]
    ) -> Iterator[tuple[Case, Figures | str]]:
        """Run a function for each case in parallel; yield each case with its figures or its error.

        On a CUDA device several processes share the cases, since small networks leave it idle.
        `work` and the cases must then be importable and picklable.
        """
        processes = min(PROCESSES, (os.cpu_count() or 2) // 2, len(cases))
        if self.device != "cuda" or processes < 2:
            for case in cases:
                yield case, _run_case_safely(work, case)
            return
        with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
            futures = {pool.submit(_run_case_safely, work, case): case for case in cases}
            for future in as_completed(futures):
                error = future.exception()
                yield futures[future], _format_error(error) if error else future.result()

    def _write_step_report(self) -> None:
        content = {
            "machine": describe_machine(self.device),
            "figures": self._figures,
            "error": self.problem_text,
        }
        temporary = self.report.with_suffix(".new")
        temporary.write_text(json.dumps(content, ensure_ascii=False))
        temporary.replace(self.report)


def _run_case_safely(work: Callable[[Case], Figures], case: Case) -> Figures | str:
    try:
        return work(case)
    except Exception as error:  # noqa: BLE001 - the other cases go on; the caller records it
        return _format_error(error)


def _format_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]


def describe_machine(device: str) -> dict[str, Any]:
    """Describe this machine's hardware and software, for `bench.gpu.result.MachineDescription`."""
    cuda = device == "cuda" and torch.cuda.is_available()
    return {
        "device": device,
        "card": torch.cuda.get_device_name()
        if cuda
        else platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count() or 1,
        "driver": read_driver_version() if cuda else None,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if cuda else None,
    }
