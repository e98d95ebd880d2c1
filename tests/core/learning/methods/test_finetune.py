"""Plain fine-tuning and linear probing: the gradient of the cross-entropy, and features that never
change.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from recipes import resolve_patch
from streams import spy_on_calls, spy_on_losses
from torch.nn import functional

from core.learning.methods.finetune import FinetuneMethod
from core.learning.networks import HeadSpec, ImageSpec, build_network
from core.learning.optimizers.build import compute_learning_rate_factor
from core.learning.state import load_tensors


def test_the_gradient_of_a_batch_is_that_of_its_cross_entropy(bench, monkeypatch) -> None:
    def compute_slow_gradient(method, ctx, batch, terms):
        rows = torch.arange(len(batch.y))
        wanted = -functional.log_softmax(ctx.network(batch.x), 1)[rows, batch.y].mean()
        return torch.autograd.grad(wanted, list(ctx.trainable.values()))

    def copy_gradients(result, method, ctx):
        return {name: p.grad.clone() for name, p in ctx.trainable.items()}

    slow, found = (
        spy_on_losses(monkeypatch, FinetuneMethod, compute_slow_gradient),
        spy_on_calls(monkeypatch, FinetuneMethod, "project_gradient", copy_gradients),
    )
    bench.learn_task(1, method="finetune", head={"init": "default"}, epochs=1)
    assert len(found) == 6
    for wanted, grads in zip(slow, found, strict=True):
        assert set(grads) == {
            f"{part}.{kind}" for part in ("backbone.fc1", "head") for kind in ("weight", "bias")
        }
        for gradient, expected in zip(grads.values(), wanted, strict=True):
            torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-7)


def test_a_linear_probe_learns_as_a_head_on_features_that_were_computed_once(
    bench, monkeypatch
) -> None:
    """Same order, no augmentation: the losses agree, so the backbone and its statistics stood
    still.
    """
    steps = spy_on_losses(
        monkeypatch,
        FinetuneMethod,
        lambda _, ctx, batch, terms: (batch.index, float(terms["task"].detach())),
    )
    bench.architecture, bench.size = {"name": "resnet20"}, 8
    optimizer = {"name": "adam", "lr": 0.01}
    spec = bench.spec(1, None, preset="linear-probe", augment="none", optimizer=optimizer)
    learned = bench.learn(spec)

    network = build_network(
        bench.architecture, ImageSpec(8, 1), "class", HeadSpec(("ant", "bee")), 5
    ).eval()
    data = load_tensors(Path(spec["task"]["train"]))
    labels = data["labels"]
    x = ((data["images"].float() / 255 - 0.5) / 0.25).permute(0, 3, 1, 2)
    with torch.no_grad():
        features = network.features(x)
    head = torch.nn.Linear(features.shape[1], 2)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    adam = torch.optim.Adam(head.parameters())
    recipe = resolve_patch({"optimizer": optimizer}).optimizer
    for step, (index, loss) in enumerate(steps):
        adam.param_groups[0]["lr"] = 0.01 * compute_learning_rate_factor(recipe, step, len(steps))
        mine = functional.cross_entropy(head(features[index]), labels[index])
        assert loss == pytest.approx(mine.item(), abs=1e-6)
        adam.zero_grad()
        mine.backward()
        adam.step()
    assert steps[-1][1] < steps[0][1]
    torch.testing.assert_close(
        learned.tensors("head")["head.weight"], head.weight.detach(), rtol=0, atol=1e-5
    )
