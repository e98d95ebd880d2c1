"""GEM: what its constraints are, when it changes a gradient, and what its memory holds."""

from pathlib import Path

import pytest
import torch
from streams import Bench, spy_on_calls, spy_on_losses
from torch.nn import functional

from core.learning.methods.replay import gem
from core.learning.methods.replay.gem import GemMethod
from core.learning.recipe import Recipe
from core.learning.state import MethodState, load_tensors


class Ctx:
    """The part of a context that a projection looks at."""

    def __init__(self, **gradients) -> None:
        self.device = torch.device("cpu")
        self.trainable = {}
        for name, gradient in gradients.items():
            value = torch.as_tensor(gradient)
            self.trainable[name] = torch.nn.Parameter(torch.zeros_like(value))
            self.trainable[name].grad = value

    def grads(self):
        return torch.cat([p.grad.flatten() for p in self.trainable.values()])


def make_gem_with_memories(monkeypatch, rows, **hyper) -> GemMethod:
    """Make a method whose memory of task k has the gradient rows[k - 1]; memories of several tasks
    have the mean.
    """
    rows = torch.as_tensor(rows)
    method = GemMethod(GemMethod.Hyper(**hyper), MethodState())
    tasks = torch.arange(1, len(rows) + 1)
    method.state["buffer"].tensors |= {"images": tasks, "labels": tasks, "tasks": tasks}

    def memory_gradient(method, ctx, items, parameters):
        names = {id(p): name for name, p in ctx.trainable.items()}
        at, spans = 0, {}
        for name, p in ctx.trainable.items():
            spans[name] = slice(at, at + p.numel())
            at += p.numel()
        mean = rows[items.tasks - 1].mean(0)
        return torch.cat([mean[spans[names[id(p)]]] for p in parameters])

    monkeypatch.setattr(gem, "compute_replay_gradient_vector", memory_gradient)
    return method


@pytest.mark.parametrize(("gamma", "wanted"), [(0.0, [1.5, 1.5]), (0.5, [1.75, 1.75])])
def test_a_gradient_that_opposes_a_memory_is_projected(monkeypatch, gamma, wanted) -> None:
    method = make_gem_with_memories(monkeypatch, [[-1.0, 1.0], [1.0, 0.0]], gamma=gamma)
    ctx = Ctx(w=[2.0, 1.0])
    method.project_gradient(ctx)
    assert torch.allclose(ctx.grads(), torch.tensor(wanted))


def test_a_gradient_that_opposes_no_memory_is_left_bit_for_bit(monkeypatch) -> None:
    method = make_gem_with_memories(monkeypatch, [[1.0, 1.0], [1.0, 0.0]], gamma=0.5)
    ctx = Ctx(w=[0.1, 0.3])
    before = ctx.trainable["w"].grad
    method.project_gradient(ctx)
    assert (
        ctx.trainable["w"].grad is before and before.tolist() == torch.tensor([0.1, 0.3]).tolist()
    )


def test_a_parameter_without_a_gradient_counts_as_zero_and_may_get_one(monkeypatch) -> None:
    method = make_gem_with_memories(monkeypatch, [[-1.0, 1.0, 2.0]], gamma=0.0)
    ctx = Ctx(w=[2.0, 1.0], old_head=[0.0])
    ctx.trainable["old_head"].grad = None
    method.project_gradient(ctx)
    g, row = torch.tensor([2.0, 1.0, 0.0]), torch.tensor([-1.0, 1.0, 2.0])
    assert torch.allclose(ctx.grads(), g - (g @ row) / (row @ row) * row)


@pytest.mark.parametrize("numbers", [1, 3, 4, 100])
def test_gradients_that_do_not_fit_are_computed_twice_to_the_same_result(
    monkeypatch, numbers
) -> None:
    torch.manual_seed(0)
    rows = torch.randn(3, 10)
    shapes = {"a": (2, 2), "b": (3,), "c": (3, 1)}
    values = {name: torch.randn(shape) for name, shape in shapes.items()}
    method = make_gem_with_memories(monkeypatch, rows)
    one = Ctx(**{name: value.clone() for name, value in values.items()})
    method.project_gradient(one)
    monkeypatch.setattr(gem, "GRADIENT_BYTES", 4 * 3 * numbers)
    many = Ctx(**{name: value.clone() for name, value in values.items()})
    method.project_gradient(many)
    assert torch.allclose(one.grads(), many.grads(), atol=1e-6)
    assert not torch.equal(one.grads(), torch.cat([v.flatten() for v in values.values()]))


