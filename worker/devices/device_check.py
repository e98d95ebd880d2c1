"""Check of the device, in its own process: `python -m worker.devices.device_check auto|cpu|cuda`.

It imports torch and opens CUDA, which the worker and its zygote must not do, computes a product on
the device, and prints a JSON line (`DeviceReport`).
"""

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from core import failpoints, machine
from core.processes import helper_process

CHECK_S = 120.0
"""Seconds for a check: a cold disk, or a GPU without persistence mode, may be slow."""
ERROR_CHARACTERS = 500
_DRIVER = Path("/proc/driver/nvidia/version")
_DRIVER_VERSION = re.compile(r"\b\d{3}\.\d+(\.\d+)?\b")
_SIDE = 256
"""Rows and columns of the multiplied matrices."""


class DeviceReport(TypedDict):
    """Result of checking a machine's compute device: kind, GPUs, problem, versions.

    Attributes:
        device: cpu or cuda.
        gpus: number of CUDA devices.
        problem: reason why CUDA cannot be used; None if it can, or if the check did not look for
            it.
        name: name of the first GPU.
        driver, torch: versions.
        free_bytes, total_bytes: memory of the first GPU; None without one.
    """

    device: str
    gpus: int
    problem: str | None
    name: str | None
    driver: str | None
    torch: str | None
    free_bytes: int | None
    total_bytes: int | None


def check_device_in_subprocess(device: str) -> DeviceReport:
    """Check a compute device in a separate process, which may crash.

    Args:
        device: PERENNIAL_DEVICE: auto, cpu or cuda.
    """
    try:
        # A broken device can hang or crash the process that opens it.
        done = helper_process.run_module_in_helper_process(
            "worker.devices.device_check", device, CHECK_S
        )
    except subprocess.TimeoutExpired:
        return build_cpu_device_report(f"The device does not answer within {CHECK_S:.0f} s.")
    try:
        # Libraries may print lines of their own before the report.
        report: DeviceReport = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        last_line = (done.stderr.strip().splitlines() or ["it says nothing"])[-1][:ERROR_CHARACTERS]
        return build_cpu_device_report(
            f"The check of the device ended with status {done.returncode}: {last_line}"
        )
    return report


def read_driver_version() -> str | None:
    """Return the version of the NVIDIA driver, such as 580.159.04; None if none is loaded."""
    try:
        match = _DRIVER_VERSION.search(_DRIVER.read_text())
    except OSError:
        return None
    return match[0] if match else None


def check_device_in_this_process(device: str) -> DeviceReport:
    """Check a compute device in this process."""
    try:
        failpoints.raise_device_error_in_test()
        if device == "cpu":
            return build_cpu_device_report(None)
        return _check_cuda()
    except Exception as error:  # noqa: BLE001 - any error of torch or the driver is reported
        return build_cpu_device_report(f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS])


def _check_cuda() -> DeviceReport:
    """Check that a GPU is visible, torch has kernels for it, and it computes correctly."""
    import torch

    report = build_cpu_device_report(None)
    report["torch"] = str(torch.__version__)
    if torch.version.cuda is None:
        report["problem"] = (
            f"torch {torch.__version__} is a CPU build. Install a CUDA build of the same version"
            f"{'' if read_driver_version() else ' and the NVIDIA driver'}, or set PERENNIAL_DEVICE=cpu."
        )
        return report
    if not torch.cuda.is_available():
        torch.cuda.init()  # type: ignore[no-untyped-call]  # raises with the reason
    count = torch.cuda.device_count()
    if not count:
        report["problem"] = (
            "No GPU is visible to this process. Check CUDA_VISIBLE_DEVICES and the devices of the "
            "container."
        )
        return report
    name, capability = torch.cuda.get_device_name(0), torch.cuda.get_device_capability(0)
    report["problem"] = explain_missing_gpu_kernels(name, capability, torch.cuda.get_arch_list())
    if report["problem"] is not None:
        return report
    side = torch.ones(_SIDE, _SIDE, device="cuda")
    # A whole number that float32 holds exactly, so that any difference is an error of the device.
    total = float((side @ side).sum())
    if total != float(_SIDE**3):
        report["problem"] = f"The GPU computes {total} where {_SIDE**3} is right."
        return report
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    report |= {
        "device": "cuda",
        "gpus": count,
        "name": name,
        "free_bytes": free_bytes,
        "total_bytes": total_bytes,
    }
    return report


def explain_missing_gpu_kernels(
    name: str, capability: tuple[int, int], built_for: Sequence[str]
) -> str | None:
    """Explain why the installed torch has no kernels for a GPU; None if it has.

    Args:
        name: name of the GPU.
        capability: its compute capability.
        built_for: torch's list, such as `sm_90` (machine code, valid for later devices of the same
            major number too) and `compute_90` (code that the driver compiles for any later device).
    """
    for entry in built_for:
        kind, _, digits = entry.partition("_")
        # The name may end with a letter, as `sm_90a` does.
        number = int("".join(itertools.takewhile(str.isdigit, digits)))
        # The last digit is the minor number: 90 is 9.0, and 120 is 12.0.
        built = divmod(number, 10)
        if built <= capability and (kind == "compute" or built[0] == capability[0]):
            return None
    major, minor = capability
    return (
        f"torch is built for {', '.join(built_for)}, and {name} has compute capability "
        f"{major}.{minor}. "
        "Install a build of torch that supports it, or set PERENNIAL_DEVICE=cpu."
    )


def build_cpu_device_report(problem: str | None) -> DeviceReport:
    """Return the device report of a machine whose jobs run on the CPU.

    Args:
        problem: reason why they do not run on a GPU, if one was looked for.
    """
    return {
        "device": "cpu",
        "gpus": 0,
        "problem": problem,
        "name": None,
        "driver": read_driver_version(),
        "torch": None,
        "free_bytes": None,
        "total_bytes": None,
    }


def is_gpu_requested_or_present(device: str) -> bool:
    """Return True if a GPU is requested, or the machine has a driver for one."""
    return device == "cuda" or (device == "auto" and machine.can_open_cuda())


if __name__ == "__main__":
    print(json.dumps(check_device_in_this_process(sys.argv[1])))
