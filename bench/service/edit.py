"""Measures an edit of one image in a model of many tasks: closed form, kept features.

    python -m bench.service.edit [--tasks 100] [--classes 10] [--per-class 50] [--side 32]

The stream is that of `bench.service.age` in the scenario class: new classes each task. Then one
training image of the first, the middle and the last task gets another label, and a class is renamed,
merged and dropped. Printed of each, of the worker's part alone: seconds; CPU seconds of the job
process and of the worker; SQL statements; requests to the store; bytes that the version adds. The
reference is the stream's last update.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from bench.service import age
from bench.service.age import UpdateCost, UpdateCostBench


def main() -> None:
    """Measure the cost of edits on a learned model, and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--classes", type=int, default=10, help="new classes of a task")
    parser.add_argument("--per-class", type=int, default=50)
    parser.add_argument("--side", type=int, default=32)
    options = parser.parse_args()
    age.CLASSES, age.PER_CLASS = options.classes, options.per_class
    with tempfile.TemporaryDirectory() as folder:
        stream = UpdateCostBench(Path(folder), "analytic", "class", options.side)
        try:
            for number in range(1, options.tasks + 1):
                last = stream.learn_random_batch_and_measure_cost(number)
            classes = options.tasks * options.classes
            print(
                f"{options.tasks} tasks, {classes * options.per_class:,} images, {classes:,} classes"
            )
            print("| step | s | job CPU s | worker CPU s | SQL | requests | new bytes |")
            print("|---|---:|---:|---:|---:|---:|---:|")
            print_edit_cost_row("last update", last)
            for name, operations in list_edits_to_measure(options.tasks, options.classes).items():
                print_edit_cost_row(name, stream.apply_edit_and_measure_cost(operations))
        finally:
            stream.close()


def list_edits_to_measure(tasks: int, classes: int) -> dict[str, list[dict[str, Any]]]:
    """Return the edits to measure, by description."""
    first_class = {task: classes * (task - 1) for task in (1, tasks // 2, tasks)}
    edits: dict[str, list[dict[str, Any]]] = {
        f"one image of task {task}": [
            {"relabel": {"task": task, "image": 0, "label": str((label + 1) % (tasks * classes))}}
        ]
        for task, label in first_class.items()
    }
    return {
        **edits,
        "rename a class": [{"rename": {"from": "3", "to": "three"}}],
        "merge two classes of one task": [{"merge": {"from": ["4"], "into": "5"}}],
        # A class that is all of its task goes with it.
        "drop a class": [{"drop": {"class": "6"}} if classes > 1 else {"remove": {"task": 7}}],
    }


def print_edit_cost_row(name: str, one: UpdateCost) -> None:
    """Print a row with the cost of an edit."""
    print(
        f"| {name} | {one.seconds:.2f} | {one.job_cpu_s:.2f} | {one.worker_cpu_s:.2f} | "
        f"{one.statements} | {one.requests} | {one.new_bytes:,} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
