"""The benchmarks of methods on this device, each run as its own program; their lines are the
figures.
"""

from __future__ import annotations

import subprocess
import sys

from bench.gpu.kit import ROOT
from bench.gpu.step_run import GpuCheckStepRun

METHODS = ("ewc", "lwf", "er", "der++", "gem", "dlcft", "dne")


def record_method_costs(run: GpuCheckStepRun) -> None:
    """Record training cost on the device of one method of each kind, relative to fine-tuning."""
    full = ["--methods", *METHODS, "--rounds", "1", "--threads", "8"]
    tiny = [
        "--methods",
        "finetune",
        "--rounds",
        "1",
        "--images",
        "16",
        "--epochs",
        "1",
        "--batch",
        "4",
    ]
    _run_and_record_program(run, "costs", full, [*tiny, "--threads", "1"])


def record_dlcft_costs(run: GpuCheckStepRun) -> None:
    """Record the cost of training steps of the linearised method DLCFT, relative to plain ones."""
    tiny = ["--networks", "slim-resnet18", "--rounds", "1", "--batch", "2", "--size", "8"]
    _run_and_record_program(run, "dlcft_cost", ["--networks", "resnet18", "--batch", "128"], tiny)


def record_dne_costs(run: GpuCheckStepRun) -> None:
    """Record the cost of the method DNE with packed experts, relative to unpacked ones."""
    _run_and_record_program(
        run, "dne_cost", ["--batch", "128"], ["--tasks", "3", "--rounds", "1", "--batch", "2"]
    )


def record_olor_step_costs(run: GpuCheckStepRun) -> None:
    """Record the cost of optimizer steps with OLOR, relative to plain optimizers of torch."""
    _run_and_record_program(
        run, "optimizer_step", ["--batch", "128"], ["--rounds", "1", "--batch", "2", "--size", "8"]
    )


def _run_and_record_program(
    run: GpuCheckStepRun, program: str, full: list[str], tiny: list[str]
) -> None:
    """Run a benchmark program of `bench.methods`, and record its printed lines."""
    arguments = tiny if run.tiny else full
    command = [sys.executable, "-m", f"bench.methods.{program}", "--device", run.device, *arguments]
    run.record_measurement("command", " ".join(command[1:]))
    lines: list[str] = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            lines.append(line.rstrip())
            run.record_measurement("lines", lines)
    if process.returncode:
        run.record_problem(f"bench.methods.{program} ended with status {process.returncode}")
