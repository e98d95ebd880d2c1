"""The device of a worker's jobs: detected at the start, watched, and given up when lost.

A worker whose device is lost would fail job after job within seconds. It therefore claims no jobs
until a check in a process of its own finds the device working again. An error that a faulty program
can cause as well is examined by such a check at once: if the device works, the job is at fault.
"""

import threading
import time
from collections.abc import Callable

import structlog

from core import machine, telemetry
from core.contract.jobs.device_errors import may_device_error_be_program_fault
from core.jobs.workers import WorkerDevice
from core.scheduling.eligible import WorkerResources
from core.settings import Settings
from worker.devices.device_check import (
    DeviceReport,
    build_cpu_device_report,
    check_device_in_subprocess,
    is_gpu_requested_or_present,
)

log = structlog.get_logger(__name__)

RECHECK_S = (60.0, 120.0, 300.0, 600.0)
"""Seconds between checks of a lost device.

A device that is lost again and again is checked ever more rarely.
"""
ADVICE = (
    "Look at nvidia-smi and the kernel log (dmesg | grep -i xid), reset the GPU or restart the "
    "machine; the worker claims jobs again when the device works. PERENNIAL_DEVICE=cpu lets it "
    "learn on the CPU."
)


class DeviceWatch:
    """Watches the compute device (CPU or GPU) of a worker, and checks it again after errors.

    `update_readiness_to_claim` is for the claiming thread, and `device` may be read by any thread.

    Args:
        check: function that checks the device, see `worker.devices.device_check`.
    """

    def __init__(
        self, settings: Settings, check: Callable[[str], DeviceReport] = check_device_in_subprocess
    ) -> None:
        self._asked = settings.device
        self._check = check
        self._report = build_cpu_device_report(None)
        self._thread: threading.Thread | None = None
        self._check_at: float | None = (
            time.monotonic() if is_gpu_requested_or_present(self._asked) else None
        )
        self._losses = 0
        self.device = WorkerDevice("cpu")
        self.warning: str | None = None
        """Reason why jobs run on the CPU although the machine has a GPU driver.

        It is shown in their logs.
        """

    @property
    def claimable_resources(self) -> WorkerResources:
        """Kind of device and number of GPUs for which the worker may claim jobs."""
        return WorkerResources(self.device.kind, self.device.gpus)

    def update_readiness_to_claim(self) -> bool:
        """Return True if the worker's device works, so that jobs may be claimed.

        Start a check that is due, and adopt the result of one that has ended.
        """
        if self._thread is not None:
            if self._thread.is_alive():
                return False
            self._thread = None
            self._apply_device_report(self._report)
        elif self._check_at is not None and time.monotonic() >= self._check_at:
            # In a thread, since a check may take minutes and the worker must still stop when asked.
            self._thread = threading.Thread(
                target=self._run_device_check, name="device check", daemon=True
            )
            self._thread.start()
            return False
        return self.device.problem is None and self._check_at is None

    def is_device_lost(self, message: str) -> bool:
        """Return True if a job's device error was caused by a broken device and not by the job.

        A lost device is given up.

        Args:
            message: message of a job process that failed with the kind `device`.
        """
        if may_device_error_be_program_fault(message):
            report = self._check(self._asked)
            if report["problem"] is None:
                log.warning("the device works; the job is at fault", error=message)
                return False
            message = f"{message} (and then: {report['problem']})"
        self._abandon_device(message)
        return True

    def record_device_success(self) -> None:
        """Record that a job attempt ended well, so the device works."""
        self._losses = 0

    def _run_device_check(self) -> None:
        try:
            self._report = self._check(self._asked)
        except OSError as error:
            self._report = build_cpu_device_report(f"The device could not be checked: {error}")

    def _apply_device_report(self, report: DeviceReport) -> None:
        """Use the checked device for jobs, or give up the device if the check found a problem.

        A worker with `PERENNIAL_DEVICE=auto` runs its jobs on the CPU instead if the problem
        occurs at its start.
        """
        self._check_at = None
        problem = report["problem"]
        # A worker falls back to the CPU only at its start, not after a loss.
        must_work = self._asked == "cuda" or self.device.problem is not None
        if problem is not None and must_work:
            self._abandon_device(problem)
            return
        if problem is not None:
            self.warning = (
                f"This machine has an NVIDIA driver but no GPU that can be used, so jobs run on "
                f"the CPU: {problem} "
                "Restart the worker once the GPU works. Set PERENNIAL_DEVICE=cpu if the CPU is "
                "meant, or PERENNIAL_DEVICE=cuda to claim no jobs without a GPU."
            )
            log.warning("no usable GPU: jobs run on the CPU", reason=self.warning)
            return
        if self.device.problem is not None:
            log.info("device works again", device=report["device"], name=report["name"])
        telemetry.DEVICE_LOST.set(0)
        gpus = min(report["gpus"], machine.count_gpus() or report["gpus"])
        self.device = WorkerDevice(report["device"], gpus)

    def _abandon_device(self, problem: str) -> None:
        """Stop using a broken device, and schedule its next check."""
        pause_s = RECHECK_S[min(self._losses, len(RECHECK_S) - 1)]
        self._losses += 1
        self._check_at = time.monotonic() + pause_s
        kind = "cuda" if self._asked == "cuda" else self.device.kind
        self.device = WorkerDevice(kind, self.device.gpus, problem)
        telemetry.DEVICE_LOST.set(1)
        telemetry.DEVICE_LOSSES.inc()
        log.error(
            "device lost: no jobs are claimed", reason=problem, advice=ADVICE, check_again_s=pause_s
        )
