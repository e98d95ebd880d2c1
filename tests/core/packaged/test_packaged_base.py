"""The base that comes with the package."""

import json

import numpy as np
import torch
from safetensors.numpy import load

from core.learning.networks import ImageSpec, build_initialised_backbone
from core.learning.networks.backbone import Backbone
from core.packaged import packaged_base


def build_packaged_backbone(size: int, channels: int) -> Backbone:
    built = build_initialised_backbone(
        packaged_base.load_packaged_base_description().architecture,
        ImageSpec(size, channels),
        torch.Generator().manual_seed(0),
    )
    tensors = {
        name: torch.from_numpy(value)
        for name, value in load(packaged_base.load_packaged_base_weights(channels)).items()
    }
    built.load_base_weights(tensors)
    return built.eval()


def draw_smooth_images(size: int, channels: int) -> torch.Tensor:
    """Draw smooth grey images, normalised for the base: [8, channels, size, size]."""
    draws = torch.rand(8, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    grey = torch.nn.functional.interpolate(draws, (size, size), mode="bicubic").clamp(0, 1)
    known = packaged_base.load_packaged_base_normalisation(channels)
    mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in (known.mean, known.std))
    return (grey - mean) / std


def test_it_is_small_and_its_card_is_complete() -> None:
    card = packaged_base.load_packaged_base_description()
    assert len(packaged_base.load_packaged_base_weights(3)) <= 5_000_000
    assert sum(p.numel() for p in build_packaged_backbone(32, 3).parameters()) == card.parameters
    assert (
        len(card.classes) == 60
        and 0.5 < card.accuracy < 1
        and card.command.startswith("python -m bench.")
    )


def test_grey_images_mean_to_one_channel_what_they_mean_to_three() -> None:
    with torch.no_grad():
        three, one = (
            build_packaged_backbone(32, 3)(draw_smooth_images(32, 3)),
            build_packaged_backbone(32, 1)(draw_smooth_images(32, 1)),
        )
    similar = torch.nn.functional.cosine_similarity(three, one)
    assert similar.min() > 0.99


def test_it_takes_images_of_other_sizes() -> None:
    with torch.no_grad():
        for size in (8, 24, 64, 96):
            features = build_packaged_backbone(size, 3)(draw_smooth_images(size, 3))
            assert features.shape == (8, build_packaged_backbone(32, 3).width) and bool(
                features.isfinite().all()
            )


def test_a_single_channel_sums_the_stems_filters_by_their_deviations() -> None:
    stem = np.arange(2 * 3 * 3 * 3, dtype=np.float32).reshape(2, 3, 3, 3)
    known = packaged_base.Normalisation(mean=[0.5, 0.5, 0.5], std=[0.1, 0.2, 0.3])
    made = packaged_base.convert_backbone_to_grey_images({"conv1.weight": stem}, known)[
        "conv1.weight"
    ]
    slow = [[stem[f, 0] * 2.0 + stem[f, 1] * 1.0 + stem[f, 2] * (0.2 / 0.3)] for f in range(2)]
    np.testing.assert_allclose(made, slow, rtol=1e-6)


def test_its_statistics_are_those_of_its_card() -> None:
    assert (
        packaged_base.load_packaged_base_normalisation(3)
        == packaged_base.load_packaged_base_description().normalise
    )
    assert packaged_base.load_packaged_base_normalisation(1).mean == [
        np.mean(packaged_base.load_packaged_base_description().normalise.mean)
    ]
    assert (
        json.loads(packaged_base.load_packaged_base_description().model_dump_json())["size"] == 32
    )
