"""Runs that were killed go on from their last snapshot."""

import pytest
from experiments import learn_run

from bench.experiment import unfinished
from bench.experiment.data import ExperimentDatasetCache
from bench.experiment.grid import expand_plan_to_runs
from bench.experiment.runs import (
    ExperimentResultStore,
    execute_and_record_run,
    train_and_store_base,
)
from core.learning.training.control import EmptyControlRequestSource

METHOD = """
scenarios = ["class"]
[[methods]]
name = "der++"
recipe.method = "der++"
"""


class Killed(BaseException):
    """Nothing catches it, as nothing catches a signal."""


class Kill(EmptyControlRequestSource):
    """Ends the run when it has been looked at `polls` times."""

    def __init__(self, polls):
        self._left = polls

    @property
    def has_pending_request(self):
        self._left -= 1
        if self._left < 0:
            raise Killed
        return False


@pytest.fixture
def run(runs, monkeypatch):
    """One run of two stages with a snapshot after every step."""
    monkeypatch.setattr(unfinished, "SNAPSHOT_S", -1.0)
    return runs(METHOD)[0]


def remove_times(stages):
    return [{k: v for k, v in stage.items() if not k.startswith("seconds")} for stage in stages]


def test_a_run_that_was_killed_anywhere_ends_as_an_undisturbed_one(run, tmp_path):
    whole = learn_run(run, ExperimentResultStore(tmp_path / "a"))
    steps = sum(stage["steps"] for stage in whole["stages"])
    store = ExperimentResultStore(tmp_path / "b")
    polls, kills = 2, 0
    while True:
        try:
            record = learn_run(run, store, Kill(polls))
            break
        except Killed:
            kills += 1
    assert steps / (polls + 1) <= kills <= steps
    assert remove_times(record["stages"]) == remove_times(whole["stages"])


def test_a_stage_that_is_done_is_not_learned_again(run, tmp_path, monkeypatch):
    store = ExperimentResultStore(tmp_path)
    first = learn_run(run, store)
    monkeypatch.setattr(
        "bench.experiment.runs.run_job_and_evaluate",
        lambda *arguments: pytest.fail("learned again"),
    )
    assert learn_run(run, store) == first


def test_seconds_count_up_to_the_snapshot_of_the_attempt_before(tmp_path):
    stage = unfinished.ResumableJobState(tmp_path)
    (tmp_path / "one").mkdir()
    stage._begun -= 100
    stage.replace_snapshot_on_event({"event": "snapshot", "path": str(tmp_path / "one")})
    stage._begun -= 1000
    again = unfinished.ResumableJobState(tmp_path)
    assert again.snapshot == str(tmp_path / "one") and 100 <= again.elapsed_seconds < 200
    (tmp_path / "two").mkdir()
    again.replace_snapshot_on_event({"event": "snapshot", "path": str(tmp_path / "two")})
    assert not (tmp_path / "one").exists() and (tmp_path / "two").exists()


def test_what_nobody_wants_any_more_is_removed_and_the_rest_stays(tmp_path):
    store = ExperimentResultStore(tmp_path)
    for key in ("wanted", "of-an-older-plan"):
        store.get_unfinished_folder(key).mkdir()
    store.remove_unwanted_runs({"wanted"})
    assert [p.name for p in (tmp_path / "unfinished").iterdir()] == ["wanted"]


def test_new_bytes_are_those_of_parts_that_the_version_before_does_not_have(runs, tmp_path):
    extra = """
        architecture = { name = "dne", layers = 2, head_dim = 4, heads = 2 }
        [[methods]]
        name = "dne"
        recipe.method = "dne"
        """
    (run,), store = runs(extra), ExperimentResultStore(tmp_path)
    stages = learn_run(run, store)["stages"]
    parts = {
        p.stem: p.stat().st_size
        for p in (
            store.get_unfinished_folder(run.result_inputs_digest) / "2/result/parts"
        ).iterdir()
    }
    images = parts["exemplars.images.2"]
    assert stages[1]["new_bytes"] == parts["expert.2"] + parts["head"] + parts["exemplars"] + images
    assert parts["backbone.1"] > 0 and parts["backbone.2"] > 0


def test_an_ended_run_leaves_a_record_and_nothing_else(run, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "bench.experiment.runs.PipeControlRequestSource", lambda fd: EmptyControlRequestSource()
    )
    store = ExperimentResultStore(tmp_path)
    execute_and_record_run(run, store, 0)
    assert (
        store.read_run_record(run.result_inputs_digest)["status"] == "done"
        and not store.get_unfinished_folder(run.result_inputs_digest).exists()
    )


def test_a_base_that_was_killed_goes_on(plan, data, tmp_path, monkeypatch):
    monkeypatch.setattr(unfinished, "SNAPSHOT_S", -1.0)
    extra = """
        [[methods]]
        name = "finetune"
        base = "small"
        [[bases]]
        name = "small"
        architecture = { name = "mlp", hidden = [8] }
        recipe = { epochs = 1, batch_size = 8 }
        images = { path = "digits", classes = "4-9", train_per_class = 10, test_per_class = 5 }
        """
    base = expand_plan_to_runs(
        plan(extra), ExperimentDatasetCache(data, tmp_path / "cache"), "cpu"
    )[0][0]
    store = ExperimentResultStore(tmp_path)
    monkeypatch.setattr("bench.experiment.runs.PipeControlRequestSource", lambda fd: Kill(3))
    with pytest.raises(Killed):
        train_and_store_base(base, store, 0)
    assert list(store.get_unfinished_folder(base.result_inputs_digest).glob("snapshot-*"))
    monkeypatch.setattr(
        "bench.experiment.runs.PipeControlRequestSource", lambda fd: EmptyControlRequestSource()
    )
    train_and_store_base(base, store, 0)
    assert (
        store.read_base_record(base.result_inputs_digest)["steps"] == 8
        and not store.get_unfinished_folder(base.result_inputs_digest).exists()
    )
