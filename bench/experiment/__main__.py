"""Run a plan: every run that has no result yet, then the tables, a summary and the figures.

    python -m bench.experiment PLAN.toml --data DIR [--out DIR] [--jobs N] [--device cpu|cuda]

PLAN is a file, or the name of one in `bench/experiment/plans`. DIR holds the data sets that the
plan names. Results go to `--out` (default `experiments/<plan>`), one JSON file per run: the same
command goes on after an interruption, and does nothing but the report when all runs are done. Runs
are products of the learning code's version: an edit there makes them start again. Runs that find too
little memory are tried again with half as many at once. A run that failed in itself is tried again
when its file in `runs` is deleted. Needs `pip install -e ".[bench]"`.

Writes summary.md for people, results.csv (a row per run and protocol), accuracies.csv (a row per
accuracy that was measured) and figures/.
"""

import argparse
import os
from pathlib import Path

from bench.experiment.plan import read_plan_file
from bench.experiment.program import restart_with_job_environment_and_run_main

PLANS = Path(__file__).parent / "plans"


def main() -> int:
    """Run the experiment of a plan file; return 0, or 1 if runs failed. Raises PlanError."""
    parser = argparse.ArgumentParser(prog="bench.experiment", description=__doc__.splitlines()[0])
    parser.add_argument("plan", help="a TOML file, or a name in bench/experiment/plans")
    parser.add_argument(
        "--data", type=Path, required=True, help="folder that the plan's paths are relative to"
    )
    parser.add_argument("--out", type=Path, help="default experiments/<plan's name>")
    parser.add_argument(
        "--jobs",
        type=_parse_positive_integer,
        default=len(os.sched_getaffinity(0)),
        help="runs at once (default: cores)",
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    named = PLANS / f"{options.plan}.toml"
    plan = read_plan_file(named if named.exists() else Path(options.plan))
    from bench.experiment.conduct import (
        run_experiment_plan,
    )  # loads torch, after cheap mistakes are found

    return run_experiment_plan(
        plan,
        options.data,
        options.out or Path("experiments") / plan.name,
        options.jobs,
        options.device,
    )


def _parse_positive_integer(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return int(text)


if __name__ == "__main__":
    restart_with_job_environment_and_run_main("bench.experiment", main)