def test_beyond_twenty_constraints_the_oldest_tasks_share_one() -> None:
    assert gem._partition_tasks_into_gem_constraints(list(range(1, 21))) == [
        [k] for k in range(1, 21)
    ]
    merged = gem._partition_tasks_into_gem_constraints([*range(1, 24), 30])
    assert merged == [[1, 2, 3, 4, 5], *([k] for k in range(6, 24)), [30]] and len(merged) == 20
    assert gem._partition_tasks_into_gem_constraints([]) == []


@pytest.mark.parametrize("scenario", ["data", "task", "class"])
def test_constraints_are_gradients_of_the_mean_loss_on_whole_memories(
    tmp_path, monkeypatch, scenario
) -> None:
    monkeypatch.setattr("core.learning.memory.gradient.PIXELS", 1)  # passes of a batch
    checked, original = [], gem.compute_gram_and_dots

    def project_with_checks(self, ctx):
        held = self.state["buffer"].tensors

        def gram_and_dots(rows, gradient):
            for row, task in zip(rows, (1, 2), strict=True):
                mine = held["tasks"] == task
                logits = ctx.network(
                    ctx.inputs(held["images"][mine]), task if scenario == "task" else None
                )
                loss = functional.cross_entropy(logits, held["labels"][mine])
                parameters = list(ctx.trainable.values())
                gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
                flat = [
                    torch.zeros(p.numel()) if g is None else g.flatten()
                    for g, p in zip(gradients, parameters, strict=True)
                ]
                checked.append(torch.allclose(row, torch.cat(flat), atol=1e-6))
            return original(rows, gradient)

        monkeypatch.setattr(gem, "compute_gram_and_dots", gram_and_dots)
        projected(self, ctx)

    bench = Bench(tmp_path, scenario)
    second = bench.stream(2, method={"name": "gem", "memory": 10})
    projected = GemMethod.project_gradient
    monkeypatch.setattr(GemMethod, "project_gradient", project_with_checks)
    bench.learn_task(3, second, method={"name": "gem", "memory": 10})
    assert len(checked) == 2 * 12 and all(checked)


def spy_on_constraint_items(monkeypatch) -> list:
    """Record the items of every constraint, in order."""
    return spy_on_calls(
        monkeypatch,
        gem,
        "compute_replay_gradient_vector",
        lambda row, method, ctx, items, parameters: items,
    )


def test_a_step_looks_at_a_new_draw_of_each_memory(bench, monkeypatch) -> None:
    hyper = {"name": "gem", "memory": 20, "memory_batch": 5}
    second = bench.stream(2, method=hyper)
    seen = spy_on_constraint_items(monkeypatch)
    third = bench.learn_task(3, second, method=hyper)
    assert [set(items.tasks.tolist()) for items in seen] == [{1}, {2}] * 12
    assert {items.images.flatten(1).unique(dim=0).shape[0] for items in seen} == {
        5
    }  # without replacement
    held = third.tensors("buffer")
    for task in (1, 2):
        drawn = torch.cat([items.images for items in seen if int(items.tasks[0]) == task]).flatten(
            1
        )
        rows = (
            (drawn[:, None] == held["images"][held["tasks"] == task].flatten(1))
            .all(2)
            .nonzero()[:, 1]
        )
        assert (
            len(rows) == 60 and len(rows.unique()) > 15
        )  # of 20, each missed with probability 0.75^12


def test_the_mean_gradient_of_all_draws_is_that_of_the_memory(monkeypatch) -> None:
    rows = torch.arange(6.0).repeat_interleave(2).reshape(6, 2)
    method = make_gem_with_memories(monkeypatch, rows, memory_batch=2)
    items = method._task_replay_buffer.get_task_examples(range(1, 7))
    ctx = Ctx(w=[0.0, 0.0])
    ctx.recipe, ctx.task = Recipe(), 7
    drawn = []
    for ctx.step in range(600):
        drawn += method._draw_constraint_examples(ctx, 0, items).labels.tolist()
    counts = torch.tensor(drawn).bincount(minlength=7)[1:]
    assert counts.sum() == 1200 and int((counts - 200).abs().max()) < 50  # 4 deviations


@pytest.mark.parametrize("size", [10, 11, None])
def test_a_batch_of_the_whole_memory_changes_no_bit(bench, size) -> None:
    bench.drift = True
    first = bench.learn_task(1, method={"name": "gem", "memory": 10})
    found = [
        bench.learn_task(2, first, method={"name": "gem", "memory": 10, "memory_batch": batch})
        for batch in (size, None)
    ]
    assert found[0].network_digests == found[1].network_digests


