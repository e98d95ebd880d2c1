"""The conformance kit: what every registered method must hold, in every scenario that it names.

`CHECKS` are functions of a `Case`. A new method passes them by being registered; a test file that
defines its own method runs them with `Case(…, module=__file__)`. All checks of a case share two
tasks that were learned once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from streams import Bench, Learned
from torch import nn

from core.errors import InvalidRecipe
from core.learning.methods import registry
from core.learning.methods.method import Method
from core.learning.networks import HeadSpec, ImageSpec, build_network
from core.learning.networks.backbones import resnet
from core.learning.state import MethodState

# task → (snapshot step, kill step) of 12: after the first step, in the second epoch, before the
# very last
KILLS = {1: ((1, 2),), 2: ((7, 9), (11, 12))}

# family → its smallest architecture
SMALL: dict[str, dict[str, Any]] = {
    "mlp": {"name": "mlp", "hidden": [12]},
    "small-cnn": {"name": "small-cnn"},
    "small-resnet": {"name": "resnet20", "width": 8},
    "dne": {"name": "dne", "layers": 2, "head_dim": 4, "heads": 2, "patch": 3},
    "vit": {"name": "vit", "layers": 2, "heads": 2, "hidden": 8, "mlp": 16, "patch": 3},
}

SMALLER: dict[str, dict[str, Any]] = {"analytic": {"name": "analytic", "projection": 100}}
"""Method → its settings where the defaults take seconds: `analytic` decomposes a matrix of as many
rows as there are projections.
"""


class ShallowResNet(resnet.SmallResNet):
    """One block a stage: every kind of layer and every depth of the deeper ones, at a third of
    their time.
    """

    def __init__(self, width: int, blocks: Sequence[int], image: ImageSpec) -> None:
        super().__init__(width, [1] * len(blocks), image)


@contextmanager
def build_shallow_resnets() -> Iterator[None]:
    """Build the small ResNets with one block a stage."""
    with mock.patch.object(resnet, "SmallResNet", ShallowResNet):
        yield


class ForkServer:
    """One process that forks a child per run; it starts with the first run."""

    @cached_property
    def _process(self) -> subprocess.Popen[str]:
        folders = (str(Path(__file__).parents[4]), os.environ.get("PYTHONPATH"))
        return subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fork_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))},
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
        if "_process" in vars(self):
            self._process.kill()  # nothing runs any more, and its own end takes a second
            self._process.communicate()


@dataclass
class Case:
    """One method in one scenario."""

    name: str
    scenario: str
    folder: Path
    server: ForkServer
    module: str | None = None
    begun_with: dict[str, torch.Tensor] = field(default_factory=dict)
    """The network at the beginning of the second task."""
    terms: dict[str, list[float]] = field(default_factory=dict)
    """The loss terms and the penalty of every step of the second task."""

    @property
    def method(self) -> type[Method]:
        return registry.get_method(self.name)

    @property
    def settings(self) -> str | dict[str, Any]:
        """Method as a recipe names it: by its name, or with small settings."""
        return SMALLER.get(self.name, self.name)

    def architecture(self, family: str) -> dict[str, Any]:
        """A small network of this family, or of the first that the method accepts."""
        accepted = self.method.accepts.architectures
        return SMALL[family if accepted is None or family in accepted else accepted[0]]

    def new_bench(self, family: str = "mlp", **settings: Any) -> Bench:
        folder = self.folder / str(len(list(self.folder.iterdir())))
        folder.mkdir()
        return Bench(folder, self.scenario, self.architecture(family), **settings)

    @cached_property
    def bench(self) -> Bench:
        return self.new_bench()

    @cached_property
    def first(self) -> Learned:
        """The method's first task."""
        return self.bench.learn_task(1, method=self.settings)

    @cached_property
    def second(self) -> Learned:
        """Its second task, looked at as it is learned."""
        method, first = self.method, self.first
        begin, terms_of, after = method.begin_task, method.compute_loss_terms, method.after_step

        def begin_task(self_: Any, ctx: Any) -> None:
            self.begun_with.update(
                {name: p.detach().cpu().clone() for name, p in ctx.network.named_parameters()}
            )
            begin(self_, ctx)

        def compute_loss_terms(self_: Any, ctx: Any, batch: Any) -> Any:
            terms = terms_of(self_, ctx, batch)
            for name, value in terms.items():
                self.terms.setdefault(name, []).append(float(value.detach()))
            return terms

        def after_step(self_: Any, ctx: Any, batch: Any) -> None:
            self.terms.setdefault("penalty", []).append(self_.compute_penalty(ctx))
            after(self_, ctx, batch)

        with mock.patch.multiple(
            method,
            begin_task=begin_task,
            compute_loss_terms=compute_loss_terms,
            after_step=after_step,
        ):
            return self.bench.learn_task(2, first, method=self.settings)

    @cached_property
    def drifting(self) -> tuple[Bench, Learned]:
        """A bench whose second task contradicts the first, and the first task."""
        bench = self.new_bench(drift=True)
        return bench, bench.learn_task(1, method=self.settings)


