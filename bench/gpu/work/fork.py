"""Jobs forked from the worker's zygote, one of them killed in mid-kernel, and the memory
afterwards.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import torch

from bench.gpu.kit import SMALL, create_job_bench, open_torch_device
from bench.gpu.step_run import GpuCheckStepRun
from bench.job_run import complete_job_spec
from worker.attempts.child import ForkServer, JobProcess
from worker.devices.cuda_free import find_open_nvidia_devices

CHILD_S = 20.0
"""After so long without its end a child counts as hung."""
KILLED = 1
"""Of three children, counted from 0."""
SHARE = 0.9
"""Of the device's memory, that can be allocated once the children are gone."""


def record_forked_job_checks(run: GpuCheckStepRun) -> None:
    """Check forked jobs on the GPU: run three, kill the second, and check that its memory is free
    again.
    """
    zygote = ForkServer()
    try:
        zygote.wait_until_ready()
        opened = _list_nvidia_devices_open_in_process(zygote.pid)
        run.record_measurement("devices that the zygote has open", opened)
        if opened:
            run.record_problem(
                f"the zygote has opened {', '.join(opened)}: no child can open CUDA after that"
            )
        outcomes = []
        for number in range(3):
            outcomes.append(_run_forked_job(zygote, run, number, kill=number == KILLED))
            run.record_measurement("children", outcomes)
    finally:
        zygote.end_fork_server()
    for number, outcome in enumerate(outcomes):
        expected = "killed" if number == KILLED else "done"
        if outcome["ended"] != expected:
            run.record_problem(
                f"child {number} ended with {outcome['ended']}, not {expected}: "
                f"{outcome['message']}"
            )
    if run.device == "cuda":
        _require_most_gpu_memory_is_free(run)


def _list_nvidia_devices_open_in_process(pid: int) -> list[str]:
    """Return the NVIDIA devices that a process has open."""
    files = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed since it was listed
            files.append(str(entry.readlink()))
    return find_open_nvidia_devices(files)


def _run_forked_job(
    zygote: ForkServer, run: GpuCheckStepRun, number: int, kill: bool
) -> dict[str, Any]:
    """Run a job in a forked child; with `kill`, kill it when its training begins."""
    small = run.tiny or run.device != "cuda"
    architecture = SMALL["mlp"] if small else {"name": "resnet18"}
    # A forked child knows no device that was made known here.
    device = "cpu" if run.device == "sim" else run.device
    bench = create_job_bench(
        run.folder / f"child-{number}", device, architecture, size=8 if small else 32, n=64
    )
    # Enough epochs that a child is in the midst of its steps when it is killed.
    spec = bench.spec(1, None, method="finetune", epochs=400 if kill else 2)
    Path(spec["out"]).mkdir(parents=True, exist_ok=True)
    file = bench.folder / "spec.json"
    file.write_text(json.dumps(complete_job_spec(spec).to_json()))
    start = time.monotonic()
    child = zygote.fork_child(file)
    first_step_s, last = None, {"event": "nothing", "message": ""}
    while not child.ended and time.monotonic() - start < CHILD_S:
        for event in child.read_child_events(1.0):
            if event.event == "progress" and first_step_s is None:
                first_step_s = round(time.monotonic() - start, 2)
                if kill:
                    child.kill_process()
            if event.event in ("done", "error", "stopped"):
                last = event.to_json()
    return {
        "seconds to the first report": first_step_s,
        **_await_and_describe_child_end(child, kill, last),
    }


def _await_and_describe_child_end(
    child: JobProcess, kill: bool, last: dict[str, Any]
) -> dict[str, Any]:
    status = child.close_and_wait()
    ended = (
        "killed" if kill and status == -9 else "done" if last["event"] == "done" else last["event"]
    )
    return {"ended": ended, "message": str(last.get("message", ""))[:400]}


def _require_most_gpu_memory_is_free(run: GpuCheckStepRun) -> None:
    """Allocate 90 % of the GPU's memory, which fails if ended children still hold it."""
    device = open_torch_device(run.device)
    free, total = torch.cuda.mem_get_info(device)
    run.record_measurement("free GB after the children", round(free / 1e9, 2))
    block = torch.empty(int(SHARE * total), dtype=torch.uint8, device=device)
    block.fill_(1)
    torch.cuda.synchronize(device)
    run.record_measurement("GB allocated", round(block.nbytes / 1e9, 2))
