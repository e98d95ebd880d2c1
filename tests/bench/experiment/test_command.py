"""Plans from the command line: run, done, interrupted, failed."""

import csv
import json
from pathlib import Path

import pytest
from experiments import Runner

pytestmark = pytest.mark.slow

REPLAY = """
scenarios = ["task"]
seeds = [0, 1]

[[methods]]
name = "er"
recipe.method = "er"
"""
METHODS = f"""{REPLAY.replace("[0, 1]", "[0]")}
[[methods]]
name = "joint"
joint = true
"""


def remove_times(record: dict) -> dict:
    stages = [
        {k: v for k, v in stage.items() if not k.startswith("seconds")}
        for stage in record["stages"]
    ]
    return {**{k: v for k, v in record.items() if "seconds" not in k}, "stages": stages}


def read_accuracy_rows(runner: Runner) -> list[dict[str, str]]:
    with (runner.out / "accuracies.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_plan_is_run_once_and_then_only_reported(runner):
    status, output = runner(METHODS)
    assert status == 0, output
    assert "2 runs: 0 done, 2 to do" in output
    written, summary = runner.times(), (runner.out / "summary.md").read_text()
    assert len(written) == 2
    assert list((runner.out / "unfinished").iterdir()) == []
    status, output = runner(METHODS)
    assert (status, runner.times()) == (0, written)
    assert "2 runs: 2 done, 0 to do" in output
    assert (runner.out / "summary.md").read_text() == summary


@pytest.mark.campaign  # test_joint.py and test_depths.py draw figures without a command
def test_a_plan_is_drawn_when_asked(runner):
    assert runner(METHODS, figures=True)[0] == 0
    names = sorted(p.name for p in (runner.out / "figures").iterdir())
    assert names == [f"digits-task-task-{name}.png" for name in ("forgetting", "matrices", "tasks")]


def test_the_table_has_a_row_per_run_stage_protocol_and_test_set(runner):
    assert runner('[[methods]]\nname = "finetune"')[0] == 0
    found = read_accuracy_rows(runner)
    cells = [(r["stage"], r["readout"], r["task"]) for r in found]
    assert cells == [
        ("1", "class", "1"),
        ("1", "task", "1"),
        ("2", "class", "1"),
        ("2", "task", "1"),
        ("2", "class", "2"),
        ("2", "task", "2"),
    ]
    for row in found:
        assert int(row["total"]) == 40
        assert float(row["accuracy"]) == int(row["correct"]) / 40


@pytest.mark.campaign  # test_unfinished.py shows it of single runs
def test_a_killed_experiment_goes_on_where_it_was_and_ends_the_same(runner, tmp_path):
    runner.killed_after(REPLAY, results=1)
    before = runner.times()
    assert len(before) == 1
    status, output = runner(REPLAY)
    assert status == 0, output
    assert "2 runs: 1 done, 1 to do" in output
    assert {name: runner.times()[name] for name in before} == before
    resumed = runner.records()
    runner.out = tmp_path / "undisturbed"
    assert runner(REPLAY)[0] == 0
    undisturbed = runner.records()
    assert resumed.keys() == undisturbed.keys()
    for name, record in resumed.items():
        assert remove_times(record) == remove_times(undisturbed[name])


def test_a_failed_run_is_kept_with_its_reason_and_shown(runner):
    plan = """
        [[methods]]
        name = "finetune"
        [[methods]]
        name = "wild"
        recipe.optimizer.lr = 1e30
        """
    status, output = runner(plan)
    assert status == 1
    assert "failed: digits class wild depth 5 order 0 seed 0: NonFiniteTrainingError" in output
    summary = (runner.out / "summary.md").read_text()
    assert "1 of 2 runs done, 1 failed, 0 to do." in summary
    table = [line.split("|") for line in summary.splitlines() if line.startswith("| wild")]
    assert [cell.strip() for cell in table[0][2:6]] == ["5", "–", "0", "1"]
    assert (
        "| digits class wild depth 5 order 0 seed 0 | non-finite | NonFiniteTrainingError: "
        in summary
    )
    with (runner.out / "results.csv").open() as file:
        failed = [row for row in csv.DictReader(file) if row["status"] == "failed"]
    assert [row["readout"] for row in failed] == ["class", "task"]
    assert failed[0]["reason"].startswith("NonFiniteTrainingError")
    written = runner.times()
    assert runner(plan)[0] == 1, "a failure that would come again is not tried again"
    assert runner.times() == written


@pytest.mark.campaign  # test_unfinished.py shows it of single runs
def test_a_run_whose_process_was_killed_is_tried_again(runner):
    plan = '[[methods]]\nname = "finetune"'
    assert runner(plan)[0] == 0
    ((name, record),) = runner.records().items()
    lost = {
        **record,
        "status": "failed",
        "failure": {"kind": "killed", "reason": "ended by SIGKILL", "traceback": ""},
    }
    (runner.out / "runs" / name).write_text(json.dumps(lost))
    status, output = runner(plan)
    assert (status, "1 runs: 0 done, 1 to do" in output) == (0, True)
    assert remove_times(runner.records()[name]) == remove_times(record)


@pytest.mark.campaign  # test_unfinished.py keeps and continues a base
def test_a_base_is_trained_once_and_its_classes_are_kept_by_a_frozen_backbone(runner):
    plan = """
        data = [{ name = "new", path = "digits", classes = "4-7", classes_per_task = 2, train_per_class = 12 }]
        [[bases]]
        name = "old"
        images = { path = "digits", classes = "0-3", train_per_class = 12 }
        architecture = { name = "mlp", hidden = [8] }
        recipe = { epochs = 2, batch_size = 8, augment = "none" }
        [[methods]]
        name = "linear-probe"
        base = "old"
        depths = [1]
        [[methods]]
        name = "full"
        base = "old"
        """
    status, output = runner(plan)
    assert status == 0, output
    (folder,) = (runner.out / "bases").iterdir()
    trained = folder.stat().st_mtime_ns
    base = json.loads((folder / "base.json").read_text())["results"][0]
    source = [row for row in read_accuracy_rows(runner) if row["test"] == "source"]
    assert len(source) == 4
    for row in source:
        same = int(row["correct"]) == base["correct"]
        assert same == (row["method"] == "linear-probe"), row
    assert (
        f"Base old (mlp): {100 * base['correct'] / base['total']:.2f} % on its 4 classes."
        in (runner.out / "summary.md").read_text()
    )
    next((runner.out / "runs").iterdir()).unlink()
    assert runner(plan)[0] == 0
    assert folder.stat().st_mtime_ns == trained


def test_a_plan_with_a_wrong_recipe_says_where_before_anything_runs(runner):
    status, output = runner('[[methods]]\nname = "odd"\nrecipe.optimizer.lr = -1.0')
    assert status == 2
    assert "methods: odd (class scenario, depth 5): recipe.optimizer.lr:" in output
    assert not (runner.out / "runs").exists()


def test_missing_data_is_named(runner, tmp_path):
    plan = (
        'data = [{ name = "a", path = "nowhere", classes_per_task = 2 }]\n[[methods]]\nname = '
        '"finetune"'
    )
    status, output = runner(plan)
    assert status == 2
    assert "nowhere does not exist or holds no files" in output
    assert Path(tmp_path / "out" / "runs").exists() is False
