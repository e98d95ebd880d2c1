"""A backbone that does not move reads each image of a job once."""

import pytest
import torch
from streams import Bench

from core.learning.data import known_features
from core.learning.data.dataset import Dataset
from core.learning.data.known_features import LEAST_BATCH, FeatureCachingInputNormaliser
from core.learning.evaluation.probe import compute_image_features
from core.learning.networks import HeadSpec, ImageSpec, Network, build_network
from core.learning.networks.backbones.mlp import MlpBackbone

CPU = torch.device("cpu")
ANALYTIC = {"name": "analytic", "projection": 50}


def build_seeded_network(seed: int) -> Network:
    architecture = {"name": "mlp", "hidden": [5]}
    return build_network(
        architecture, ImageSpec(4, 1), "class", HeadSpec(("cat", "dog")), seed=seed
    )


def draw_images(n: int) -> torch.Tensor:
    return torch.randint(
        0, 256, (n, 4, 4, 1), dtype=torch.uint8, generator=torch.Generator().manual_seed(n)
    )


def cache_known_features(
    parent: Network, base: Network | None, *parts: torch.Tensor
) -> FeatureCachingInputNormaliser:
    inputs = FeatureCachingInputNormaliser(None, 1, CPU)
    inputs.cache_features_of_job_images(parent, base, parts, lambda: None)
    return inputs


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Images of each pass through an MLP's backbone."""
    seen: list[int] = []
    forward = MlpBackbone.forward

    def count_images_and_forward(self: MlpBackbone, x: torch.Tensor) -> torch.Tensor:
        seen.append(len(x))
        return forward(self, x)

    monkeypatch.setattr(MlpBackbone, "forward", count_images_and_forward)
    return seen


def test_a_job_passes_each_image_of_its_task_and_each_held_out_one_once(
    bench: Bench, passes: list[int]
) -> None:
    first = bench.learn_task(1, method=ANALYTIC)
    passes.clear()
    bench.learn_task(2, first, method=ANALYTIC)
    parts = [(2, "train"), (1, "held_out"), (2, "held_out")]
    read = [
        Dataset.read_dataset_file(bench.dataset(task, part), bench.task_classes(task)).images
        for task, part in parts
    ]
    # Each dataset is one batch, of which the smallest are filled up.
    assert passes == [max(len(images), LEAST_BATCH) for images in read]


def test_a_first_task_that_moves_the_backbone_reads_images(bench: Bench, passes: list[int]) -> None:
    learned = {"name": "analytic", "adapt": {"epochs": 1, "depth": 5}}
    bench.learn_task(1, method=learned)
    moved = len(passes)
    passes.clear()
    bench.learn_task(1, method=ANALYTIC)
    assert len(passes) < moved


def test_features_of_known_images_equal_those_of_images_in_any_batch() -> None:
    network, images = build_seeded_network(1), draw_images(70)
    found = cache_known_features(network, None, images)
    order = torch.randperm(70, generator=torch.Generator().manual_seed(3))
    expected = compute_image_features(network, images, FeatureCachingInputNormaliser(None, 1, CPU))
    assert found(images[order]).shape == (70, 5)
    torch.testing.assert_close(
        compute_image_features(network, images[order], found), expected[order]
    )


@pytest.mark.parametrize(
    "other", [draw_images(3), torch.zeros(3, 4, 4, 1), draw_images(0)], ids=str
)
def test_a_batch_with_an_unknown_image_stays_images(other: torch.Tensor) -> None:
    found = cache_known_features(build_seeded_network(1), None, draw_images(40))
    batch = torch.cat([draw_images(40)[:2].to(other.dtype), other])[2:]
    assert found(batch).shape == (len(other), 1, 4, 4)


def test_versions_with_different_backbones_have_no_features_in_common() -> None:
    assert cache_known_features(
        build_seeded_network(1), build_seeded_network(1), draw_images(4)
    ).has_known_features
    assert not cache_known_features(
        build_seeded_network(1), build_seeded_network(2), draw_images(4)
    ).has_known_features


def test_beyond_their_bound_features_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_features, "MEMORY_BYTES", 33 * 5 * 4)
    found = cache_known_features(build_seeded_network(1), None, draw_images(200))
    assert found(draw_images(200)[:64]).dim() == 2
    assert found(draw_images(200)[64:]).dim() == 4


@pytest.mark.parametrize("left_out", [1, 2, 3, 12, 17, 28])
def test_the_last_images_have_the_features_of_any_batch(left_out: int) -> None:
    architecture = {"name": "mlp", "hidden": [64, 64]}
    network = build_network(
        architecture, ImageSpec(16, 3), "class", HeadSpec(("cat", "dog")), seed=1
    )
    images = torch.randint(
        0, 256, (32 + left_out, 16, 16, 3), dtype=torch.uint8, generator=torch.Generator()
    )
    some, others = (
        FeatureCachingInputNormaliser(None, 3, CPU),
        FeatureCachingInputNormaliser(None, 3, CPU),
    )
    some.cache_dataset_features(network, images, lambda: None)
    others.cache_dataset_features(network, images[left_out:], lambda: None)
    assert torch.equal(some(images[left_out:]), others(images[left_out:]))
