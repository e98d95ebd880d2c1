"""Figures of runs, and the tables that show them."""

import math

import pytest
from experiments import FACTS
from experiments import make_run as run

from bench.experiment.grid import ExperimentRun
from bench.experiment.outcomes import collect_run_outcomes
from bench.experiment.runs import ExperimentResultStore, build_failed_run_record
from bench.experiment.tables import format_method_ranking, render_experiment_summary

R = {1: [90], 2: [70, 85], 3: [60, 80, 95]}
"""Accuracy in percent after stage i on tasks 1 … i: the learned part of a worked example."""


def make_record(matrix=R, source=None, **stage):
    """Make the record that a run leaves, with the same results in both protocols."""
    stages = []
    for i, row in matrix.items():
        results = [
            {"readout": readout, "test": j, "correct": correct, "total": 100}
            for j, correct in enumerate(row, 1)
            for readout in ("class", "task")
        ]
        if source:
            results.append({"readout": "class", "test": "source", "correct": source, "total": 50})
        stages.append({"stage": i, **FACTS, **stage, "results": results})
    return {"status": "done", "stages": stages, "seconds": 6.0}


@pytest.fixture
def store(tmp_path):
    return ExperimentResultStore(tmp_path)


def read_summary_row(text, start):
    """Return the cells of the first row of the summary that starts with `start`."""
    found = next(row for row in text.splitlines() if row.startswith(f"| {start} |"))
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_figures_of_a_worked_example(store):
    store.write_run_record(run().result_inputs_digest, make_record(source=20))
    outcomes, _ = collect_run_outcomes([run()], store)
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
    assert (figures["new_megabytes"], figures["kept_images"]) == (3.0, 40.0)
    assert outcomes[1].matrix == [[0.9, None, None], [0.7, 0.85, None], [0.6, 0.8, 0.95]]


def test_gap_and_intransigence_come_from_the_joint_run_of_the_same_order_seed_and_depth(store):
    joint = {1: [92], 2: [90, 91], 3: [89, 90, 94]}
    ours, twin, other = run(), run("joint", joint=True), run("joint", seed=1, joint=True)
    for one, matrix in ((ours, R), (twin, joint), (other, R)):
        store.write_run_record(one.result_inputs_digest, make_record(matrix))
    outcomes, _ = collect_run_outcomes([ours, twin, other], store)
    figures = next(o.figures for o in outcomes if o.run is ours and o.readout == "task")
    assert figures["gap_to_joint"] == pytest.approx((0.89 + 0.90 + 0.94) / 3 - 0.783333, abs=1e-6)
    assert figures["intransigence"] == pytest.approx((0.02 + 0.06 - 0.01) / 3)
    assert next(o.figures for o in outcomes if o.run is twin)["forgetting"] is None


def test_a_row_has_mean_deviation_and_interval_and_the_paired_gain(plan, store):
    shown = plan('[[methods]]\nname = "a"')
    runs = []
    for seed, last in enumerate((60, 70, 74)):
        runs += [run("plain", seed, reference=True), run("a", seed)]
        store.write_run_record(
            runs[-2].result_inputs_digest, make_record({**R, 3: [last - 3, 80, 95]})
        )
        store.write_run_record(runs[-1].result_inputs_digest, make_record({**R, 3: [last, 80, 95]}))
    text = render_experiment_summary(shown, runs, [], store, *collect_run_outcomes(runs, store))
    mean, sd = 81.0, 100 * math.sqrt(((60 - 68) ** 2 + 2**2 + 6**2) / 2) / 300
    half = 4.302652729911275 * sd / math.sqrt(3)
    cells = read_summary_row(text, "a")
    assert cells[:5] == ["a", "5", "25 (25.0 %)", "3", "0"]
    assert cells[5] == f"{mean:.2f} ± {sd:.2f} [{mean - half:.2f}, {mean + half:.2f}]"
    assert cells[-1] == "1.00 ± 0.00 [1.00, 1.00]"
    assert "6 of 6 runs done, 0 failed, 0 to do." in text


def test_cells_without_a_result_and_runs_not_yet_made_are_visible(plan, store):
    shown = plan('[[methods]]\nname = "a"')
    runs = [run("a"), run("b"), run("c")]
    store.write_run_record(runs[0].result_inputs_digest, make_record())
    store.write_run_record(
        runs[1].result_inputs_digest, build_failed_run_record("memory", "out | of\nmemory")
    )
    text = render_experiment_summary(shown, runs, [], store, *collect_run_outcomes(runs, store))
    assert "1 of 3 runs done, 1 failed, 1 to do." in text
    assert read_summary_row(text, "b")[2:6] == ["–", "0", "1", "–"]
    assert read_summary_row(text, "c")[2:6] == ["–", "0", "0", "–"]
    assert "| d class b depth 5 order 0 seed 0 | memory | out \\| of memory | runs/" in text


def test_runs_under_two_names_are_counted_both(plan, store):
    shown = plan('[[methods]]\nname = "a"')
    config = run().config
    runs = [
        ExperimentRun("d", "class", name, 5, 0, 0, False, False, None, config, [])
        for name in ("a", "b")
    ]
    store.write_run_record(runs[0].result_inputs_digest, make_record())
    assert "2 of 2 runs done, 0 failed, 0 to do." in render_experiment_summary(
        shown, runs, [], store, *collect_run_outcomes(runs, store)
    )


