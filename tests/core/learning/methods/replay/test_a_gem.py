"""A-GEM: its projection, its reference batch, and its memory."""

import pytest
import torch
from recipes import resolve_patch
from streams import spy_on_calls
from torch.nn import functional

from core.learning.methods.replay import a_gem
from core.learning.methods.replay.a_gem import AGemMethod
from core.learning.state import MethodState


class Ctx:
    """The part of a context that a projection looks at."""

    def __init__(self, gradient) -> None:
        self.recipe = resolve_patch({"method": "a-gem"})
        self.scenario = "class"
        self.trainable = {"w": torch.nn.Parameter(torch.zeros(len(gradient)))}
        self.trainable["w"].grad = torch.tensor(gradient)


def project_gradient_onto(monkeypatch, gradient, reference):
    """Return what a step's gradient becomes beside a reference gradient."""
    monkeypatch.setattr(a_gem, "compute_replay_gradient_vector", lambda *_: torch.tensor(reference))
    method, ctx = AGemMethod(AGemMethod.Hyper(), MethodState()), Ctx(gradient)
    held = method.state["buffer"].tensors
    held |= {name: torch.ones(1, dtype=torch.int64) for name in ("images", "labels", "tasks")}
    method.project_gradient(ctx)
    return ctx.trainable["w"].grad


def test_a_gradient_that_opposes_the_reference_is_made_orthogonal_to_it(monkeypatch) -> None:
    got = project_gradient_onto(monkeypatch, [2.0, 1.0], [-1.0, 1.0])
    assert got.tolist() == [1.5, 1.5]
    torch.manual_seed(0)
    g, ref = torch.randn(50), torch.randn(50)
    ref = ref if g @ ref < 0 else -ref
    got = project_gradient_onto(monkeypatch, g.tolist(), ref.tolist())
    assert abs(float(got @ ref)) < 1e-5 * float(g.norm() * ref.norm())


def test_a_gradient_that_agrees_is_left_bit_for_bit(monkeypatch) -> None:
    g = torch.tensor([0.1, 0.3])
    assert torch.equal(project_gradient_onto(monkeypatch, g.tolist(), [0.7, 0.2]), g)
    assert torch.equal(project_gradient_onto(monkeypatch, g.tolist(), [0.3, -0.1]), g)  # orthogonal


@pytest.mark.parametrize(("size", "acts"), [(0.9e-6, False), (1.1e-6, True)])
def test_a_reference_that_vanishes_is_skipped(monkeypatch, size, acts) -> None:
    g = torch.tensor([0.1, 0.3])
    assert torch.equal(project_gradient_onto(monkeypatch, g.tolist(), [-size, 0.0]), g) is not acts


def test_the_reference_is_the_gradient_on_a_random_batch_of_earlier_tasks(
    bench, monkeypatch
) -> None:
    def check_reference_gradient(got, method, ctx, items, parameters):
        loss = functional.cross_entropy(ctx.network(ctx.inputs(items.images)), items.labels)
        wanted = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)])
        assert torch.allclose(got, wanted, atol=1e-6)
        return items.labels.shape[0], set(items.tasks.tolist())

    method = {"name": "a-gem", "reference_batch": 9}
    second = bench.stream(2, method=method)
    checked = spy_on_calls(
        monkeypatch, a_gem, "compute_replay_gradient_vector", check_reference_gradient
    )
    bench.learn_task(3, second, method=method)
    assert len(checked) == 12
    assert all(size == 9 and tasks <= {1, 2} for size, tasks in checked)


def test_reference_batches_draw_nothing_from_the_global_generator(bench, monkeypatch) -> None:
    states, project = [], AGemMethod.project_gradient

    def project_and_record_state(self, ctx):
        before = torch.get_rng_state()
        project(self, ctx)
        states.append(torch.equal(torch.get_rng_state(), before))

    first = bench.learn_task(1, method="a-gem")
    monkeypatch.setattr(AGemMethod, "project_gradient", project_and_record_state)
    bench.learn_task(2, first, method="a-gem")
    assert len(states) == 12 and all(states)


def test_the_memory_holds_more_than_one_batch_of_each_task(bench) -> None:
    whole, small = (
        bench.stream(3, method={"name": "a-gem", "buffer": buffer})
        .tensors("buffer")["tasks"]
        .tolist()
        for buffer in (100, 30)
    )
    assert [whole.count(k) for k in (1, 2, 3)] == [bench.n] * 3
    assert len(small) == 30 and min(small.count(k) for k in (1, 2, 3)) > 4
