"""Cached features: learned from as from images, in one pass, and never where the backbone or its
input changes.
"""

import pytest
import torch
from streams import Bench, Learned, Script
from torch import nn

from core.learning.data import features
from core.learning.networks import HeadSpec, ImageSpec, build_network
from core.learning.networks.backbones.mlp import MlpBackbone

CACHED = {"features": "cached", "depth": 1, "augment": "none", "batch_size": 8}


def learn_one_task(bench: Bench, **recipe: object) -> Learned:
    """Learn one task with n = 32, so that no batch is a small remainder, for which kernels round
    differently.
    """
    return bench.learn_task(1, **{**CACHED, **recipe})


def test_epochs_after_the_first_pass_do_not_touch_the_backbone(tmp_path, monkeypatch) -> None:
    seen: list[int] = []
    forward = MlpBackbone.forward

    def count_images_and_forward(self: MlpBackbone, x: torch.Tensor) -> torch.Tensor:
        seen.append(len(x))
        return forward(self, x)

    monkeypatch.setattr(MlpBackbone, "forward", count_images_and_forward)
    passes = {}
    for kind in ("computed", "cached"):
        bench = Bench(tmp_path / kind, n=32)
        for epochs in (1, 5):
            seen.clear()
            learn_one_task(bench, method="finetune", features=kind, epochs=epochs)
            passes[kind, epochs] = sum(seen)
    assert passes["computed", 5] - passes["computed", 1] == 4 * 32
    assert passes["cached", 5] == passes["cached", 1] == passes["computed", 1]


def test_in_a_scratch_file_features_are_the_same_and_nothing_is_left_of_it(
    tmp_path, monkeypatch
) -> None:
    bench = Bench(tmp_path, n=32)
    in_memory = learn_one_task(bench, method="er")
    monkeypatch.setattr(features, "MEMORY_BYTES", 0)
    in_a_file = learn_one_task(bench, method="er")
    assert in_a_file.digests == in_memory.digests
    assert not list((tmp_path / in_a_file.folder.parent.name).glob("tmp*"))


def test_a_run_that_was_killed_ends_with_the_same_bits(tmp_path) -> None:
    bench = Bench(tmp_path, n=32)
    spec = bench.spec(1, None, method="der++", **CACHED)
    again = bench.killed(spec, Script([5], 6))
    torch.manual_seed(999)
    assert bench.learn(again).digests == bench.learn_task(1, method="der++", **CACHED).digests


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ({}, "are computed once and cached"),
        ({"augment": "shift", "batch_size": 8}, "augmented again in every epoch"),
        ({"depth": 2}, "the backbone moves"),
        ({"features": "computed"}, "one pass is enough"),
    ],
)
def test_the_log_says_whether_features_are_cached_and_why_not(tmp_path, recipe, words) -> None:
    bench = Bench(tmp_path, n=32, size=8)
    assert any(
        words in line
        for line in learn_one_task(bench, method="finetune", epochs=1, **recipe).logged()
    )


def test_features_that_would_take_too_much_room_are_not_cached(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(features, "FILE_BYTES", 100)
    assert any(
        "100 are allowed" in line
        for line in learn_one_task(Bench(tmp_path, n=32), method="finetune").logged()
    )


def test_a_backbone_in_training_mode_moves_by_its_statistics(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(
        "core.learning.training.loop.set_training_mode_of_trainable_modules",
        lambda network, on, fixed_norm: network.train(on),
    )
    assert any(
        "training mode" in line
        for line in learn_one_task(Bench(tmp_path, n=32), method="finetune").logged()
    )


def test_a_remembered_image_has_the_same_features_whatever_is_drawn_beside_it(
    tmp_path, monkeypatch
) -> None:
    found: dict[bytes, torch.Tensor] = {}
    call = features.ReplayFeatureCache.__call__

    def compute_and_compare_features(
        self: features.ReplayFeatureCache, images: torch.Tensor
    ) -> torch.Tensor:
        out = call(self, images)
        for image, row in zip(images, out, strict=True):
            assert torch.equal(found.setdefault(image.numpy().tobytes(), row), row)
        return out

    monkeypatch.setattr(features.ReplayFeatureCache, "__call__", compute_and_compare_features)
    monkeypatch.setattr(
        features, "MEMORY_BYTES", 0
    )  # nothing is kept: each is computed at every draw
    learn_one_task(Bench(tmp_path, n=32), method="er")
    assert len(found) > 8


def test_features_stand_in_for_images_in_a_plain_network() -> None:
    network = build_network(
        {"name": "mlp", "hidden": [5]}, ImageSpec(4, 1), "class", HeadSpec(("a", "b"))
    )
    nn.init.normal_(network.head.weight)  # type: ignore[union-attr]
    x = torch.randn(7, 1, 4, 4)
    assert torch.equal(network(network.features(x)), network(x))
