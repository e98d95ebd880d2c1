"""Learn two tasks with methods on the device `sim`, and report how often a GPU would have waited in
a step, or in expressions.

A process of its own, since torch makes the threads of its devices at the first backward pass and
none later. It reads JSON lines {"method", "scenario", "family", "recipe", "free_bytes", "device"}
(the last four may be left out) and answers each with a line {"per_step", "places", "digests"} or
{"error"}. A line {"expressions"} is answered with how often a GPU waits for each, or "raises"; x is
float [6] and mask bool [6] on the device.

    python blocking_calls.py FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import simulated_device
import torch

os.environ["PERENNIAL_TEST_DEVICE"] = simulated_device.NAME

from conformance import Case, ForkServer
from step_counts import StepCounts


def count_calls(expressions: list[str]) -> dict[str, int | str]:
    """Evaluate expressions and return the number of blocking calls of each."""
    x, counts = torch.arange(6.0, device=simulated_device.NAME), dict[str, int | str]()
    names = {"torch": torch, "x": x, "mask": x > 2}
    for expression in expressions:
        before = simulated_device.calls.total
        try:
            eval(expression, names)  # noqa: S307  # of the test
            counts[expression] = simulated_device.calls.total - before
        except RuntimeError:
            counts[expression] = "raises"
    return counts


def count_blocking_calls(
    request: dict[str, Any], folder: Path, steps: StepCounts
) -> dict[str, Any]:
    """Learn two tasks as requested, and return what blocked in the second."""
    case = Case(request["method"], request["scenario"], folder, ForkServer())
    recipe = {"method": case.settings, **request.get("recipe", {})}
    simulated_device.backend.free = request.get("free_bytes", simulated_device.FREE_BYTES)
    folder.mkdir(parents=True)
    bench = case.new_bench(
        request.get("family", "mlp"),
        n=10,  # two steps after the first in each epoch, the last of them with fewer images
    )
    bench.device = request.get("device", simulated_device.NAME)
    first = bench.learn_task(1, **recipe)
    steps.taken()
    second = bench.learn_task(2, first, **recipe)
    return {**steps.taken(), "digests": second.digests}


def main(folder: Path) -> None:
    """Answer the requests, line by line."""
    steps = StepCounts(simulated_device.calls)
    steps.watch()
    for number, line in enumerate(sys.stdin):
        request = json.loads(line)
        try:
            if "expressions" in request:
                said = count_calls(request["expressions"])
            else:
                said = count_blocking_calls(request, folder / str(number), steps)
        except Exception as error:  # noqa: BLE001  # of one request: the others still have their answers
            traceback.print_exc()
            said = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