def test_methods_are_ordered_and_only_sure_differences_are_marked(plan, store):
    shown = plan('[[methods]]\nname = "a"')
    runs = []
    for seed, (a, b, c) in enumerate(((60, 70, 71), (62, 73, 71), (64, 74, 75))):
        for name, last in (("a", a), ("b", b), ("c", c)):
            runs.append(run(name, seed))
            store.write_run_record(
                runs[-1].result_inputs_digest,
                make_record({**R, 3: [last, 80, 95]}, source=100 - last),
            )
    outcomes, _ = collect_run_outcomes(runs, store)
    methods = {
        name: [o for o in outcomes if o.table_cell_key[2:4] == ("task", name)] for name in "abc"
    }
    assert (
        format_method_ranking(methods, "acc") == "b ≥ c > a"
        or format_method_ranking(methods, "acc") == "c ≥ b > a"
    )
    assert format_method_ranking({"a": methods["a"][:1], "b": methods["b"][:1]}, "acc") == "b ≥ a"
    assert format_method_ranking({}, "acc") == "–"
    text = render_experiment_summary(shown, runs, [], store, *collect_run_outcomes(runs, store))
    assert f"- By ACC: {format_method_ranking(methods, 'acc')}" in text
    assert "- By source: a > " in text


def test_depths_are_shown_with_ranks_updates_and_forgetting(plan, store):
    shown = plan('[[methods]]\nname = "a"')
    runs = []
    for seed in range(3):
        for depth, name, last in ((1, "a", 60), (1, "b", 70), (5, "a", 50), (5, "b", 40)):
            runs.append(run(name, seed, depth))
            norms = {"backbone": 3.0 * depth, "head": 4.0 * depth, "relative": 0.5}
            store.write_run_record(
                runs[-1].result_inputs_digest,
                make_record({**R, 3: [last + seed, 80, 95]}, update_norm=norms),
            )
    text = render_experiment_summary(shown, runs, [], store, *collect_run_outcomes(runs, store))
    assert "a above b at depth 5, below it at 1." in text
    depths = text[text.index("### Depths") :]
    rows = [row for row in depths.splitlines() if row.startswith(("| 1 |", "| 5 |"))]
    assert rows[0].startswith("| 1 | 5.000 [5.000, 5.000] | 0.145 ")
    assert rows[2:4] == ["| 1 | b > a |", "| 5 | a > b |"]


def test_columns_are_explained_and_failed_runs_name_their_file(plan, store):
    store.write_run_record(run().result_inputs_digest, build_failed_run_record("code", "no"))
    store.write_run_record(run("b").result_inputs_digest, make_record(source=20))
    runs = [run(), run("b")]
    text = render_experiment_summary(
        plan('[[methods]]\nname = "a"'), runs, [], store, *collect_run_outcomes(runs, store)
    )
    assert f"| code | no | runs/{run().result_inputs_digest}.json |" in text
    legend = text[text.index("## Columns") :]
    for name in ("ACC: ", "forgetting: ", "update norm: ", "source: ", "moving: "):
        assert name in legend
    assert "below joint" not in legend


def test_the_gap_to_a_published_value_is_in_its_standard_deviations(plan, store):
    shown = plan(
        '[[methods]]\nname = "a"\n[published]\nsource = "Somebody 2000"\n'
        'values = [{ method = "a", scenario = "class", mean = 70.0, sd = 4.0 }]'
    )
    store.write_run_record(run().result_inputs_digest, make_record())
    text = render_experiment_summary(
        shown, [run()], [], store, *collect_run_outcomes([run()], store)
    )
    rows = text[text.index("## Against published results") :]
    assert "Somebody 2000." in rows
    assert read_summary_row(rows, "d") == [
        "d",
        "a",
        "class",
        "5",
        "1",
        "78.33",
        "70.00 ± 4.00",
        "+2.08",
    ]
    assert (
        "**0 of 1 figures are within 2 published standard deviations.** Farthest: a in the class "
        "scenario, +2.08." in rows
    )


def test_the_gain_over_the_reference_stands_beside_the_published_gain(plan, store):
    shown = plan(
        '[[methods]]\nname = "a"\n[[methods]]\nname = "plain"\nreference = '
        'true\n[published]\nsource = "Somebody"\nvalues = [{ method = "a", scenario = "class", '
        'mean = 78.0, sd = 4.0 },\n{ method = "plain", scenario = "class", mean = 70.0, sd = 4.0 }]'
    )
    runs = [run(), run("plain", reference=True)]
    store.write_run_record(runs[0].result_inputs_digest, make_record())
    store.write_run_record(runs[1].result_inputs_digest, make_record({**R, 3: [30, 80, 95]}))
    text = render_experiment_summary(shown, runs, [], store, *collect_run_outcomes(runs, store))
    rows = text[text.index("## Against published results") :]
    assert "ACC − plain %, ours / published" in rows
    assert read_summary_row(rows, "d | a")[-1] == "+10.00 / +8.00"
    assert "**2 of 2 figures are within 2 published standard deviations.**" in rows
    assert read_summary_row(rows, "d | plain")[-1] == ""
    text = render_experiment_summary(shown, runs, [], store, [], [])
    assert read_summary_row(text[text.index("## Against") :], "d | a")[4:] == [
        "0",
        "–",
        "78.00 ± 4.00",
        "–",
        "– / +8.00",
    ]


def test_a_study_without_any_result_has_a_report(plan, store):
    text = render_experiment_summary(plan('[[methods]]\nname = "a"'), [run()], [], store, [], [])
    assert "0 of 1 runs done, 0 failed, 1 to do." in text
