"""The processes of a running service, and the most memory that each has taken."""

import threading
from pathlib import Path

import psutil

from tests.descendants import list_descendants

_PROCESSES = {
    "api": "api.app:create_app",
    "helper": "core.predictions.helper.helper",
    "image decoder": "core.predictions.helper.decoder",
    "decoder": "core.ingest.decoding.decoder",
    "worker": "worker.",
}


class Memory(threading.Thread):
    """Looks at the high-water mark of each process of a service ten times a second, from its start
    on.
    """

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self.peaks: dict[str, float] = {}
        self._root = root
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(0.1):
            for process in list_descendants(self._root):
                name = find_role(process)
                if name is not None:
                    self.peaks[name] = max(self.peaks.get(name, 0.0), _read_peak_mb(process.pid))

    def stop(self) -> dict[str, float]:
        """Peaks in MiB by process."""
        self._end.set()
        self.join()
        return self.peaks


def find_role(process: psutil.Process) -> str | None:
    """Return which part of the service a process is."""
    try:
        words = " ".join(process.cmdline())
    except psutil.Error:
        return None
    return next((name for name, mark in _PROCESSES.items() if mark in words), None)


def find_pids(root: int) -> dict[str, int]:
    """Return the processes that must live through the corpus."""
    found = {find_role(p): p.pid for p in list_descendants(root)}
    return {name: pid for name, pid in found.items() if name in ("api", "helper")}


def _read_peak_mb(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    line = next((line for line in status.splitlines() if line.startswith("VmHWM")), "VmHWM: 0 kB")
    return int(line.split()[1]) / 1024
