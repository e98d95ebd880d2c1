"""OLOR over a grid of strengths beside full tuning and a linear probe: what is learned, what the
base loses.

    python -m bench.research.olor_transfer --data DIR [--target near|far|folds]
        [--network resnet20|vit] [--iotas 0.005,0.05,0.5] [--gammas 1,2,4] [--seeds 0,1,2] [--small]
        [--out DIR] [--jobs N]

DIR holds `cifar100` and, for the far target, `mnist`. Bases, rates and streams are of the plan
`olor-transfer`:

- near: 20 other classes of CIFAR-100, two tasks of ten.
- far: MNIST in colour at 32 pixels, where a linear probe should lose.
- folds: the paper's test of forgetting. Two halves of the other classes are learned one after the
  other, and the first is read again at the end; iota1 0.01 with gamma 1 is in the grid, as there.

A row of the table is one method. `first` and `mean` are the sums of the shares by which OLOR rolls
back in a task, of the first layer and over all layers. `target` is the accuracy over both tasks at
the end, `source` that on the base's classes by the base's own head, `fold 1` the first task's
accuracy when it was learned and at the end. A star marks the front: no other row of the network is
as good in target and source and better in one.
`--small` is a form for one core: another base of 20 classes and a quarter of the weights, 10
classes in two tasks, 4 epochs, one seed. An interrupted run goes on where it was when the same
command is given again; runs that are done are not repeated, in any grid.
"""

import argparse
import io
import json
import statistics
import tomllib
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from bench.experiment.__main__ import PLANS
from bench.experiment.conduct import run_experiment_plan
from bench.experiment.data import ExperimentDatasetCache, read_idx_array
from bench.experiment.grid import expand_plan_to_runs
from bench.experiment.outcomes import (
    RunOutcomeUnderProtocol,
    collect_run_outcomes,
    group_outcomes_by_table_cell,
)
from bench.experiment.plan import ExperimentPlan
from bench.experiment.program import restart_with_job_environment_and_run_main
from bench.experiment.runs import ExperimentResultStore

TARGETS = ("near", "far", "folds")
PER_CLASS = {"train": 100, "test": 50}
"""Images of the far target."""


@dataclass(frozen=True)
class OlorTransferRow:
    """Mean results of one method: weight rollback by OLOR, and accuracies."""

    network: str
    method: str
    first: float | None
    mean: float | None
    target: float
    source: float
    learned: float
    kept: float
    runs: int


