"""Learn two tasks with methods on the device `sim`, and report how often a GPU would have waited in a step.

A process of its own, since torch makes the threads of its devices at the first backward pass and none later. It reads
JSON lines {"method", "scenario", "family", "recipe", "free_bytes", "device"} (the last four may be left out) and
answers each with a line {"per_step", "places", "digests"} or {"error"}.

    python blocking_calls.py FOLDER
"""

from __future__ import annotations

import functools
import json
import os
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import simulated_device

os.environ["PERENNIAL_TEST_DEVICE"] = simulated_device.NAME

from conformance import Case, ForkServer

from core.learn.loop import Loop
from core.learn.method import Method
from core.learn.methods import registry


class Steps:
    """Counts blocking calls from the end of an epoch's first step to the end of its last; reports are left out."""

    def __init__(self) -> None:
        self.steps = 0
        self.places: Counter[str] = Counter()
        self._before: Counter[str] = Counter()

    def watch(self) -> None:
        """Count in all loops of this process from now on."""
        step = Loop._step

        def watched(loop: Loop, *args: Any, **kwargs: Any) -> None:
            first = loop.position.batch == 0
            step(loop, *args, **kwargs)
            if not first:
                self.steps += 1
                self.places += simulated_device.calls.places - self._before
            self._before = simulated_device.calls.places.copy()

        Loop._step = watched  # type: ignore[method-assign,assignment]
        Loop._report = _uncounted(Loop._report)  # type: ignore[method-assign]
        kinds: set[type[Method]] = {Method, *registry.METHODS.values()}
        for kind in kinds:
            if "forecast" in vars(kind):  # made for reports only
                kind.forecast = _uncounted(kind.forecast)  # type: ignore[method-assign]

    def taken(self) -> dict[str, Any]:
        """Calls per step and their places, since the last time."""
        steps, places = max(1, self.steps), self.places
        self.steps, self.places = 0, Counter()
        return {
            "per_step": round(sum(places.values()) / steps, 2),
            "places": {place: round(count / steps, 2) for place, count in places.most_common()},
        }


def _uncounted(call: Any) -> Any:
    @functools.wraps(call)
    def uncounted(*args: Any, **kwargs: Any) -> Any:
        with simulated_device.calls.paused():
            return call(*args, **kwargs)

    return uncounted


def answer(request: dict[str, Any], folder: Path, steps: Steps) -> dict[str, Any]:
    """Learn two tasks as the request says; what blocked in the second."""
    method, recipe = request["method"], request.get("recipe", {})
    simulated_device.backend.free = request.get("free_bytes", simulated_device.FREE_BYTES)
    folder.mkdir(parents=True)
    bench = Case(method, request["scenario"], folder, ForkServer()).new_bench(request.get("family", "mlp"))
    bench.device = request.get("device", simulated_device.NAME)
    first = bench.learn_task(1, **{"method": method, **recipe})
    steps.taken()
    second = bench.learn_task(2, first, **{"method": method, **recipe})
    return {**steps.taken(), "digests": second.digests}


def main(folder: Path) -> None:
    """Answer the requests, line by line."""
    steps = Steps()
    steps.watch()
    for number, line in enumerate(sys.stdin):
        request = json.loads(line)
        try:
            said = answer(request, folder / str(number), steps)
        except Exception as error:  # noqa: BLE001  # of one request: the others still have their answers
            traceback.print_exc()
            said = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
