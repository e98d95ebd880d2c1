"""Visual prompt tuning over a stream: what moves, what old tasks keep, and what version 0 is
measured with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from recipes import resolve_patch
from streams import Bench, Learned, run_learn_task

from core.contract.manifest import Manifest
from core.errors import InvalidRecipe
from core.learning.data.dataset import DataError
from core.learning.evaluation.predicting import load_version_network
from core.learning.methods.vpt import VptMethod
from core.learning.networks.prompts import PromptedNetwork
from core.learning.training.failures import classify_job_error

VIT = {"name": "vit", "layers": 2, "heads": 2, "hidden": 8, "mlp": 16, "patch": 3}
PER_TASK = {"name": "vpt", "prompts": 3, "per_task": True}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, architecture=VIT)


@pytest.fixture
def tasks(tmp_path: Path) -> Bench:
    return Bench(tmp_path, "task", VIT)


def compute_stored_logits(learned: Learned, task: int | None = None) -> torch.Tensor:
    """Return the logits of the version as it is stored, rebuilt from manifest and parts."""
    spec, version = learned.spec, learned.as_parent()
    known = {key: spec[key] for key in ("architecture", "image", "scenario")}
    network = load_version_network(
        Manifest.from_json({**known, **version["manifest"]}),
        {p["name"]: Path(p["path"]) for p in version["parts"]},
    )
    images = torch.randn(6, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        return network(images, task)


def test_no_prompts_equal_a_linear_probe_bit_for_bit(bench: Bench) -> None:
    recipe: dict[str, Any] = {"head": {"init": "default"}, "optimizer": {"weight_decay": 0.01}}
    probe = bench.stream(2, preset="linear-probe", **recipe)
    ours = bench.stream(2, method={"name": "vpt", "prompts": 0}, **recipe)
    assert ours.network_digests == probe.network_digests
    assert ours.result["results"] == probe.result["results"]


def test_the_backbone_neither_moves_nor_gets_gradients_and_stays_in_eval(bench: Bench) -> None:
    seen: list[tuple[bool, bool, set[str]]] = []

    def after_step(self: VptMethod, ctx: Any, batch: Any) -> None:
        backbone = ctx.network.backbone
        clean = all(p.grad is None and not p.requires_grad for p in backbone.parameters())
        moving = {
            n
            for n, p in ctx.network.named_parameters()
            if p.grad is not None and p.grad.abs().sum() > 0
        }
        seen.append((clean, any(m.training for m in backbone.modules()), moving))

    first = bench.learn_task(1, method="vpt")
    with mock.patch.object(VptMethod, "after_step", after_step):
        second = bench.learn_task(2, first, method="vpt")
    assert seen and all(clean and not training for clean, training, _ in seen)
    assert seen[-1][2] == {"prompts.shared", "head.weight", "head.bias"}
    changed = {name for name, digest in second.digests.items() if first.digests.get(name) != digest}
    assert {name for name in changed if not name.startswith("answers/")} == {
        "prompts",
        "head",
        "result.json",
    }


def test_version_0_is_measured_without_prompts(tmp_path: Path) -> None:
    """Random prompts in the baseline would make forgetting look better than it is."""
    bench = Bench(tmp_path, "data", VIT)
    forward, phase = PromptedNetwork.forward, [""]
    seen: list[str] = []

    def record_phase_and_forward(self: PromptedNetwork, *args: Any) -> torch.Tensor:
        seen.append(phase[0])
        return forward(self, *args)

    def record_phase(event: dict[str, Any]) -> None:
        phase[0] = event.get("phase", phase[0]) if event["event"] == "phase" else phase[0]

    def learn_with_recording(spec: dict[str, Any]) -> Learned:
        seen.clear()
        Path(spec["out"]).mkdir()
        with mock.patch.object(PromptedNetwork, "forward", record_phase_and_forward):
            run_learn_task(spec, record_phase)
        return Learned(spec, [], Path(spec["out"]) / "result")

    first = learn_with_recording(bench.spec(1, None, method="vpt"))
    assert seen and "measure" not in seen
    second = learn_with_recording(bench.spec(2, first, method="vpt"))
    assert (
        seen.count("measure") == 1
    )  # the parent, as it was deployed; version 0 is in the same phase
    assert {row["version"] for row in second.result["results"]} >= {"base", "parent"}
    plain = bench.stream(2, preset="linear-probe").result["results"]
    rows = second.result["results"]
    assert [r for r in rows if r["version"] == "base"] == [
        r for r in plain if r["version"] == "base"
    ]


def test_prompts_per_task_forget_nothing_at_all(tasks: Bench) -> None:
    recipe = {"method": PER_TASK, "optimizer": {"weight_decay": 0.1}}
    first = last = tasks.learn_task(1, **recipe)
    for number in (2, 3):
        last = tasks.learn_task(number, last, **recipe)
    assert torch.equal(compute_stored_logits(last, 1), compute_stored_logits(first, 1))
    assert last.result["network"]["tasks"] == [1, 2, 3]
    assert {name for name in first.digests if last.digests.get(name) != first.digests[name]} == {
        "result.json"
    }


def test_shared_prompts_change_what_old_tasks_answer(tasks: Bench) -> None:
    first, second = tasks.learn_tasks(2, method="vpt")
    assert not torch.equal(compute_stored_logits(second, 1), compute_stored_logits(first, 1))


def test_prompts_per_task_survive_a_kill(tasks: Bench) -> None:
    first, undisturbed = tasks.learn_tasks(2, method=PER_TASK)
    assert tasks.resumed(2, first, 7, 9, method=PER_TASK).digests == undisturbed.digests


def test_training_makes_better_prompts(bench: Bench) -> None:
    recipe = {"epochs": 8, "optimizer": {"name": "adam", "lr": 0.02}}
    prompts = bench.learn_task(1, method={"name": "vpt", "prompts": 4}, **recipe)
    probe = bench.learn_task(1, preset="linear-probe", **recipe)

    def read_last_loss(learned: Learned) -> float:
        return [e["loss"] for e in learned.events if e["event"] == "progress"][-1]

    assert read_last_loss(prompts) < read_last_loss(probe)


def test_prompts_move_at_lr_and_the_head_at_its_own_rate(bench: Bench) -> None:
    recipe = {"method": "vpt", "epochs": 1, "seed": 4}
    untouched = bench.learn_task(1, **recipe, optimizer={"lr": 1e-30, "head_lr": 0.1})
    moved = bench.learn_task(1, **recipe, optimizer={"lr": 0.1, "head_lr": 0.1})
    grow, first = PromptedNetwork.add_task_classes, {}

    def grow_and_keep_prompt(self: PromptedNetwork, *args: Any) -> None:
        grow(self, *args)
        first["prompts.shared"] = self.prompts["shared"].detach().clone()

    with mock.patch.object(PromptedNetwork, "add_task_classes", grow_and_keep_prompt):
        bench.learn_task(1, **recipe)
    assert torch.equal(untouched.tensors("prompts")["prompts.shared"], first["prompts.shared"])
    assert untouched.tensors("head")["head.weight"].abs().max() > 0
    assert not torch.equal(moved.tensors("prompts")["prompts.shared"], first["prompts.shared"])


def test_the_recipe_says_depth_one_and_takes_no_other(bench: Bench) -> None:
    assert resolve_patch({"method": "vpt"}, "class").depth == 1
    assert resolve_patch({"method": "finetune"}, "class").depth == 5
    with pytest.raises(InvalidRecipe, match="depth: vpt accepts 1"):
        resolve_patch({"method": "vpt", "depth": 5}, "class")


@pytest.mark.parametrize("scenario", ["data", "class"])
def test_prompts_per_task_need_a_task_at_prediction(scenario: str) -> None:
    assert resolve_patch({"method": PER_TASK}, "task").method["per_task"] is True
    with pytest.raises(InvalidRecipe, match=r"method\.per_task: only in the task scenario"):
        resolve_patch({"method": PER_TASK}, scenario)


def test_the_manifest_says_what_was_made_of_the_network(bench: Bench) -> None:
    learned = bench.learn_task(1, method="vpt")
    assert learned.result["network"] == {
        "family": "vpt",
        "prompts": 10,
        "deep": True,
        "tasks": None,
    }
    assert bench.learn_task(1, method="finetune").result["network"] is None


@pytest.mark.parametrize(("before", "after"), [("finetune", "vpt"), ("vpt", "er")])
def test_a_version_of_another_family_is_refused(bench: Bench, before: str, after: str) -> None:
    first = bench.learn_task(1, method=before)
    with pytest.raises(DataError, match=f"version 1 is a .* network, and {after} trains"):
        bench.learn_task(2, first, method=after)
    from_the_base = bench.learn_task(2, method=after)
    assert (from_the_base.result["network"] is None) is (after == "er")


@pytest.mark.parametrize("change", [{"prompts": 4}, {"deep": False}])
def test_the_shape_of_the_prompts_is_fixed_with_the_first_task(
    bench: Bench, change: dict[str, Any]
) -> None:
    first = bench.learn_task(1, method="vpt")
    with pytest.raises(DataError, match="fixed with its first task"):
        bench.learn_task(2, first, method={"name": "vpt", **change})


def test_an_architecture_without_tokens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="vpt works on architectures of vit, not on mlp") as caught:
        Bench(tmp_path).stream(1, method="vpt")
    assert classify_job_error(caught.value) == "data"
