"""MAS: sensitivity of the logits' squared norm, per example, added over tasks."""

import torch
from torch import nn

from core.learning.curvature.per_sample import PerExampleGradientSizeSums
from core.learning.methods.penalties.mas import MemoryAwareSynapses


def measure_importance(network, x):
    """Measure Omega as the method does, for a network of its own."""
    found = PerExampleGradientSizeSums(
        network, network, [n for n, _ in network.named_parameters()], torch.abs
    )
    found.add_examples(x, lambda logits: [2 * logits])
    return found.compute_mean_gradient_sizes()


def build_linear(rows, columns):
    return nn.Sequential(nn.Linear(columns, rows, bias=False)).double()


def test_two_outputs_of_six_and_minus_two_give_24_and_8() -> None:
    network = build_linear(2, 1)
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[3.0], [-1.0]]))
    assert measure_importance(network, torch.tensor([[2.0]]).double())["0.weight"].tolist() == [
        [24.0],
        [8.0],
    ]


def test_a_linear_model_has_the_importance_of_its_formula() -> None:
    torch.manual_seed(0)
    network, x = build_linear(3, 4), torch.randn(7, 4, dtype=torch.float64)
    wanted = 2 * network(x).detach().abs().T @ x.abs() / 7
    assert torch.allclose(measure_importance(network, x)["0.weight"], wanted, rtol=1e-12)


def test_examples_with_opposite_gradients_do_not_cancel() -> None:
    network = build_linear(1, 2)
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[1.0, 1.0]]))
    # z = 3 and 1: gradients 2 z x are (12, 6) and (4, -2).
    x = torch.tensor([[2.0, 1.0], [2.0, -1.0]], dtype=torch.float64)
    value = measure_importance(network, x)["0.weight"]
    network(x).square().sum(1).mean().backward()
    of_mean = network[0].weight.grad.abs()
    assert bool((of_mean <= value).all())
    assert of_mean[0, 1] < value[0, 1]


def test_what_is_stored_is_the_mean_over_the_whole_training_part(bench, monkeypatch) -> None:
    """One backward per example, on the weights that are published."""
    seen, end = {}, MemoryAwareSynapses.end_task

    def end_task(self, ctx, batches):
        batches = list(batches)
        end(self, ctx, batches)
        total = {
            name: torch.zeros_like(p, requires_grad=False) for name, p in ctx.trainable.items()
        }
        x = torch.cat([batch.x for batch in batches])
        for one in x:
            z = ctx.network(one[None]).square().sum()
            for name, g in zip(total, torch.autograd.grad(z, ctx.trainable.values()), strict=True):
                total[name] += g.abs()
        seen.update({name: value / len(x) for name, value in total.items()})
        seen["n"] = len(x)

    monkeypatch.setattr(MemoryAwareSynapses, "end_task", end_task)
    own = bench.learn_task(1, method="mas").tensors("own")
    assert seen.pop("n") == bench.n
    for name, wanted in seen.items():
        assert torch.allclose(own[f"importance.{name}"], wanted, rtol=1e-4, atol=1e-6)


def test_importance_is_the_sum_over_tasks(bench) -> None:
    first = bench.learn_task(1, method="mas")
    frozen = {"method": {"name": "mas", "lambda": 0.0}, "optimizer": {"lr": 1e-30}}
    second = bench.learn_task(2, first, **frozen)
    old, new = first.tensors("own"), second.tensors("own")
    fresh = bench.learn_task(2, **frozen)
    name = next(key for key in old if key.startswith("importance.backbone"))
    assert bool((new[name] >= old[name]).all()) and not torch.equal(new[name], old[name])
    assert fresh.tensors("own").keys() == new.keys()
    assert torch.equal(new["anchor.head.weight"], second.tensors("head")["head.weight"])


def test_labels_are_not_used(bench, monkeypatch) -> None:
    end, found = MemoryAwareSynapses.end_task, []

    def end_task(self, ctx, batches):
        batches = list(batches)
        end(self, ctx, batches)
        first = {key: t.clone() for key, t in self.stored_tensors.items()}
        self.stored_tensors.clear()
        moved = []
        for batch in batches:
            moved.append(int((batch.y != batch.y.flip(0)).sum()))
            batch.y = batch.y.flip(0)
        end(self, ctx, batches)
        assert sum(moved) > 0 and any(bool(t.any()) for t in first.values())
        found.append(all(torch.equal(t, self.stored_tensors[key]) for key, t in first.items()))

    monkeypatch.setattr(MemoryAwareSynapses, "end_task", end_task)
    bench.learn_task(1, method="mas")
    assert found == [True]