def test_draws_from_memories_resume_to_the_same_bits(bench) -> None:
    bench.drift = True
    hyper = {"name": "gem", "memory": 10, "memory_batch": 3}
    first, second = bench.learn_tasks(2, method=hyper)
    assert bench.resumed(2, first, 7, 9, method=hyper).digests == second.digests


def test_memory_passes_change_no_batch_statistics_and_draw_no_random_numbers(
    tmp_path, monkeypatch
) -> None:
    bench = Bench(tmp_path, architecture={"name": "resnet20"}, size=8, n=8)
    plain = bench.stream(2, method="finetune", epochs=1)
    monkeypatch.setattr(gem, "add_vector_to_gradient", lambda vector, parameters: None)
    assert bench.stream(2, method="gem", epochs=1).network_digests == plain.network_digests


def test_the_loss_sees_no_row_of_the_memory(bench, monkeypatch) -> None:
    first = bench.learn_task(1, method="gem")
    passed = spy_on_calls(
        monkeypatch, GemMethod, "forward", lambda logits, method, network, x, task: len(x)
    )
    of_loss = spy_on_losses(monkeypatch, GemMethod, lambda *_: passed.pop())
    bench.learn_task(2, first, method="gem")
    assert of_loss == [4, 4, 4, 4, 4, 2] * 2


@pytest.mark.parametrize("share", [1, 7, 100])
def test_the_memory_holds_the_smaller_of_its_share_and_the_task_for_every_task(
    bench, share
) -> None:
    last = bench.stream(3, method={"name": "gem", "memory": share})
    tasks = last.tensors("buffer")["tasks"].tolist()
    assert [tasks.count(k) for k in (1, 2, 3)] == [min(share, bench.n)] * 3
    assert last.result["method"]["state"]["buffer"]["seen"] == 3 * bench.n


def test_every_example_of_a_task_may_be_chosen_once(bench) -> None:
    chosen = torch.zeros(bench.n)
    for seed in range(12):
        learned = bench.learn_task(1, method={"name": "gem", "memory": 7}, epochs=1, seed=seed)
        originals = load_tensors(Path(learned.spec["task"]["train"]))["images"].flatten(1)
        held = learned.tensors("buffer")["images"].flatten(1)
        rows = (held[:, None] == originals).all(2).nonzero()[:, 1]
        assert len(rows.unique()) == 7
        chosen[rows] += 1
    assert int((chosen > 0).sum()) > 18  # 22 on average keep (1 - 15/22)^12 = 1 % of them out


def test_a_smaller_share_shrinks_every_task_and_none_erases_all(bench) -> None:
    second = bench.stream(2, method={"name": "gem", "memory": 10})
    third = bench.learn_task(3, second, method={"name": "gem", "memory": 4})
    assert third.tensors("buffer")["tasks"].tolist() == [1] * 4 + [2] * 4 + [3] * 4
    none = bench.learn_task(3, second, method={"name": "gem", "memory": 0})
    assert none.tensors("buffer")["tasks"].numel() == 0


@pytest.mark.parametrize("name", ["gem", "a-gem"])
def test_examples_of_erased_tasks_are_gone(bench, name) -> None:
    second = bench.stream(2, method=name)
    third = bench.learn({**bench.spec(3, second, method=name), "erased_tasks": [1]})
    assert set(third.tensors("buffer")["tasks"].tolist()) == {2, 3}


def test_with_one_earlier_task_and_no_bound_it_is_averaged_gem_on_the_whole_memory(bench) -> None:
    bench.drift = True  # so that gradients conflict
    first = bench.learn_task(1, method="gem")
    found = {}
    for method in ({"name": "gem", "gamma": 0.0}, {"name": "a-gem"}, {"name": "finetune"}):
        learned = bench.learn_task(2, first, method=method)
        parts = {
            name: t for part in learned.network_digests for name, t in learned.tensors(part).items()
        }
        found[method["name"]] = torch.cat([t.flatten() for _, t in sorted(parts.items())])
    assert torch.allclose(found["gem"], found["a-gem"], rtol=0, atol=1e-6)
    assert float((found["gem"] - found["finetune"]).abs().max()) > 1e-3


@pytest.mark.parametrize("name", ["gem", "a-gem"])
def test_with_the_head_alone_and_a_head_per_task_nothing_is_forgotten(tmp_path, name) -> None:
    bench = Bench(tmp_path, "task")
    last = None
    for task in (1, 2):
        plain = bench.learn_task(task, last, method="finetune", depth=1)
        last = bench.learn_task(task, last, method=name, depth=1)
        assert last.network_digests == plain.network_digests
