"""Runs steps one after the other, each in processes of its own under a time limit, into one JSON
file.

A step that fails or takes too long is recorded, and the next one begins. A run that is cut short
goes on where it was: steps that ended well on the same kind of device at the same size are not
repeated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.gpu.result import (
    GpuCheckResult,
    GpuCheckStepResult,
    MachineDescription,
    read_gpu_check_results,
    write_gpu_check_results,
)
from bench.gpu.steps import (
    BUDGETS_S,
    DEVICES,
    Device,
    GpuCheckStep,
    Program,
    list_steps_of_gpu_check_program,
    render_gpu_check_step_table,
)

ROOT = Path(__file__).resolve().parents[2]
KIT = ROOT / "tests" / "core" / "learning" / "kit"
LOG_LINES = 30
MIN_LEFT_S = 5.0
"""A step is not started with less than this left of the budget: its imports alone take as long."""
SLOWDOWN = 30
"""Limits and budgets are those of a GPU machine; a dry run on few cores may take so many times
longer.
"""
ENVIRONMENT = {
    "PYTHONUNBUFFERED": "1",
    # Without a workspace of fixed size cuBLAS may sum in another order at each call.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}


@dataclass(frozen=True)
class GpuCheckOptions:
    """Command-line options of a GPU check: device, size, budget, output file.

    Attributes:
        tiny: sizes that show that the code runs, and no figure.
        out: the result file.
        budget_s: seconds for all steps together.
        again: True repeats steps that ended well.
    """

    device: Device
    tiny: bool
    out: Path
    budget_s: float
    again: bool = False


def get_time_limit_factor_of_device(device: Device) -> int:
    """Return the factor by which time limits grow on a device that is slower than a GPU."""
    return 1 if device == "cuda" else SLOWDOWN


def add_common_options(parser: argparse.ArgumentParser, program: Program) -> None:
    """Add the command-line options that all GPU checks share."""
    names = [step.name for step in list_steps_of_gpu_check_program(program)]
    parser.add_argument("--device", choices=DEVICES, default="cuda")
    parser.add_argument(
        "--tiny", action="store_true", help="smallest sizes: shows that the code runs"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("gpu.json"), help="result file; goes on from it"
    )
    parser.add_argument(
        "--resume", type=Path, help="an earlier result file to go on from, if --out is new"
    )
    parser.add_argument(
        "--budget",
        type=float,
        help=f"seconds of all steps; default: {BUDGETS_S[program]} on cuda, {SLOWDOWN} times as "
        f"many elsewhere",
    )
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="STEP", help=", ".join(names)
    )
    parser.add_argument("--again", action="store_true", help="repeat steps that ended well")
    parser.add_argument(
        "--plan", action="store_true", help="print the steps with their seconds, and end"
    )


def run_gpu_check_steps(program: Program, arguments: argparse.Namespace) -> int:
    """Run the steps of a GPU check, and print a line for each.

    Returns:
        The exit status: 1 where a step failed, took too long or had no time.
    """
    if arguments.plan:
        print(render_gpu_check_step_table())
        return 0
    if arguments.resume is not None and arguments.resume.exists() and not arguments.out.exists():
        write_gpu_check_results(arguments.out, read_gpu_check_results(arguments.resume))
    budget_s = arguments.budget or BUDGETS_S[program] * get_time_limit_factor_of_device(
        arguments.device
    )
    options = GpuCheckOptions(
        arguments.device, arguments.tiny, arguments.out, budget_s, arguments.again
    )
    # Ended by `timeout`, too, a call must leave no step behind that holds the device.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    steps = [
        step for step in list_steps_of_gpu_check_program(program) if step.name in arguments.only
    ]
    result = run_steps_within_budget(steps, options)
    well = ("ok", "not run")
    return int(
        any(
            step.name not in result.steps or result.steps[step.name].status not in well
            for step in steps
        )
    )


def run_steps_within_budget(
    steps: Sequence[GpuCheckStep], options: GpuCheckOptions
) -> GpuCheckResult:
    """Run steps of a GPU check within the time budget; steps without time left are skipped."""
    deadline = time.monotonic() + options.budget_s
    result = read_gpu_check_results(options.out)
    for step in steps:
        if result.is_step_done(step.name, options.device, options.tiny) and not options.again:
            print(f"{step.name:16} done before", flush=True)
            continue
        left_s = deadline - time.monotonic()
        if left_s < MIN_LEFT_S:
            print(f"{step.name:16} no time left", flush=True)
            continue
        outcome = run_step_with_limit(
            step,
            options,
            min(step.limit_s * get_time_limit_factor_of_device(options.device), left_s),
        )
        result = result.copy_with_step(step.name, outcome)
        write_gpu_check_results(options.out, result)
        reason = f": {outcome.error.splitlines()[-1]}" if outcome.error else ""
        print(f"{step.name:16} {outcome.status}, {outcome.seconds:.0f} s{reason}", flush=True)
    return result


def run_step_with_limit(
    step: GpuCheckStep, options: GpuCheckOptions, limit_s: float
) -> GpuCheckStepResult:
    """Run one step of a GPU check in its own process group, which is killed after `limit_s`
    seconds.
    """
    if options.device not in step.devices:
        return GpuCheckStepResult(
            status="not run",
            seconds=0,
            limit_seconds=limit_s,
            device=options.device,
            tiny=options.tiny,
            error=f"runs on {' and '.join(step.devices)} alone: {step.why}",
        )
    folder = Path(tempfile.mkdtemp(prefix="perennial-gpu-"))
    report, log = folder / "report.json", folder / "log"
    command = [
        *(sys.executable, "-m", "bench.gpu.one_step", step.work),
        *("--device", options.device, "--folder", str(folder), "--report", str(report)),
        *(["--tiny"] if options.tiny else []),
    ]
    start = time.monotonic()
    try:
        with log.open("wb") as output:
            status = _run_process_group(command, output.fileno(), options.device, limit_s)
        seconds = time.monotonic() - start
        return _build_step_outcome(status, report, log, seconds, limit_s, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run_process_group(
    command: Sequence[str], output: int, device: Device, limit_s: float
) -> int | None:
    """Run a command; return its exit status, or None if it was killed after the limit."""
    folders = (str(ROOT), str(ROOT / "client"), str(KIT), os.environ.get("PYTHONPATH"))
    path = os.pathsep.join(filter(None, folders))
    environment = {**ENVIRONMENT, **os.environ, "PYTHONPATH": path, "PERENNIAL_TEST_DEVICE": device}
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # Also after a good end: a process that a step left behind would hold memory of the device.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _build_step_outcome(
    status: int | None,
    report: Path,
    log: Path,
    seconds: float,
    limit_s: float,
    options: GpuCheckOptions,
) -> GpuCheckStepResult:
    """Build the outcome of a GPU-check step from its exit status and its report file."""
    content = json.loads(report.read_text()) if report.exists() else {}
    machine = content.get("machine")
    error = content.get("error")
    if status is None:
        error = f"took longer than its limit of {limit_s:.0f} s"
    elif status != 0 and error is None:
        error = f"its process ended with status {status}"
    return GpuCheckStepResult(
        status="timed out" if status is None else "ok" if error is None else "failed",
        seconds=round(seconds, 1),
        limit_seconds=round(limit_s, 1),
        device=options.device,
        tiny=options.tiny,
        machine=None if machine is None else MachineDescription.from_json(machine),
        figures=content.get("figures", {}),
        error=error,
        log=log.read_text(errors="replace").splitlines()[-LOG_LINES:] if error else [],
    )
