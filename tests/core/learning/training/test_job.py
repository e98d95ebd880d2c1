"""The job: files in, files and events out.

It can be resumed, stopped and controlled through a pipe, and reports failures truthfully.
"""

import fcntl
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from conformance import SMALL, build_shallow_resnets
from safetensors.torch import save_file
from streams import Bench, Script

from core.learning.data.dataset import DataError
from core.learning.methods.finetune import FinetuneMethod
from core.learning.state import load_tensors, save_tensors
from core.learning.training import job
from core.learning.training.control import PipeControlRequestSource
from core.learning.training.failures import classify_job_error
from core.learning.training.loop import NonFiniteTrainingError

ROOT = Path(__file__).parents[4]
PIPE_BYTES = 4096
"""Capacity of the pipe of events, which is about 25 events."""


def test_the_events_tell_the_phases_in_order_and_end_with_the_result(bench) -> None:
    learned = bench.learn_task(1, data_report="warn")
    phases = [e["phase"] for e in learned.events if e["event"] == "phase"]
    assert phases == ["measure", "inspect", "train", "consolidate", "evaluate"]
    assert learned.events[-1] == {"event": "done", "path": str(learned.folder)}


def test_progress_counts_steps_to_the_total_and_stays_brief(bench) -> None:
    learned = bench.learn_task(1, epochs=3, batch_size=1)
    progress = [e for e in learned.events if e["event"] == "progress"]
    assert progress[-1]["step"] == progress[-1]["total_steps"] == 3 * bench.n
    assert len(progress) <= 3 * 20
    assert [e["step"] for e in progress] == sorted(e["step"] for e in progress)


def test_results_measure_every_task_that_the_new_version_can_answer(bench) -> None:
    learned = bench.stream(2, method="finetune")
    rows = [(r["version"], r["task"], r["total"]) for r in learned.result["results"]]
    assert rows == [("new", 1, 8), ("new", 2, 8)]
    for row in learned.result["results"]:
        assert row["correct"] == sum(right for right, _ in row["per_class"].values())


def test_in_the_data_scenario_base_and_parent_are_measured_before(tmp_path) -> None:
    learned = Bench(tmp_path, "data").stream(2)
    assert [r["version"] for r in learned.result["results"]] == ["base", "parent", "new", "new"]


@pytest.mark.parametrize(("init", "moved"), [("zero", False), ("default", True)])
def test_in_the_data_scenario_training_starts_from_rows_of_the_recipes_init(
    tmp_path, init, moved
) -> None:
    bench = Bench(tmp_path, "data")
    frozen = {"depth": 1, "optimizer": {"lr": 1e-12}, "epochs": 1, "head": {"init": init}}
    learned = bench.learn_task(1, **frozen)
    weight = learned.tensors("head")["head.weight"]
    assert weight.shape == (2, 12) and bool(weight.abs().max() > 1e-3) is moved
    assert (
        learned.cell("parent", 1)["correct"] == 4
    )  # version 0 itself answers by zero rows: always the first class


def test_labels_are_mapped_by_name_when_a_class_reappears(tmp_path) -> None:
    bench = Bench(tmp_path, classes=(("bee", "cat"), ("ant", "bee")))
    learned = bench.stream(2, method={"name": "er", "buffer": 100}, epochs=30, augment="none")
    assert learned.result["classes"] == ["bee", "cat", "ant"]
    assert all(r["correct"] >= 7 for r in learned.result["results"])


def test_threads_a_parameter_count_and_an_update_norm_are_reported(bench) -> None:
    result = bench.stream(2).result
    assert result["environment"]["threads"] == 1
    assert result["trainable"] == result["parameters"] > 0
    assert result["update_norm"]["backbone"] > 0 and result["update_norm"]["relative"] > 0


def test_a_stop_writes_a_snapshot_and_no_result(bench) -> None:
    spec = bench.spec(1, None)
    learned = bench.learn(spec, Script(stop_at=3))
    assert [e["event"] for e in learned.events[-2:]] == ["snapshot", "stopped"]
    assert not learned.folder.exists()
    path = Path(learned.events[-2]["path"])
    assert sorted(p.name for p in path.iterdir()) == ["snapshot.json", "tensors.safetensors"]
    undisturbed = bench.learn_task(1)
    assert bench.learn({**spec, "snapshot": str(path)}).digests == undisturbed.digests


