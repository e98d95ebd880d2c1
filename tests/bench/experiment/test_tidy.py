"""The CSV files."""

import csv
import io

import pytest
from experiments import FACTS, make_run

from bench.experiment.outcomes import collect_run_outcomes
from bench.experiment.runs import ExperimentResultStore, build_failed_run_record
from bench.experiment.tidy import render_accuracies_csv, render_results_csv

NORMS = {"update_norm": {"backbone": 3.0, "head": 4.0, "relative": None}}


def make_stage(number, correct):
    rows = [
        {"readout": readout, "test": j, "correct": c, "total": 100}
        for j, c in enumerate(correct, 1)
        for readout in ("class", "task")
    ]
    rows.append({"readout": "class", "test": "source", "correct": 20, "total": 50})
    return {"stage": number, **FACTS, **NORMS, "results": rows}


@pytest.fixture
def made(tmp_path):
    """Runs: one done, one that failed in its second task, one to do."""
    store = ExperimentResultStore(tmp_path)
    runs = [make_run(name) for name in "abc"]
    stages = [make_stage(1, [90]), make_stage(2, [70, 80])]
    store.write_run_record(
        runs[0].result_inputs_digest, {"status": "done", "stages": stages, "seconds": 4.0}
    )
    store.write_run_record(
        runs[1].result_inputs_digest,
        {**build_failed_run_record("memory", "too little"), "stages": stages[:1]},
    )
    return runs, store


def parse_csv(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_a_row_per_run_and_protocol_with_its_figures_or_its_failure(made):
    runs, store = made
    found = parse_csv(render_results_csv(runs, *collect_run_outcomes(runs, store)))
    assert [(r["method"], r["readout"], r["status"]) for r in found] == [
        ("a", "class", "done"),
        ("a", "task", "done"),
        ("b", "class", "failed"),
        ("b", "task", "failed"),
    ]
    row = found[1]
    assert (row["acc"], row["forgetting"], row["update_norm"]) == (
        "0.75",
        str(0.9 - 0.7),
        "5.0",
    )
    assert (row["source"], row["gap_to_joint"], row["trainable"], row["reason"]) == (
        "0.4",
        "",
        "25",
        "",
    )
    assert (found[2]["acc"], found[2]["failure"], found[2]["reason"]) == (
        "",
        "memory",
        "too little",
    )


def test_a_row_per_measured_accuracy_with_counts_and_tasks_apart_from_the_source(made):
    runs, store = made
    found = parse_csv(render_accuracies_csv(runs, store))
    tests = [(r["method"], r["stage"], r["readout"], r["test"], r["task"]) for r in found]
    assert tests[:3] == [
        ("a", "1", "class", "task", "1"),
        ("a", "1", "task", "task", "1"),
        ("a", "1", "class", "source", ""),
    ]
    assert len(tests) == 3 + 5 + 3
    assert (found[0]["correct"], found[0]["total"], found[0]["accuracy"]) == ("90", "100", "0.9")
    assert (found[0]["update_head"], found[0]["update_relative"]) == ("4.0", "")
    assert found[-1]["status"] == "failed"
