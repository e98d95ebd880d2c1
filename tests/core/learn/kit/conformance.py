"""The conformance kit: what every registered method must hold, in every scenario that it names.

`CHECKS` are functions of a `Case`. A new method passes them by being registered; a test file that defines its
own method runs them with `Case(…, module=__file__)`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from streams import Bench, Learned, Script
from torch import nn

from core.errors import InvalidRecipe
from core.learn.method import Method
from core.learn.methods import registry
from core.learn.networks import HeadSpec, ImageSpec, build_network
from core.learn.state import State

# task → (snapshot step, kill step) of 12: after the first step, in the second epoch, before the very last
KILLS = {1: ((1, 2),), 2: ((7, 9), (11, 12))}

# family → its smallest architecture
SMALL: dict[str, dict[str, Any]] = {
    "mlp": {"name": "mlp", "hidden": [12]},
    "small-cnn": {"name": "small-cnn"},
    "small-resnet": {"name": "resnet20"},
    "dne": {"name": "dne", "layers": 2, "head_dim": 4, "heads": 2, "patch": 3},
    "vit": {"name": "vit", "layers": 2, "heads": 2, "hidden": 8, "mlp": 16, "patch": 3},
}


class ForkServer:
    """One process that forks a child per run."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fork_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**__import__("os").environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        )

    def run(self, spec: dict[str, Any], module: str | None) -> Learned:
        out = Path(spec["out"])
        out.mkdir(parents=True, exist_ok=True)
        (out / "spec.json").write_text(json.dumps(spec))
        assert self._process.stdin and self._process.stdout
        request = {
            "spec": str(out / "spec.json"),
            "architecture": spec["architecture"]["name"],
            "import": module,
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline().strip() == "0", "the child failed; see its traceback"
        return Learned(spec, [], out / "result")

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(10)


@dataclass
class Case:
    """One method in one scenario."""

    name: str
    scenario: str
    folder: Path
    server: ForkServer
    module: str | None = None

    @property
    def method(self) -> type[Method]:
        return registry.get(self.name)

    def bench(self, family: str = "mlp", **settings: Any) -> Bench:
        """A bench with a small network of this family, or of the first that the method accepts."""
        accepted = self.method.accepts.architectures
        if accepted is not None and family not in accepted:
            family = accepted[0]
        return Bench(self.folder, self.scenario, SMALL[family], **settings)


_finetuned: dict[str, dict[str, str]] = {}


def finetuned(bench: Bench) -> dict[str, str]:
    """The network digests of plain fine-tuning on a bench's two tasks: the same for all methods, so learned once."""
    key = repr((bench.scenario, bench.architecture, bench.size, bench.n, bench.drift))
    if key not in _finetuned:
        _finetuned[key] = bench.stream(2, method="finetune").network_digests
    return _finetuned[key]


def equals_finetuning_at_strength_zero(case: Case) -> None:
    neutral = case.method.neutral
    if neutral is None:
        assert case.method.no_neutral, "a method without neutral settings must say why"
        return
    bench = case.bench("small-resnet", size=8, n=9)
    ours = bench.stream(2, method={"name": case.name, **neutral.model_dump(by_alias=True)})
    assert ours.network_digests == finetuned(bench)


def differs_from_finetuning_at_its_defaults(case: Case) -> None:
    if case.method.neutral == case.method.Hyper():
        return
    bench = case.bench(drift=True)  # methods that only resolve conflicts need one
    assert bench.stream(2, method=case.name).network_digests != finetuned(bench)


def resumes_to_the_same_bits_after_a_kill(case: Case) -> None:
    bench = case.bench("small-cnn", size=6)
    first = bench.learn(bench.spec(1, None, method=case.name))
    for parent, number in ((None, 1), (first, 2)):
        undisturbed = bench.learn(bench.spec(number, parent, method=case.name))
        if undisturbed.result["steps"] == 0:
            continue  # nothing to resume: such a task is learned anew
        for snapshot_at, kill_at in KILLS[number]:
            spec = bench.spec(number, parent, method=case.name)
            again = bench.killed(spec, Script([snapshot_at], kill_at))
            torch.manual_seed(999)  # nothing of this process may matter
            assert again["snapshot"]
            assert bench.learn(again).digests == undisturbed.digests


def gives_the_same_bits_in_processes_of_its_own(case: Case) -> None:
    bench = case.bench()
    here = bench.stream(2, method=case.name)
    apart = bench.stream(2, lambda spec: case.server.run(spec, case.module), method=case.name)
    assert apart.digests == here.digests


def its_regularisers_act_from_the_second_task(case: Case) -> None:
    bench, method, seen = case.bench(), case.method, {}
    terms_of, after = method.loss_terms, method.after_step

    def loss_terms(self: Any, ctx: Any, batch: Any) -> Any:
        terms = terms_of(self, ctx, batch)
        for name, value in terms.items():
            seen.setdefault(name, []).append(float(value.detach()))
        return terms

    def after_step(self: Any, ctx: Any, batch: Any) -> None:
        seen.setdefault("penalty", []).append(self.penalty(ctx))
        after(self, ctx, batch)

    with mock.patch.multiple(method, loss_terms=loss_terms, after_step=after_step):
        first = bench.learn(bench.spec(1, None, method=case.name))
        seen.clear()
        bench.learn(bench.spec(2, first, method=case.name))
    for name in method.regularisers:
        assert max(seen.get(name, [0.0])) > 0, f"{name} never acted"


def takes_a_class_that_reappears(case: Case) -> None:
    again = (("ant", "bee"), ("bee", "cat"), ("ant", "cat"))
    last = case.bench(classes=again).stream(3, method=case.name)
    if case.scenario == "class":
        assert last.result["classes"] == ["ant", "bee", "cat"]


def growth_keeps_the_old_rows(case: Case) -> None:
    if case.scenario == "data":
        return
    bench, method, found = case.bench(), case.method, {}
    begin = method.begin_task

    def begin_task(self: Any, ctx: Any) -> None:
        found.update({name: p.detach().clone() for name, p in ctx.network.named_parameters()})
        begin(self, ctx)

    first = bench.learn(bench.spec(1, None, method=case.name))
    with mock.patch.object(method, "begin_task", begin_task):
        bench.learn(bench.spec(2, first, method=case.name))
    part = "head.1" if case.scenario == "task" else "head"
    for name, old in first.tensors(part).items():
        assert torch.equal(found[name][tuple(slice(size) for size in old.shape)], old)


def keeps_what_the_depth_freezes(case: Case) -> None:
    """Statistics included, also in a first task, whose other statistics move."""
    if min(case.method.accepts.depths) == 5:
        return  # the depth freezes nothing
    bench = case.bench("small-resnet", size=8, n=9)
    last = bench.stream(2, method=case.name, depth=min(case.method.accepts.depths), epochs=1)
    network = build_network(bench.architecture, ImageSpec(8, 1), case.scenario, HeadSpec(), 5)
    network.pretrained = False
    network = case.method(case.method.Hyper(), State()).build(network)
    network.take_shape({name for part in last.network_digests for name in last.tensors(part)})
    start = network.state_dict()
    for part in last.network_digests:
        for name, tensor in last.tensors(part).items():
            same = not name.startswith("head") and torch.equal(tensor, start[name])
            head = name.startswith("head") and (tensor.any() or last.result["steps"] == 0)
            assert same or head, name


def manages_without_the_gradient_of_a_parameter(case: Case) -> None:
    """As if no loss had reached it: no method fails, and it stays unless the method itself gives it a gradient."""
    bench, method, seen = case.bench(drift=True), case.method, []
    grads, after = method.penalty_grads, method.after_step

    def penalty_grads(self: Any, ctx: Any) -> None:
        next(iter(ctx.trainable.values())).grad = None
        grads(self, ctx)

    def after_step(self: Any, ctx: Any, batch: Any) -> None:
        name, parameter = next(iter(ctx.trainable.items()))
        seen.append((name, parameter.grad is None, parameter.detach().clone()))
        after(self, ctx, batch)

    first = bench.learn(bench.spec(1, None, method=case.name))
    with mock.patch.multiple(method, penalty_grads=penalty_grads, after_step=after_step):
        bench.learn(bench.spec(2, first, method=case.name))
    if not seen:
        return  # it takes no steps
    assert seen[-1][1] or method.project is not Method.project
    for (name, _, before), (same, missing, now) in pairwise(seen):
        assert torch.equal(now, before) or not missing or name != same  # of another stage


def refuses_tensors_outside_its_state(case: Case) -> None:
    method = case.method(case.method.Hyper(), State())
    for value in (torch.zeros(1), nn.Linear(1, 1), [torch.zeros(1)], {"a": torch.zeros(1)}):
        with pytest.raises(AttributeError):
            method.anything = value


def stores_only_safetensors_without_metadata(case: Case) -> None:
    last = case.bench().stream(2, method=case.name)
    for part in last.result["parts"]:
        data = (last.folder / part["file"]).read_bytes()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        assert header and "__metadata__" not in header


def learns_from_cached_features_or_says_why_not(case: Case) -> None:
    if 1 not in case.method.accepts.depths:
        return
    bench = case.bench(n=16)  # batches of 8: for those of a few images kernels round otherwise
    recipe = {"method": case.name, "depth": 1, "augment": "none", "batch_size": 8}
    cached = bench.stream(2, features="cached", **recipe)
    said = [event["message"] for event in cached.events if event["event"] == "log"]
    if case.method.no_feature_cache:
        assert cached.result["steps"] == 0 or any(case.method.no_feature_cache in line for line in said)
        return
    assert any("are computed once and cached" in line for line in said)
    computed = bench.stream(2, **recipe)
    for part in computed.network_digests:
        for name, tensor in computed.tensors(part).items():
            torch.testing.assert_close(cached.tensors(part)[name], tensor, rtol=1e-4, atol=1e-5)


def merges_or_says_why_not(case: Case) -> None:
    bench = case.bench()
    if reason := case.method.no_merge:
        with pytest.raises(InvalidRecipe, match=reason):
            bench.spec(1, None, method=case.name, merge={"weight": 0.5})
        return
    first = bench.learn(bench.spec(1, None, method=case.name))
    plain, whole, half = (
        bench.learn(bench.spec(2, first, method=case.name, merge=merge))
        for merge in (None, {"weight": 1.0}, {"weight": 0.5})
    )
    assert whole.digests == plain.digests
    assert half.digests != plain.digests  # with prompts, no part of the plain network moves
    again = bench.killed(bench.spec(2, first, method=case.name, merge={"weight": 0.5}), Script([11], 12))
    assert bench.learn(again).digests == half.digests


def rebalances_or_says_why_not(case: Case) -> None:
    """Killed within the stage and at its first step, it ends with the same bits."""
    if case.scenario == "task":
        return
    bench, recipe = case.bench(), {"method": case.name, "rebalance": {"epochs": 1}}
    if case.method.remembers is None:
        with pytest.raises(InvalidRecipe, match=case.method.no_rebalance):
            bench.spec(1, None, **recipe)
        return
    first = bench.learn(bench.spec(1, None, method=case.name))
    undisturbed = bench.learn(bench.spec(2, first, **recipe))
    steps = undisturbed.result["steps"]
    for snapshot_at in (steps - 6, steps - 3):  # after the last step of training, and within the stage
        again = bench.killed(bench.spec(2, first, **recipe), Script([snapshot_at], steps - 1))
        torch.manual_seed(999)
        assert bench.learn(again).digests == undisturbed.digests


CHECKS = (
    equals_finetuning_at_strength_zero,
    differs_from_finetuning_at_its_defaults,
    resumes_to_the_same_bits_after_a_kill,
    gives_the_same_bits_in_processes_of_its_own,
    its_regularisers_act_from_the_second_task,
    takes_a_class_that_reappears,
    growth_keeps_the_old_rows,
    keeps_what_the_depth_freezes,
    manages_without_the_gradient_of_a_parameter,
    refuses_tensors_outside_its_state,
    stores_only_safetensors_without_metadata,
    learns_from_cached_features_or_says_why_not,
    merges_or_says_why_not,
    rebalances_or_says_why_not,
)