_finetuned: dict[str, dict[str, str]] = {}


def compute_finetuned_digests(bench: Bench) -> dict[str, str]:
    """Return the network digests of plain fine-tuning on a bench's two tasks. They are the same
    for all methods, so they are learned once.
    """
    key = repr((bench.scenario, bench.architecture, bench.size, bench.n, bench.drift, bench.recipe))
    if key not in _finetuned:
        _finetuned[key] = bench.stream(2, method="finetune").network_digests
    return _finetuned[key]


@build_shallow_resnets()
def equals_finetuning_at_strength_zero(case: Case) -> None:
    neutral = case.method.neutral
    if neutral is None:
        assert case.method.no_neutral, "a method without neutral settings must say why"
        return
    bench = case.new_bench("small-resnet", size=8, n=5, recipe={"epochs": 1})
    ours = bench.stream(2, method={"name": case.name, **neutral.model_dump(by_alias=True)})
    assert ours.network_digests == compute_finetuned_digests(bench)


def differs_from_finetuning_at_its_defaults(case: Case) -> None:
    if case.method.neutral == case.method.Hyper():
        return
    bench, first = case.drifting  # methods that only resolve conflicts need one
    assert bench.learn_task(
        2, first, method=case.settings
    ).network_digests != compute_finetuned_digests(bench)


def resumes_to_the_same_bits_after_a_kill(case: Case) -> None:
    merged = (
        case.method.no_merge is None
    )  # then `merges_or_says_why_not` kills before the very last step
    check_kills(
        case, case.bench, case.first, case.second, {**KILLS, 2: KILLS[2][:1]} if merged else KILLS
    )


def resumes_with_convolutions_too(case: Case) -> None:
    """Check it with convolutions too, whose optimizer's state has another layout in memory."""
    bench = case.new_bench("small-cnn")
    first, second = bench.learn_tasks(2, method=case.settings)
    check_kills(case, bench, first, second, KILLS)


def check_kills(
    case: Case,
    bench: Bench,
    first: Learned,
    second: Learned,
    kills: Mapping[int, Sequence[tuple[int, int]]],
) -> None:
    for undisturbed, parent, number in ((first, None, 1), (second, first, 2)):
        if undisturbed.result["steps"] == 0:
            continue  # nothing to resume: such a task is learned again
        for at, kill_at in kills[number]:
            again = bench.resumed(number, parent, at, kill_at, method=case.settings)
            assert again.digests == undisturbed.digests


def resumes_in_slices_or_says_why_not(case: Case) -> None:
    recipe = {"method": case.settings, "shards": 2}
    if reason := case.method.no_shards:
        with pytest.raises(InvalidRecipe, match=reason):
            case.bench.spec(1, None, **recipe)
        return
    undisturbed = case.bench.learn_task(2, case.first, **recipe)
    for at, kill_at in KILLS[2]:
        assert (
            case.bench.resumed(2, case.first, at, kill_at, **recipe).digests == undisturbed.digests
        )


def gives_the_same_bits_in_processes_of_its_own(case: Case) -> None:
    apart = case.bench.learn_tasks(
        2, lambda spec: case.server.run(spec, case.module), method=case.settings
    )
    assert apart[1].digests == case.second.digests


def its_regularisers_act_from_the_second_task(case: Case) -> None:
    assert case.second
    for name in case.method.regularisers:
        assert max(case.terms.get(name, [0.0])) > 0, f"{name} never acted"


def takes_a_class_that_reappears(case: Case) -> None:
    again = (("ant", "bee"), ("bee", "cat"), ("ant", "cat"))
    last = case.new_bench(classes=again).stream(3, method=case.settings, epochs=1)
    if case.scenario == "class":
        assert last.result["classes"] == ["ant", "bee", "cat"]


def growth_keeps_the_old_rows(case: Case) -> None:
    if case.scenario == "data":
        return
    assert case.second
    part = "head.1" if case.scenario == "task" else "head"
    for name, old in case.first.tensors(part).items():
        assert torch.equal(case.begun_with[name][tuple(slice(size) for size in old.shape)], old)


@build_shallow_resnets()
def keeps_what_the_depth_freezes(case: Case) -> None:
    """Check statistics too, also in a first task, whose other statistics move."""
    depth = min(case.method.accepts.depths)
    if depth == 5:
        return  # the depth freezes nothing
    bench = case.new_bench("small-resnet", size=8, n=5)
    last = bench.stream(2, method=case.settings, depth=depth, epochs=1)
    network = build_network(bench.architecture, ImageSpec(8, 1), case.scenario, HeadSpec(), 5)
    network.pretrained = False
    network = case.method(case.method.Hyper(), MethodState()).build_network(network)
    network.prepare_to_load_state_dict(set(last.weights))
    start = network.state_dict()
    for name, tensor in last.weights.items():
        same = not name.startswith("head") and torch.equal(tensor, start[name])
        head = name.startswith("head") and (tensor.any() or last.result["steps"] == 0)
        assert same or head, name


