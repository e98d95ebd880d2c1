"""The same bits again: repeated, and killed and resumed; and what deterministic kernels cost."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gpu.kit import Learned, TrainingStepClock, create_job_bench, open_torch_device
from bench.gpu.step_run import GpuCheckStepRun
from core.learning.methods import registry

METHODS: dict[str, dict[str, Any]] = {
    "finetune": {"name": "finetune"},
    "der++": {"name": "der++"},
    "ewc-online (kfac)": {"name": "ewc-online", "curvature": "kfac", "lambda": 1.0},
    "dlcft": {"name": "dlcft"},
    "dne": {"name": "dne"},
}
NETWORKS = ("resnet20", "small-cnn", "vit", "dne")
"""Three for all methods that take any network; `dne` is the one that the method of this name takes.
"""
IMAGES, BATCH, EPOCHS = 96, 8, 2  # 24 steps
SNAPSHOT_AT, KILL_AT = 13, 15
PRICED = ("resnet20", "small-cnn", "vit")
PRICE_STEPS, PRICE_BATCH, WARM = 50, 128, 10


@dataclass(frozen=True)
class RepeatabilityCase:
    """A method on a network, with deterministic kernels or not, to test repeatability of training."""

    method: str
    network: str
    device: str
    deterministic: bool

    @property
    def case_name(self) -> str:
        """Name of the tested method and network in the recorded figures."""
        return (
            f"{self.method} on {self.network}{'' if self.deterministic else ', not deterministic'}"
        )


def record_repeatability(run: GpuCheckStepRun) -> None:
    """Record for each case if repeated and resumed training gives bit-equal weights.

    Equal bits are required wherever the recipe does not give them up.
    """
    methods = ("finetune", "der++") if run.tiny else tuple(METHODS)
    networks = ("small-cnn",) if run.tiny else NETWORKS
    cases = [
        RepeatabilityCase(method, network, run.device, kind)
        for kind in (True, False)
        for method in methods
        for network in networks
        if _is_network_accepted_by_method(method, network)
    ]
    figures: dict[str, Any] = {}
    for case, case_result in run.iterate_parallel_case_results(
        compare_repeated_and_resumed_training, cases
    ):
        figures[case.case_name] = case_result
        if isinstance(case_result, str):
            run.record_problem(f"{case.case_name}: {case_result}")
        elif case.deterministic and not (case_result["repeat"] and case_result["resume"]):
            run.record_problem(f"{case.case_name}: other bits in {', '.join(case_result['parts'])}")
        run.record_measurement("cases", dict(sorted(figures.items())))
    record_determinism_cost(run)


def _is_network_accepted_by_method(method: str, network: str) -> bool:
    accepted = registry.get_method(METHODS[method]["name"]).accepts.architectures
    return network != "dne" if accepted is None else network in accepted


def compare_repeated_and_resumed_training(case: RepeatabilityCase) -> dict[str, Any]:
    """Learn a task three times, twice uninterrupted and once killed and resumed, and compare
    weights.
    """
    open_torch_device(case.device)
    recipe: dict[str, Any] = {
        "method": METHODS[case.method],
        "epochs": EPOCHS,
        "batch_size": BATCH,
        "deterministic": case.deterministic,
    }
    with tempfile.TemporaryDirectory() as folder:
        bench = create_job_bench(
            Path(folder), case.device, {"name": case.network}, size=16, n=IMAGES, n_held_out=16
        )
        first = bench.learn_task(1, **recipe)
        second, repeated = (bench.learn_task(2, first, **recipe) for _ in range(2))
        resumed = bench.resumed(2, first, SNAPSHOT_AT, KILL_AT, **recipe)
        return _compare_repeated_runs(second, repeated, resumed)


def _compare_repeated_runs(second: Learned, repeated: Learned, resumed: Learned) -> dict[str, Any]:
    digests = second.digests
    other = {
        part
        for run in (repeated, resumed)
        for part in digests.keys() | run.digests.keys()
        if digests.get(part) != run.digests.get(part)
    }
    return {
        "repeat": repeated.digests == digests,
        "resume": resumed.digests == digests,
        "parts": sorted(other),
        "nondeterministic": second.result["environment"]["nondeterministic"],
    }


def record_determinism_cost(run: GpuCheckStepRun) -> None:
    """Record milliseconds per training step with and without deterministic kernels."""
    device = open_torch_device(run.device)
    warm, steps, batch = (1, 2, BATCH) if run.tiny else (WARM, PRICE_STEPS, PRICE_BATCH)
    figures: dict[str, Any] = {}
    for network in PRICED[1:2] if run.tiny else PRICED:
        folder = run.folder / f"price-{network}"
        bench = create_job_bench(
            folder, run.device, {"name": network}, size=32, n=batch * (warm + steps + 1)
        )
        took = {}
        for deterministic in (True, False):
            clock = TrainingStepClock(device, warm, steps)
            spec = bench.spec(
                1,
                None,
                method="finetune",
                epochs=1,
                batch_size=batch,
                augment="none",
                deterministic=deterministic,
            )
            bench.learn(spec, clock)
            took[deterministic] = clock.mean_step_seconds
        figures[network] = {
            "deterministic ms": round(1000 * took[True], 3),
            "not deterministic ms": round(1000 * took[False], 3),
            "price": round(took[True] / took[False], 3),
        }
        run.record_measurement("price of deterministic kernels", figures)