def main() -> int:
    """Compare OLOR settings in transfer to a target data set; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="bench.research.olor_transfer", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with cifar100 and mnist")
    parser.add_argument("--target", choices=TARGETS, default="near")
    parser.add_argument(
        "--network", choices=["resnet20", "vit"], action="append", help="default: both"
    )
    parser.add_argument("--iotas", type=_parse_numbers, default=[0.005, 0.05, 0.5])
    parser.add_argument("--gammas", type=_parse_numbers, default=[1.0, 2.0, 4.0])
    parser.add_argument("--seeds", type=_parse_numbers, default=[0, 1, 2])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("experiments/olor-transfer"))
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    document = tomllib.loads((PLANS / "olor-transfer.toml").read_text())
    networks = options.network or ["resnet20", "vit"]
    if options.small:
        networks, options.seeds = ["resnet20"], options.seeds[:1]
        _shrink_plan_in_place(document)
    _set_target_data_sets_of_plan(document, options.target, options.data, options.out)
    grid = list(product(options.iotas, options.gammas))
    if options.target == "folds" and (0.01, 1.0) not in grid:
        grid.append((0.01, 1.0))
    document["methods"] = _expand_methods_over_olor_grid(document["methods"], networks, grid)
    document["bases"] = [base for base in document["bases"] if base["name"] in networks]
    document["seeds"] = [int(seed) for seed in options.seeds]
    plan = ExperimentPlan.model_validate_json(json.dumps(document))
    status = run_experiment_plan(plan, options.data, options.out, options.jobs, "cpu")
    _, runs = expand_plan_to_runs(
        plan, ExperimentDatasetCache(options.data, options.out / "data"), "cpu"
    )
    table = render_olor_transfer_table(
        average_runs_by_method(collect_run_outcomes(runs, ExperimentResultStore(options.out))[0])
    )
    (options.out / f"olor-{options.target}.md").write_text(table)
    print(table)
    return status


def average_runs_by_method(outcomes: Sequence[RunOutcomeUnderProtocol]) -> list[OlorTransferRow]:
    """Average finished runs over streams and seeds into a row per method."""
    of_method: dict[str, list[RunOutcomeUnderProtocol]] = {}
    for cell, grouped_outcomes in group_outcomes_by_table_cell(outcomes).items():
        of_method.setdefault(cell[3], []).extend(grouped_outcomes)
    table_rows = []
    for method, grouped_outcomes in of_method.items():
        rolled = [
            stage["rollback"]
            for one in grouped_outcomes
            for stage in one.record["stages"]
            if "rollback" in stage
        ]
        table_rows.append(
            OlorTransferRow(
                network=method.split("-")[0],
                method=method.partition("-")[2],
                first=statistics.fmean(each["first"] for each in rolled) if rolled else None,
                mean=statistics.fmean(each["mean"] for each in rolled) if rolled else None,
                target=_compute_mean(one.figures["acc"] for one in grouped_outcomes),
                source=_compute_mean(one.figures["source"] for one in grouped_outcomes),
                learned=_compute_mean(one.matrix[0][0] for one in grouped_outcomes),
                kept=_compute_mean(one.matrix[-1][0] for one in grouped_outcomes),
                runs=len(grouped_outcomes),
            )
        )
    return table_rows


def is_pareto_optimal(row: OlorTransferRow, all_rows: Iterable[OlorTransferRow]) -> bool:
    """Return True if no other row of the network is better in source and target accuracy."""
    return not any(
        (other.target, other.source) != (row.target, row.source)
        and other.target >= row.target
        and other.source >= row.source
        for other in all_rows
        if other.network == row.network
    )


def render_olor_transfer_table(table_rows: Sequence[OlorTransferRow]) -> str:
    """Render the transfer results in Markdown, by network and rising target accuracy."""
    head = [
        "network",
        "method",
        "first",
        "mean",
        "target %",
        "source %",
        "fold 1 %",
        "runs",
        "front",
    ]
    lines = [
        f"| {' | '.join(head)} |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- | ---: | --- |",
    ]
    for row in sorted(table_rows, key=lambda row: (row.network, row.target)):
        first, mean = ("" if value is None else f"{value:.2f}" for value in (row.first, row.mean))
        cells = [
            row.network,
            row.method,
            first,
            mean,
            f"{100 * row.target:.1f}",
            f"{100 * row.source:.1f}",
        ]
        cells += [f"{100 * row.learned:.1f} → {100 * row.kept:.1f}", str(row.runs)]
        lines.append(
            f"| {' | '.join(cells)} | {'*' if is_pareto_optimal(row, table_rows) else ''} |"
        )
    return "\n".join(lines) + "\n"


def _expand_methods_over_olor_grid(
    planned_methods: Sequence[dict[str, Any]],
    networks: Sequence[str],
    grid: Sequence[tuple[float, float]],
) -> list[dict[str, Any]]:
    """Extend the plan to all pairs of OLOR's iota1 and gamma, with full tuning and linear probe."""
    methods = []
    for method in planned_methods:
        network, _, kind = method["name"].partition("-")
        if network not in networks or not kind.startswith(("full", "linear-probe", "olor")):
            continue
        if not kind.startswith("olor"):
            methods.append(method)
            continue
        for iota, gamma in grid:
            optimizer = {**method["recipe"]["optimizer"], "olor": {"iota1": iota, "gamma": gamma}}
            recipe = {**method["recipe"], "optimizer": optimizer}
            methods.append(
                {**method, "name": f"{network}-olor-{iota:g}-{gamma:g}", "recipe": recipe}
            )
    return methods


def _set_target_data_sets_of_plan(
    document: dict[str, Any], target: str, data: Path, out: Path
) -> None:
    """Replace the plan's data sets by the target data set."""
    if target == "far":
        path = str(_write_mnist_archive_in_rgb(data / "mnist", out / "far"))
        document["data"] = [
            {
                **document["data"][0],
                "name": "mnist",
                "path": path,
                "classes": "0-9",
                "classes_per_task": 5,
            }
        ]
    elif target == "folds":
        document["data"] = [{**document["data"][0], "name": "folds"}]


def _shrink_plan_in_place(document: dict[str, Any]) -> None:
    """Shrink the plan for a quick test: another base, one small stream."""
    document["data"] = [{**document["data"][0], "classes": "50-59", "classes_per_task": 5}]
    base = document["bases"][0]
    base["architecture"] = {"name": "resnet20", "width": 8}
    base["images"] |= {"classes": "0-19", "train_per_class": 200}
    document["bases"] = [base]
    document["recipe"] |= {"batch_size": 16, "epochs": 4}


def _write_mnist_archive_in_rgb(source: Path, folder: Path) -> Path:
    """Write an archive of MNIST images with three equal channels, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "mnist.zip").exists():
        return folder.resolve()
    new = folder / "mnist.new"
    with zipfile.ZipFile(new, "w") as archive:
        for part, word in (("train", "train"), ("test", "t10k")):
            pixels, labels = (
                read_idx_array(
                    next(
                        path
                        for path in sorted(source.iterdir())
                        if word in path.name and kind in path.name
                    )
                )
                for kind in ("images", "labels")
            )
            for digit in range(10):
                for number in np.flatnonzero(labels == digit)[: PER_CLASS[part]]:
                    file = io.BytesIO()
                    Image.fromarray(pixels[number]).convert("RGB").save(file, "png")
                    archive.writestr(f"{part}/{digit}/{number}.png", file.getvalue())
    new.rename(folder / "mnist.zip")
    return folder.resolve()


def _compute_mean(values: Iterable[float | None]) -> float:
    return statistics.fmean(value for value in values if value is not None)


def _parse_numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


if __name__ == "__main__":
    restart_with_job_environment_and_run_main("bench.research.olor_transfer", main)