def manages_without_the_gradient_of_a_parameter(case: Case) -> None:
    """Check that no method fails if no loss reaches a parameter, and that the parameter stays
    unless the method itself gives it a gradient.
    """
    (bench, first), method = case.drifting, case.method
    seen: list[tuple[str, bool, torch.Tensor]] = []
    grads, after = method.add_penalty_gradients, method.after_step

    def add_penalty_gradients(self: Any, ctx: Any) -> None:
        next(iter(ctx.trainable.values())).grad = None
        grads(self, ctx)

    def after_step(self: Any, ctx: Any, batch: Any) -> None:
        name, parameter = next(iter(ctx.trainable.items()))
        seen.append((name, parameter.grad is None, parameter.detach().clone()))
        after(self, ctx, batch)

    with mock.patch.multiple(
        method, add_penalty_gradients=add_penalty_gradients, after_step=after_step
    ):
        bench.learn_task(2, first, method=case.settings)
    if not seen:
        return  # it takes no steps
    assert seen[-1][1] or method.project_gradient is not Method.project_gradient
    for (name, _, before), (same, missing, now) in pairwise(seen):
        assert torch.equal(now, before) or not missing or name != same  # of another stage


def refuses_tensors_outside_its_state(case: Case) -> None:
    method = case.method(case.method.Hyper(), MethodState())
    for value in (torch.zeros(1), nn.Linear(1, 1), [torch.zeros(1)], {"a": torch.zeros(1)}):
        with pytest.raises(AttributeError):
            method.anything = value


def stores_only_safetensors_without_metadata(case: Case) -> None:
    for part in case.second.result["parts"]:
        data = (case.second.folder / part["file"]).read_bytes()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        assert header and "__metadata__" not in header


def learns_from_cached_features_or_says_why_not(case: Case) -> None:
    if 1 not in case.method.accepts.depths:
        return
    bench = case.new_bench(n=16)  # batches of 8: for those of a few images kernels round otherwise
    recipe = {"method": case.settings, "depth": 1, "augment": "none", "batch_size": 8}
    cached = bench.stream(2, features="cached", **recipe)
    if case.method.no_feature_cache:
        assert cached.result["steps"] == 0 or any(
            case.method.no_feature_cache in line for line in cached.logged()
        )
        return
    assert any("are computed once and cached" in line for line in cached.logged())
    computed = bench.stream(2, **recipe)
    for name, tensor in computed.weights.items():
        torch.testing.assert_close(cached.weights[name], tensor, rtol=1e-4, atol=1e-5)


def merges_or_says_why_not(case: Case) -> None:
    if reason := case.method.no_merge:
        with pytest.raises(InvalidRecipe, match=reason):
            case.bench.spec(1, None, method=case.settings, merge={"weight": 0.5})
        return
    whole, half = (
        case.bench.learn_task(2, case.first, method=case.settings, merge={"weight": weight})
        for weight in (1.0, 0.5)
    )
    assert whole.digests == case.second.digests
    assert half.digests != case.second.digests  # with prompts, no part of the plain network moves
    again = case.bench.resumed(2, case.first, 11, 12, method=case.settings, merge={"weight": 0.5})
    assert again.digests == half.digests


def rebalances_or_says_why_not(case: Case) -> None:
    """Check that a run that is killed within the stage ends with the same bits."""
    if case.scenario == "task":
        return
    recipe = {"method": case.settings, "rebalance": {"epochs": 1}}
    if case.method.remembers is None:
        with pytest.raises(InvalidRecipe, match=case.method.no_rebalance):
            case.bench.spec(1, None, **recipe)
        return
    undisturbed = case.bench.learn_task(2, case.first, **recipe)
    steps = undisturbed.result["steps"]
    assert (
        case.bench.resumed(2, case.first, steps - 3, steps - 1, **recipe).digests
        == undisturbed.digests
    )


def resumes_with_balanced_batches(case: Case) -> None:
    """Check that a snapshot includes the draws and the retained images of each class."""
    if case.method.remembers is None:
        return
    recipe: dict[str, Any] = {"method": case.settings, "balanced_batches": True}
    first = case.bench.learn_task(1, **recipe)
    undisturbed = case.bench.learn_task(2, first, **recipe)
    (at, kill_at), _ = KILLS[2]
    assert case.bench.resumed(2, first, at, kill_at, **recipe).digests == undisturbed.digests


CHECKS = (
    equals_finetuning_at_strength_zero,
    differs_from_finetuning_at_its_defaults,
    resumes_to_the_same_bits_after_a_kill,
    resumes_with_convolutions_too,
    resumes_in_slices_or_says_why_not,
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
    resumes_with_balanced_batches,
)
