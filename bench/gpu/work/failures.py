"""Failures of the device: one that is not visible, and memory that runs out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch

from bench.gpu.kit import SMALL, create_job_bench, open_torch_device
from bench.gpu.step_run import GpuCheckStepRun
from core.learning.training.failures import classify_job_error

ASK = """
import json, sys
from core.learning.training.failures import classify_job_error
from core.learning.precision import choose_torch_device
said = {"auto": str(choose_torch_device("auto"))}
try:
    choose_torch_device("cuda")
except Exception as error:
    said |= {"kind": classify_job_error(error), "message": str(error)}
print(json.dumps(said))
"""
ASK_S = 60
LARGE = 20_000
"""Images in one batch: more than a GPU holds of their activations."""
LEFT_BYTES = 64 << 20
"""Free memory in which a network fits and the libraries' workspaces do not."""


def record_absent_device_failure(run: GpuCheckStepRun) -> None:
    """Record the error for an absent device, and which device `auto` chooses."""
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=ASK_S,
        check=True,
    )
    measurements = json.loads(done.stdout)
    for name, value in measurements.items():
        run.record_measurement(name, value)
    if measurements.get("kind") != "device":
        run.record_problem(
            f"a device that is not visible: the kind is {measurements.get('kind')}, not device"
        )
    if measurements["auto"] != "cpu":
        run.record_problem(f"auto chose {measurements['auto']} without a visible device")


def record_memory_failures(run: GpuCheckStepRun) -> None:
    """Record how too large batches and full device memory fail, then check that learning still
    works.
    """
    device = open_torch_device(run.device)
    large = create_job_bench(
        run.folder / "large", run.device, {"name": "resnet50"}, size=64, n=LARGE
    )
    large_failure = _run_and_describe_failure(
        lambda: large.learn_task(1, method="finetune", batch_size=LARGE)
    )
    run.record_measurement(f"batch of {LARGE}", large_failure)
    if large_failure["kind"] != "memory":
        run.record_problem(
            f"batch of {LARGE}: the kind is {large_failure['kind']}, not memory: {large_failure['message']}"
        )
    torch.cuda.empty_cache()
    small = create_job_bench(run.folder / "small", run.device, SMALL["small-resnet"])
    free, _ = torch.cuda.mem_get_info(device)
    memory_filler = torch.empty(max(0, free - LEFT_BYTES), dtype=torch.uint8, device=device)
    full = _run_and_describe_failure(lambda: small.learn_task(1, method="finetune"))
    run.record_measurement("device full", full)
    if full["kind"] not in ("memory", "none"):  # small enough for what is left on some devices
        run.record_problem(
            f"device full: the kind is {full['kind']}, not memory: {full['message']}"
        )
    del memory_filler
    torch.cuda.empty_cache()
    later_failure = _run_and_describe_failure(lambda: small.learn_task(1, method="finetune"))
    run.record_measurement("afterwards", later_failure)
    if later_failure["kind"] != "none":
        run.record_problem(
            f"the process cannot learn after it had no memory: {later_failure['message']}"
        )


def _run_and_describe_failure(work: Callable[[], object]) -> dict[str, Any]:
    """Run a function; return the kind and message of its failure, kind `none` if it succeeds."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - the kind of whatever it is, is the question
        return {
            "kind": classify_job_error(error),
            "message": f"{type(error).__name__}: {error}"[:400],
        }
    return {"kind": "none", "message": ""}
