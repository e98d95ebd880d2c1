"""Learn two tasks with each method on the device `sim`, and print how often a GPU would have waited, as JSON.

A process of its own: torch makes the threads of its devices at the first backward pass, and none later.

    python blocking_calls.py FOLDER CASE …    with cases such as er-class-mlp
"""

from __future__ import annotations

import functools
import json
import os
import sys
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
        self._before = Counter[str]()

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

        Loop._step = watched  # type: ignore[method-assign]
        Loop._report = _uncounted(Loop._report)  # type: ignore[method-assign]
        for kind in {Method, *registry.METHODS.values()}:
            if "forecast" in vars(kind):
                kind.forecast = _uncounted(kind.forecast)  # type: ignore[method-assign]

    def taken(self) -> dict[str, Any]:
        """Calls per step and the places, since the last time."""
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


def main(folder: Path, cases: list[str]) -> None:
    """Print a line of JSON for each case."""
    steps = Steps()
    steps.watch()
    for name in cases:
        method, scenario, family = split(name)
        place = folder / name
        place.mkdir(parents=True)
        bench = Case(method, scenario, place, ForkServer()).new_bench(family)
        try:
            first = bench.learn_task(1, method=method)
            steps.taken()
            second = bench.learn_task(2, first, method=method)
            line = {**steps.taken(), "digests": second.digests}
        except Exception as error:  # of one case: the others still say what they have to say
            if "-x" in sys.argv:
                raise
            line = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps({"case": name, **line}), flush=True)


def split(case: str) -> tuple[str, str, str]:
    """(method, scenario, family) of a case; methods and families may have a hyphen in their name."""
    for scenario in ("data", "task", "class"):
        method, found, family = case.partition(f"-{scenario}-")
        if found:
            return method, scenario, family
    raise ValueError(f"{case} is not METHOD-SCENARIO-FAMILY")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [case for case in sys.argv[2:] if case != "-x"])
