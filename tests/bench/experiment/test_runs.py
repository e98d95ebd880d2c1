"""One run after the other: what a task hands to the next, and what is recorded of it."""

from experiments import learn_run

from bench.experiment.runs import ExperimentResultStore

METHODS = """
[[methods]]
name = "sums"
depths = [1]
recipe.method = { name = "analytic", projection = 100 }

[[methods]]
name = "replay"
recipe.method = { name = "er", buffer = 30 }
"""


def test_sums_of_earlier_tasks_are_handed_on_and_kept_images_are_counted(runs, tmp_path):
    kept = {}
    for run in runs(METHODS):
        if run.method in kept or run.order:
            continue
        stages = learn_run(run, ExperimentResultStore(tmp_path / "out"))["stages"]
        kept[run.method] = stages[-1]["kept_images"]
        if run.method == "sums":
            own = {row["test"]: row for row in stages[-1]["results"] if row["readout"] == "class"}
            assert len(own) > 1
            assert all(row["correct"] / row["total"] > 0.6 for row in own.values())
    assert kept == {"sums": 0, "replay": 30}
