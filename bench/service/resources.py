"""Resources of a service's processes over time: memory, file descriptors, threads; and whether it
grows.

The slope is a least-squares line through the means of equal blocks after a warm-up. Neighbouring
samples resemble each other, means of blocks hardly do, so the line's standard error says how far
the slope can be trusted.
"""

import math
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

BLOCKS = 12
T_95 = 2.228
"""Two-sided 95 % quantile of Student's t with BLOCKS − 2 degrees of freedom."""
NAMES = {
    "api.app": "api",
    "worker.loop": "worker",
    "worker.attempts.zygote": "zygote",
    "core.predictions.helper.helper": "predict helper",
}
"""A word of the command line to the name of the process."""


@dataclass(frozen=True)
class ResourceSample:
    """Sampled resources of a process: time, resident memory, open files, threads."""

    at: float
    rss: int
    fds: int
    threads: int


@dataclass(frozen=True)
class GrowthSlope:
    """Fitted growth of a resource per hour, with its 95 % uncertainty."""

    per_hour: float
    uncertainty: float
    first: float
    last: float

    def is_significantly_above(self, limit: float) -> bool:
        """Return True if the growth is significantly above `limit`."""
        return self.per_hour - self.uncertainty > limit


def fit_growth_slope(at: Sequence[float], values: Sequence[float]) -> GrowthSlope:
    """Fit the growth of values over time, with its uncertainty."""
    size = len(at) / BLOCKS
    cuts = [slice(round(b * size), round((b + 1) * size)) for b in range(BLOCKS)]
    x = [statistics.fmean(at[cut]) for cut in cuts]
    y = [statistics.fmean(values[cut]) for cut in cuts]
    regression = statistics.linear_regression(x, y)
    residuals = [
        b - (regression.slope * a + regression.intercept) for a, b in zip(x, y, strict=True)
    ]
    spread = sum((a - statistics.fmean(x)) ** 2 for a in x)
    error = math.sqrt(sum(r * r for r in residuals) / (BLOCKS - 2) / spread)
    ends = (
        regression.intercept + regression.slope * x[0],
        regression.intercept + regression.slope * x[-1],
    )
    return GrowthSlope(regression.slope * 3600, T_95 * error * 3600, *ends)


class ProcessResourceWatch:
    """Samples the resources of all processes under a launcher while the block runs.

    Job children are forks of the zygote and come and go: only the worker's own zygote is watched. A
    process that was replaced starts again under `restarts`.
    """

    def __init__(self, launcher: int, period_s: float = 2.0) -> None:
        self.samples: dict[str, list[ResourceSample]] = {}
        self.restarts: dict[str, int] = {}
        self._root = psutil.Process(launcher)
        self._period_s = period_s
        self._pids: dict[str, int] = {}
        self._began = time.monotonic()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "ProcessResourceWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def elapsed_seconds(self) -> float:
        """Return the seconds since sampling began."""
        return time.monotonic() - self._began

    def _run(self) -> None:
        while not self._end.wait(self._period_s):
            for process in self._root.children(recursive=True):
                try:
                    self._record_process_sample(process)
                except psutil.Error:
                    continue  # it has just ended

    def _record_process_sample(self, process: psutil.Process) -> None:
        name, parent = _find_service_role_of_process(process), process.parent()
        # Until a child becomes its own program it has its parent's words; so have the zygote's
        # forks.
        if name is None or parent is None or _find_service_role_of_process(parent) == name:
            return
        if self._pids.setdefault(name, process.pid) != process.pid:
            self._pids[name] = process.pid
            self.restarts[name] = self.restarts.get(name, 0) + 1
        sample = ResourceSample(
            self.elapsed_seconds(),
            process.memory_info().rss,
            process.num_fds(),
            process.num_threads(),
        )
        self.samples.setdefault(name, []).append(sample)


def require_api_process(launcher: int) -> psutil.Process:
    """Find the API process below a launcher."""
    return next(
        p
        for p in psutil.Process(launcher).children(recursive=True)
        if _find_service_role_of_process(p) == "api"
    )


def _find_service_role_of_process(process: psutil.Process) -> str | None:
    words = process.cmdline()
    return next(
        (name for word, name in NAMES.items() if any(word in argument for argument in words)), None
    )
