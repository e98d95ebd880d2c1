"""Figures of runs, and the tables that show them."""

import math

import pytest

from bench.experiment.grid import Run
from bench.experiment.outcomes import collect
from bench.experiment.runs import Store, failure
from bench.experiment.tables import summary

R = {1: [90], 2: [70, 85], 3: [60, 80, 95]}
"""Accuracy in percent after stage i on tasks 1 … i: the learned part of a worked example."""


def run(method="a", seed=0, depth=5, **other):
    settings = {"joint": False, "reference": False, "base": None, **other}
    config = {"architecture": {"name": "mlp"}, "base": None, "name": (method, seed, depth)}
    return Run("d", "class", method, depth, 0, seed, **settings, config=config, stages=[])


def record(matrix=R, source=None, **stage):
    """What a run leaves behind; both protocols say the same."""
    facts = {
        "update_norm": {"backbone": 3.0, "head": 4.0, "relative": 0.5},
        "trainable": 25,
        "parameters": 100,
        "seconds": 2.0,
        "state_bytes": 7,
        "environment": {"device": "cpu"},
        **stage,
    }
    stages = []
    for i, row in matrix.items():
        results = [
            {"readout": readout, "test": j, "correct": correct, "total": 100}
            for j, correct in enumerate(row, 1)
            for readout in ("class", "task")
        ]
        if source:
            results.append({"readout": "class", "test": "source", "correct": source, "total": 50})
        stages.append({"stage": i, **facts, "results": results})
    return {"status": "done", "stages": stages, "seconds": 6.0}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def line(text, start):
    """The cells of the first row of the summary that starts so."""
    found = next(row for row in text.splitlines() if row.startswith(f"| {start} |"))
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_figures_of_a_worked_example(store):
    store.write(run().key, record(source=20))
    outcomes, _ = collect([run()], store)
    assert [o.readout for o in outcomes] == ["class", "task"]
    figures = outcomes[1].figures
    assert figures["acc"] == pytest.approx(0.783333, abs=1e-6)
    assert figures["average_incremental"] == pytest.approx(0.819444, abs=1e-6)
    assert figures["bwt"] == pytest.approx(-0.175)
    assert figures["forgetting"] == pytest.approx(0.175)
    assert figures["learning_accuracy"] == pytest.approx(0.90)
    assert figures["update_norm"] == 5.0
    assert figures["source"] == 0.4
    assert figures["gap_to_joint"] is None
    assert outcomes[1].matrix == [[0.9, None, None], [0.7, 0.85, None], [0.6, 0.8, 0.95]]


def test_gap_and_intransigence_come_from_the_joint_run_of_the_same_order_seed_and_depth(store):
    joint = {1: [92], 2: [90, 91], 3: [89, 90, 94]}
    ours, twin, other = run(), run("joint", joint=True), run("joint", seed=1, joint=True)
    for one, matrix in ((ours, R), (twin, joint), (other, R)):
        store.write(one.key, record(matrix))
    outcomes, _ = collect([ours, twin, other], store)
    figures = next(o.figures for o in outcomes if o.run is ours and o.readout == "task")
    assert figures["gap_to_joint"] == pytest.approx((0.89 + 0.90 + 0.94) / 3 - 0.783333, abs=1e-6)
    assert figures["intransigence"] == pytest.approx((0.02 + 0.06 - 0.01) / 3)
    assert next(o.figures for o in outcomes if o.run is twin)["forgetting"] is None


def test_a_row_has_mean_deviation_and_interval_and_the_paired_gain(plan, store):
    shown = plan('[[methods]]\nname = "a"')
    runs = []
    for seed, last in enumerate((60, 70, 74)):
        runs += [run("plain", seed, reference=True), run("a", seed)]
        store.write(runs[-2].key, record({**R, 3: [last - 3, 80, 95]}))
        store.write(runs[-1].key, record({**R, 3: [last, 80, 95]}))
    text = summary(shown, runs, [], store, *collect(runs, store))
    mean, sd = 81.0, 100 * math.sqrt(((60 - 68) ** 2 + 2**2 + 6**2) / 2) / 300
    half = 4.302652729911275 * sd / math.sqrt(3)
    cells = line(text, "a")
    assert cells[:5] == ["a", "5", "25 (25.0 %)", "3", "0"]
    assert cells[5] == f"{mean:.2f} ± {sd:.2f} [{mean - half:.2f}, {mean + half:.2f}]"
    assert cells[-1] == "1.00 ± 0.00 [1.00, 1.00]"
    assert "6 of 6 runs done, 0 failed, 0 to do." in text


def test_cells_without_a_result_and_runs_not_yet_made_are_visible(plan, store):
    shown = plan('[[methods]]\nname = "a"')
    runs = [run("a"), run("b"), run("c")]
    store.write(runs[0].key, record())
    store.write(runs[1].key, failure("memory", "out | of\nmemory"))
    text = summary(shown, runs, [], store, *collect(runs, store))
    assert "1 of 3 runs done, 1 failed, 1 to do." in text
    assert line(text, "b")[2:6] == ["–", "0", "1", "–"]
    assert line(text, "c")[2:6] == ["–", "0", "0", "–"]
    assert "| d class b depth 5 order 0 seed 0 | memory | out \\| of memory |" in text


def test_the_gap_to_a_published_value_is_in_its_standard_deviations(plan, store):
    shown = plan(
        '[[methods]]\nname = "a"\n[published]\nsource = "Somebody 2000"\n'
        'values = [{ method = "a", scenario = "class", mean = 70.0, sd = 4.0 }]'
    )
    store.write(run().key, record())
    text = summary(shown, [run()], [], store, *collect([run()], store))
    rows = text[text.index("## Against published results") :]
    assert "Somebody 2000." in rows
    assert line(rows, "a") == ["a", "class", "5", "1", "78.33", "70.00 ± 4.00", "+2.08"]


def test_a_study_without_any_result_has_a_report(plan, store):
    text = summary(plan('[[methods]]\nname = "a"'), [run()], [], store, [], [])
    assert "0 of 1 runs done, 0 failed, 1 to do." in text