@pytest.mark.parametrize(
    "recipe",
    [
        {"validation": 0.25, "epochs": 4},
        {"optimizer": {"name": "adam", "lr": 0.01, "clip": 0.5, "warmup_steps": 3}},
        {"optimizer": {"name": "adamw", "weight_decay": 0.1, "carry_state": True, "head_lr": 0.01}},
        # The case before it carries more.
        pytest.param({"optimizer": {"carry_state": True}}, marks=pytest.mark.campaign),
        {
            "method": {"name": "lwf", "warmup_epochs": 2},
            "epochs": 1,
            "optimizer": {"carry_state": True},
        },
        {"sampler": "stratified", "augment": "rand-augment"},
        {"depth": 2, "head": {"init": "default"}},
    ],
    ids=lambda recipe: next(iter(recipe)),
)
@build_shallow_resnets()
def test_a_kill_changes_no_bit_whatever_the_recipe(tmp_path, recipe) -> None:
    network = {"name": "resnet20", "width": 8} if "depth" in recipe else {"name": "small-cnn"}
    bench = Bench(tmp_path, architecture=network, n=11, recipe=recipe)
    first, second = bench.learn_tasks(2)
    for number, parent, undisturbed in ((1, None, first), (2, first, second)):
        steps = undisturbed.result["steps"]
        for at in (steps // 2, steps - 1) if number == 2 else (steps // 2,):
            assert bench.resumed(number, parent, at, at + 1).digests == undisturbed.digests


def test_a_second_kill_after_a_resume_changes_no_bit(bench) -> None:
    undisturbed = bench.learn_task(1)
    again = bench.killed(bench.spec(1, None), Script([2], 3))
    again = bench.killed(again, Script([4], 6))
    assert bench.learn(again).digests == undisturbed.digests


def list_relearn_warnings(learned) -> list[str]:
    """Return the warnings of the log that a task is learned again."""
    return [message for message in learned.logged("warning") if "learned again" in message]


def test_a_task_is_learned_again_where_the_snapshot_is_of_another_recipe(bench) -> None:
    again = bench.killed(bench.spec(1, None), Script([2], 3))
    again["recipe"]["epochs"] = 7
    learned = bench.learn(again)
    assert (
        len(list_relearn_warnings(learned)) == 1
        and "another task or recipe" in list_relearn_warnings(learned)[0]
    )
    assert learned.network_digests == bench.learn_task(1, epochs=7).network_digests


@pytest.mark.parametrize(
    "damage", ["missing tensor", "other shape", "no field", "unknown part of state"]
)
def test_a_task_is_learned_again_where_the_snapshot_does_not_fit_the_code(bench, damage) -> None:
    again = bench.killed(bench.spec(1, None), Script([2], 3))
    tensors_path = Path(again["snapshot"]) / "tensors.safetensors"
    json_path = Path(again["snapshot"]) / "snapshot.json"
    tensors, document = load_tensors(tensors_path), json.loads(json_path.read_text())
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    if damage == "missing tensor":
        del tensors["net/head.weight"]
    elif damage == "other shape":
        tensors["net/head.weight"] = torch.zeros(3, 3)
    elif damage == "no field":
        del document["position"]
    else:
        tensors["state/dreams/images"] = torch.zeros(1)
    tensors_path.unlink()
    save_tensors(tensors, tensors_path)
    json_path.write_text(json.dumps(document))
    learned = bench.learn(again)
    assert len(list_relearn_warnings(learned)) == 1
    assert learned.digests == bench.learn_task(1).digests


def test_a_snapshot_goes_on_where_its_recipe_lacks_what_has_a_default(bench) -> None:
    again = bench.killed(bench.spec(1, None), Script([2], 3))
    path = Path(again["snapshot"]) / "snapshot.json"
    document = json.loads(path.read_text())
    del document["recipe"]["train_ce"]
    path.write_text(json.dumps(document))
    learned = bench.learn(again)
    assert list_relearn_warnings(learned) == []
    assert learned.digests == bench.learn_task(1).digests


@pytest.mark.parametrize(
    ("before", "devices"), [(["cuda"], ["cuda", "cpu"]), (["cpu"], None), ([], None)]
)
def test_a_run_that_goes_on_on_another_kind_of_device_says_so_and_names_both(
    bench, before, devices
) -> None:
    again = bench.killed(bench.spec(1, None), Script([2], 3))
    path = Path(again["snapshot"]) / "snapshot.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "devices": before}))
    learned = bench.learn(again)
    assert learned.result["environment"].get("devices") == devices
    warned = any(
        "started on cuda and continues on cpu" in text for text in learned.result["warnings"]
    )
    assert warned is (devices is not None)


def test_validation_deploys_the_best_validated_epoch(bench) -> None:
    learned = bench.learn_task(1, validation=0.25, epochs=4)
    values = learned.metric("validation_accuracy")
    assert len(values) == 4 and learned.metric("deployed_epoch") == [values.index(max(values)) + 1]


def test_a_diverged_loss_is_an_error_of_its_kind(bench) -> None:
    with pytest.raises(NonFiniteTrainingError) as error:
        bench.learn_task(1, optimizer={"lr": 1e30})
    assert classify_job_error(error.value) == "non-finite"


def test_weights_that_the_last_step_ruined_are_not_published(bench, monkeypatch) -> None:
    after = FinetuneMethod.after_step

    def after_step(self, ctx, batch):
        after(self, ctx, batch)
        if ctx.epoch == 1 and ctx.step == 11:  # of 12
            ctx.network.head.weight.data[0, 0] = torch.nan

    monkeypatch.setattr(FinetuneMethod, "after_step", after_step)
    with pytest.raises(NonFiniteTrainingError, match=r"head\.weight"):
        bench.learn_task(1, method="finetune")


def test_a_dataset_with_labels_out_of_range_is_an_error_of_kind_data(bench) -> None:
    spec = bench.spec(1, None)
    images = torch.zeros(4, 6, 6, 1, dtype=torch.uint8)
    save_file({"images": images, "labels": torch.full((4,), 9)}, spec["task"]["train"])
    with pytest.raises(DataError) as error:
        bench.learn(spec)
    assert classify_job_error(error.value) == "data"


def test_one_image_of_one_class_can_be_learned(tmp_path) -> None:
    bench = Bench(tmp_path, classes=(("ant",),), n=1, n_held_out=1)
    learned = bench.learn_task(1)
    assert learned.result["results"][0]["correct"] == 1 and learned.warns("one class only")


def test_a_remainder_of_one_image_joins_the_batch_before_it(tmp_path) -> None:
    bench = Bench(tmp_path, architecture={"name": "slim-resnet18"}, size=8, n=9)
    assert bench.learn_task(1, batch_size=4).result["steps"] == 2 * 2


def open_pipes():
    """Open a pipe for events and one for control, and return (read, write, read, write)."""
    return (*os.pipe(), *os.pipe())


def start_job_process(spec):
    """Start the job as a process, and return it with its events and the control pipe's write end.

    The pipe holds few events. A job whose events are not read therefore waits.
    """
    Path(spec["out"]).mkdir(parents=True, exist_ok=True)
    path = Path(spec["out"]) / "spec.json"
    path.write_text(json.dumps(spec))
    out_read, out_write, control_read, control_write = open_pipes()
    fcntl.fcntl(out_write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "core.learning.training.job",
            str(path),
            str(out_write),
            str(control_read),
        ],
        cwd=ROOT,
        pass_fds=(out_write, control_read),
    )
    os.close(out_write)
    os.close(control_read)
    return process, os.fdopen(out_read), control_write


