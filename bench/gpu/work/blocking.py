"""Calls in a training step for which the host waits for the device, by method and place."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import simulated_device
import torch
from step_counts import StepCounts

from bench.gpu.kit import (
    ROOT,
    Bench,
    choose_small_architecture,
    create_job_bench,
    list_methods_for_gpu_check,
    open_torch_device,
)
from bench.gpu.step_run import GpuCheckStepRun
from core.learning.methods import registry


class BlockingCallCounter:
    """Counts calls that block on the GPU, of which CUDA warns in its debug mode, by place in the
    code.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self.places: Counter[str] = Counter()

    @contextmanager
    def count_calls_within(self) -> Iterator[None]:
        """Count calls that block on the GPU within the block."""
        show = warnings.showwarning
        with warnings.catch_warnings():
            warnings.simplefilter("always")

            def count_warned_call(
                message: Warning | str,
                category: type[Warning],
                filename: str,
                lineno: int,
                file: TextIO | None = None,
                line: str | None = None,
            ) -> None:
                if "synchroniz" in str(message):
                    self.places[_format_source_place(Path(filename), lineno)] += 1
                else:
                    show(message, category, filename, lineno, file, line)

            warnings.showwarning = count_warned_call
            self._set_cuda_sync_warnings(True)
            try:
                yield
            finally:
                self._set_cuda_sync_warnings(False)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count blocking GPU calls within the block."""
        self._set_cuda_sync_warnings(False)
        try:
            yield
        finally:
            self._set_cuda_sync_warnings(True)

    def _set_cuda_sync_warnings(self, on: bool) -> None:
        if self._cuda:
            torch.cuda.set_sync_debug_mode("warn" if on else "default")


def record_blocking_calls(run: GpuCheckStepRun) -> None:
    """Record the blocking GPU calls per training step, and their places in the code."""
    device = open_torch_device(run.device)
    calls = BlockingCallCounter(device)
    counts = StepCounts(simulated_device.calls if run.device == simulated_device.NAME else calls)
    counts.watch()
    figures: dict[str, Any] = {}
    with calls.count_calls_within():
        for name in list_methods_for_gpu_check(run.tiny):
            method = registry.get_method(name)
            bench = create_job_bench(
                run.folder / name, run.device, choose_small_architecture(name, "small-resnet")
            )
            bench.scenario = "class" if "class" in method.scenarios else method.scenarios[0]
            try:
                figures[name] = _count_blocking_calls_of_method(bench, name, counts)
            except Exception as error:  # noqa: BLE001 - the other methods are counted
                run.record_problem(f"{name}: {type(error).__name__}: {error}"[:300])
            run.record_measurement("methods", figures)


def _count_blocking_calls_of_method(
    bench: Bench, method: str, counts: StepCounts
) -> dict[str, Any]:
    first = bench.learn_task(1, method=method)
    counts.taken()
    bench.learn_task(2, first, method=method)
    return counts.taken()


def _format_source_place(path: Path, line_number: int) -> str:
    return f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name}:{line_number}"
