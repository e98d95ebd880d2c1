"""The ImageNet base: the package's checkpoint as a base, which knows what photographs show."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sklearn.datasets
import torch
from torch import Tensor
from torch.nn import functional

from core.bases.hub.imagenet import convert_imagenet_checkpoint_to_timm
from core.bases.pretrained import PretrainedWeightsPolicy
from core.database.states import JobState
from core.database.tables import Version
from core.ingest.decoding.resizing import SquareResizingSettings
from core.ingest.images import decode_image_to_square_pixels
from core.learning.networks.backbone import ImageSpec
from core.learning.networks.backbones.timm_backbone import TimmBackbone
from core.learning.networks.backbones.timm_names import get_timm_weights_properties
from core.models import models
from core.models.new_model import NewModelAdmissionLimits
from core.packaged import imagenet_base
from core.recipe.catalogue import load_recipe_catalogue
from core.requests.resources import UseCaseResources
from worker.loop import Worker

PHOTOS = Path(sklearn.datasets.__file__).parent / "images"
PALACE, DAISY = 698, 985
"""Rows of ImageNet's classes."""


@pytest.fixture(scope="module")
def checkpoint() -> dict[str, Tensor]:
    path = imagenet_base.find_imagenet_checkpoint()
    assert path is not None and imagenet_base.is_imagenet_checkpoint(path)
    found: dict[str, Tensor] = torch.load(path, weights_only=True)  # noqa: TID251 - its digest is known
    return found


@pytest.fixture(scope="module")
def backbone(checkpoint: dict[str, Tensor]) -> TimmBackbone:
    made = TimmBackbone(get_timm_weights_properties(imagenet_base.MODEL), ImageSpec(224, 3))
    made.load_state_dict(convert_imagenet_checkpoint_to_timm(checkpoint))
    return made.eval()


def read_photo(name: str) -> Tensor:
    """Return float32 [1, 3, 224, 224] as the weights expect it, from -1 to 1."""
    known = get_timm_weights_properties(imagenet_base.MODEL)
    resizing = SquareResizingSettings(float(known.crop), known.interpolation)
    pixels = decode_image_to_square_pixels((PHOTOS / name).read_bytes(), 224, 3, 1 << 24, resizing)
    return torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 127.5 - 1


@pytest.mark.parametrize(("name", "shown"), [("china.jpg", PALACE), ("flower.jpg", DAISY)])
def test_photographs_are_recognised(
    name: str, shown: int, backbone: TimmBackbone, checkpoint: dict[str, Tensor]
) -> None:
    with torch.no_grad():
        features = backbone(read_photo(name))
    assert features.shape == (1, 1280)
    assert int((features @ checkpoint["_fc.weight"].T + checkpoint["_fc.bias"]).argmax()) == shown


def test_the_first_layers_are_the_checkpoints_tensors_applied_by_hand(
    backbone: TimmBackbone, checkpoint: dict[str, Tensor]
) -> None:
    x = read_photo("china.jpg")

    def apply_batch_norm(x: Tensor, name: str) -> Tensor:
        mean, var, scale, shift = (
            checkpoint[f"{name}.{part}"]
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        return functional.batch_norm(x, mean, var, scale, shift, eps=1e-3).clamp(0, 6)

    padded = functional.pad(x, (0, 1, 0, 1))  # TensorFlow's "same" padding of a stride of 2
    stem = apply_batch_norm(
        functional.conv2d(padded, checkpoint["_conv_stem.weight"], stride=2), "_bn0"
    )
    depthwise = functional.conv2d(
        stem, checkpoint["_blocks.0._depthwise_conv.weight"], padding=1, groups=32
    )
    wanted = apply_batch_norm(depthwise, "_blocks.0._bn1")
    seen: list[Tensor] = []
    block = backbone.get_submodule("blocks.0.0.bn1")
    with torch.no_grad():
        handle = block.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
        backbone(x)
        handle.remove()
    torch.testing.assert_close(seen[0], wanted, rtol=1e-4, atol=1e-4)


def test_a_tensor_of_another_shape_is_refused(checkpoint: dict[str, Tensor]) -> None:
    wrong = {**checkpoint, "_bn0.weight": checkpoint["_bn0.weight"][:-1]}
    with pytest.raises(
        ValueError, match=r"_bn0\.weight has the shape \[31\], and bn1\.weight \[32\]"
    ):
        convert_imagenet_checkpoint_to_timm(wrong)


def create_model(desk: Any, name: str, **fields: Any) -> dict[str, Any]:
    """Create a model in a service that may not ask the Hub, and that starts models from this base."""
    if not desk.owner:
        desk.new_owner("team")
    given = {"name": name, "scenario": "class", **fields}
    limits = NewModelAdmissionLimits(terms=PretrainedWeightsPolicy(hub=False, photos=True))
    service = UseCaseResources(desk.db, desk.blobs, load_recipe_catalogue(desk.settings))
    made, _ = models.create_model(service, desk.actor, given, limits=limits)
    return dict(made)


@pytest.mark.slow
def test_the_first_model_has_it_converted_and_the_next_one_starts_at_once(
    desk: Any, worker: Callable[..., Worker]
) -> None:
    first = create_model(desk, "one")
    assert first["base"] == imagenet_base.NAME
    assert first["architecture"] == imagenet_base.ARCHITECTURE
    image = {"size": 224, "channels": 3, "crop": 0.875, "interpolation": "bicubic"}
    assert first["image"] == {**image, "decoding": 2}
    worker().run_jobs(lambda: desk.state(first["job"]) is JobState.SUCCEEDED)
    second = create_model(desk, "two", base=imagenet_base.NAME)
    assert (second["state"], second["job"]) == ("ready", None)
    one, two = desk.all(Version)
    assert one.manifest.base == two.manifest.base
    assert (one.manifest.base.name, one.manifest.base.repository) == (imagenet_base.NAME, None)
    assert one.manifest.base.licence == "apache-2.0"
    assert one.manifest.normalise.mean == [0.5, 0.5, 0.5]