FAMILIES = {
    "fine-tuning": "finetune",
    "with OLOR": {"preset": "olor-sgd"},
    "FAST": {"preset": "fast"},
    "importance of weights": "ewc-online",
    "importance along the path": "si",
    "distillation": "lwf",
    "replay": "er",
    "replay of logits": "der++",
    "projection": "gem",
    "exemplars": "icarl",
    "prompts": "vpt",
}
"""A method, or a whole recipe, of each family."""


# `test_conformance.py` shows for each method that what a snapshot holds is enough, and
# tests/faults/test_worker_deaths.py kills a process that learns in each build.
@pytest.mark.campaign
@pytest.mark.parametrize(
    "recipe", [pytest.param(recipe, id=name) for name, recipe in FAMILIES.items()]
)
def test_a_real_kill_9_in_a_second_task_changes_no_bit(tmp_path, recipe) -> None:
    recipe = {"epochs": 40, **(recipe if isinstance(recipe, dict) else {"method": recipe})}
    bench = Bench(
        tmp_path, **({"architecture": SMALL["vit"]} if recipe.get("method") == "vpt" else {})
    )
    first = bench.learn_task(1, **{**recipe, "epochs": 2})
    undisturbed = bench.learn_task(2, first, **recipe)
    spec = bench.spec(2, first, **recipe)
    process, events, control = start_job_process(spec)
    snapshot = None
    for line in events:
        event = json.loads(line)
        if event["event"] == "progress" and snapshot is None:
            os.write(control, b"s")
        if event["event"] == "snapshot":
            snapshot = event["path"]  # its 240 steps are far from over: their events fill the pipe
            process.send_signal(signal.SIGKILL)
            break
    assert process.wait(60) == -signal.SIGKILL
    events.close()
    os.close(control)
    assert snapshot is not None
    assert bench.learn({**spec, "snapshot": snapshot}).digests == undisturbed.digests


