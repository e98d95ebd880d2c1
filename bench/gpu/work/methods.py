"""Every method in every scenario: two tasks on the device beside the same two in float32 on the
CPU.
"""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gpu.kit import (
    Learned,
    choose_small_architecture,
    create_job_bench,
    list_methods_for_gpu_check,
    list_task_accuracies,
    load_network_tensors,
    open_torch_device,
)
from bench.gpu.step_run import GpuCheckStepRun
from core.learning.methods import registry

HELD_OUT = 32
MAX_ACCURACY_DROP = 0.35
"""Of the mean over both tasks, 32 held-out images each. A method that learns nothing drops by more;
rounding alone, amplified over the steps, drops some by up to this: so does a second thread on a
CPU.
"""


@dataclass(frozen=True)
class MethodComparisonCase:
    """A continual-learning method in a scenario, to compare between devices."""

    method: str
    scenario: str
    device: str

    @property
    def case_name(self) -> str:
        """Name of the compared method and scenario in the recorded figures."""
        return f"{self.method}, {self.scenario}"


def record_method_differences_from_cpu(run: GpuCheckStepRun) -> None:
    """Record seconds, accuracies and weight distances of each method on GPU and CPU."""
    cases = [
        MethodComparisonCase(name, scenario, run.device)
        for name in list_methods_for_gpu_check(run.tiny)
        for scenario in registry.get_method(name).scenarios
        if not run.tiny or scenario == "class"
    ]
    figures: dict[str, Any] = {}
    for case, case_result in run.iterate_parallel_case_results(compare_method_on_devices, cases):
        figures[case.case_name] = case_result
        if isinstance(case_result, str):
            run.record_problem(f"{case.case_name}: {case_result}")
        else:
            for precision, row in case_result.items():
                if row["accuracy drop"] > MAX_ACCURACY_DROP:
                    run.record_problem(
                        f"{case.case_name}, {precision}: accuracies {row['device']}, on the CPU "
                        f"{row['cpu']}"
                    )
        run.record_measurement("cases", dict(sorted(figures.items())))


def compare_method_on_devices(case: MethodComparisonCase) -> dict[str, Any]:
    """Learn two tasks with a method on the GPU (two number formats) and on the CPU.

    `weights`: ‖device − CPU‖ over ‖CPU‖ of all weights after the second task.
    """
    open_torch_device(case.device)
    with tempfile.TemporaryDirectory() as folder:
        expected = _learn_two_tasks(case, "cpu", Path(folder) / "cpu", "float32")
        rows = {}
        for precision in ("auto", "float32"):
            start = time.perf_counter()
            learned = _learn_two_tasks(case, case.device, Path(folder) / precision, precision)
            rows[precision] = {
                "seconds": round(time.perf_counter() - start, 2),
                **_compare_learned_with_cpu_result(learned, expected),
            }
        return rows


def _learn_two_tasks(
    case: MethodComparisonCase, device: str, folder: Path, precision: str
) -> Learned:
    bench = create_job_bench(
        folder,
        device,
        choose_small_architecture(case.method, "small-resnet"),
        scenario=case.scenario,
        n_held_out=HELD_OUT,
    )
    return bench.stream(2, method=case.method, precision=precision)


def _compare_learned_with_cpu_result(learned: Learned, expected: Learned) -> dict[str, Any]:
    pairs = list(zip(list_task_accuracies(learned), list_task_accuracies(expected), strict=True))
    return {
        "weights": round(compute_relative_weight_distance(learned, expected), 6),
        "device": [round(a, 3) for a, _ in pairs],
        "cpu": [round(b, 3) for _, b in pairs],
        "accuracy drop": round(sum(b - a for a, b in pairs) / len(pairs), 3),
    }


def compute_relative_weight_distance(learned: Learned, expected: Learned) -> float:
    """Return the relative distance of two sets of weights, ‖learned − expected‖ / ‖expected‖.

    Raises:
        ValueError: the tensors have other names, or are not finite.
    """
    weights, expected_weights = load_network_tensors(learned), load_network_tensors(expected)
    if weights.keys() != expected_weights.keys():
        raise ValueError(
            f"other tensors than on the CPU: {sorted(weights.keys() ^ expected_weights.keys())[:5]}"
        )
    names = [name for name, tensor in expected_weights.items() if tensor.is_floating_point()]
    apart = sum(
        float((weights[n].double() - expected_weights[n].double()).square().sum()) for n in names
    )
    size = sum(float(expected_weights[n].double().square().sum()) for n in names)
    if not math.isfinite(apart):
        raise ValueError("weights are not finite")
    return math.sqrt(apart / max(size, 1e-30))