def test_main_reports_a_failure_as_an_event_and_an_exit_status(bench) -> None:
    spec = bench.spec(1, None)
    spec["recipe"]["method"] = {"name": "magic"}
    path = bench.folder / "spec.json"
    path.write_text(json.dumps(spec))
    out_read, out_write, control_read, control_write = open_pipes()
    assert job.main(str(path), out_write, control_read) == 1
    with os.fdopen(out_read) as events:
        event = json.loads(events.read())
    assert (event["event"], event["kind"]) == ("error", "code") and "magic" in event["message"]
    assert control_write  # stays open: closing it would end this process


def test_a_closed_control_pipe_ends_the_process(monkeypatch) -> None:
    ended: queue.Queue[int] = queue.Queue()

    def record_exit_status(status: int) -> None:
        ended.put(status)
        threading.Event().wait()  # the thread ends with the process

    monkeypatch.setattr(os, "_exit", record_exit_status)
    read, write = os.pipe()
    PipeControlRequestSource(read)
    os.close(write)
    assert ended.get(timeout=60) == 3


@pytest.mark.parametrize(
    "rounds",
    [
        ((b"s", ["s", None]), (b"ps", ["p", None]), (b"s", ["p", None])),
        ((b"aass", ["s", "a", None]), (b"apas", ["p", None])),
    ],
    ids=["a stop is not forgotten", "requests that arrive together are each granted"],
)
def test_the_pipe_asks_for_snapshots_and_a_stop_replaces_all_else(rounds) -> None:
    read, write = os.pipe()
    control = PipeControlRequestSource(read)
    for data, wanted in rounds:
        os.write(write, data)
        deadline = time.monotonic() + 60
        while not control.has_pending_request:
            assert time.monotonic() < deadline, "the request did not arrive"
            time.sleep(0.01)
        assert [control.take_control_request() for _ in wanted] == wanted
    assert write  # stays open, as above


def test_the_base_of_another_model_lends_its_backbone_alone(bench, tmp_path) -> None:
    lender = bench.learn_task(1)
    spec = bench.spec(1, None, method="finetune", depth=1)
    parts = [p for p in lender.as_parent()["parts"] if p["type"] == "backbone"]
    known = {name: spec[name] for name in ("architecture", "image", "scenario")}
    manifest = {"base": {"model": "other", "version": 1}, "classes": [], "heads": [], **known}
    base = {"version": 0, "manifest": manifest, "parts": parts}
    learned = bench.learn({**spec, "parent": base, "base": base})
    backbones = {n: d for n, d in lender.digests.items() if n.startswith("backbone")}
    assert {n: learned.digests[n] for n in backbones} == backbones


def test_snapshots_count_epochs_as_progress_does_through_all_stages(bench) -> None:
    recipe = {"method": {"name": "lwf", "warmup_epochs": 2}, "epochs": 3}
    first = bench.learn_task(1, **recipe)
    steps = -(-bench.n // 4)  # of an epoch
    learned = bench.learn(bench.spec(2, first, **recipe), Script(range(1, 5 * steps + 1)))
    told = {e["step"]: e["epoch"] for e in learned.events if e["event"] == "progress"}
    kept = {e["step"]: e["epoch"] for e in learned.events if e["event"] == "snapshot"}
    assert len(kept) == 5 * steps
    assert {step: kept[step] for step in told} == told
    assert (kept[1], kept[steps], kept[steps + 1], kept[5 * steps]) == (1, 1, 2, 5)
    assert {e["epochs"] for e in learned.events if e["event"] == "progress"} == {5}


def test_the_log_tells_what_is_measured_trained_and_kept(bench) -> None:
    first = bench.learn_task(1, method="finetune")
    said = bench.learn_task(2, first, method="finetune", data_report="warn").logged()
    assert (
        said[0]
        == "Measuring version 1, which the task starts from, on the held-out images of this task."
    )
    assert said[1].startswith("Looking through the images before they are learned")
    said = [
        said[0],
        *[line for line in said[2:] if "near" not in line and "wrong label" not in line],
    ]
    assert said[1].startswith(
        "Training by finetune with sgd at depth 5: 2 epochs, 12 steps, on 22 images of 2 classes; "
    )
    assert [line.split()[0] for line in said[2:]] == ["Trained.", "Measuring", "The", "Accuracy"]
    assert said[-1].startswith("Accuracy of the new version: task 1 ") and ", task 2 " in said[-1]


def test_the_log_of_a_run_that_goes_on_says_from_where(bench) -> None:
    again = bench.killed(bench.spec(1, None), Script([8], 9))
    said = bench.learn(again).logged()
    assert said[0] == "Going on from a snapshot: epoch 2 of 2, step 8 of 12."
