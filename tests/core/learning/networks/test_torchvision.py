"""torchvision's own models as the oracle: the same names, shapes and outputs, so that checkpoints
load.
"""

import pytest
import torch

from core.learning.networks import (
    ImageSpec,
    Network,
    build_initialised_backbone,
    list_backbone_tensor_dtypes_and_shapes,
)
from core.learning.networks import build_backbone_on_meta_device as on_meta
from core.learning.networks.registry import ARCHITECTURES
from core.learning.torchvision_import import import_torchvision_models

CLASSIFIERS = {"resnet": "fc.", "vit": "heads.", "convnext": "classifier.2."}
SHALLOWEST = ("resnet18", "resnet50", "vit_b_16", "convnext_tiny")
NAMES = [
    name for name, info in ARCHITECTURES.items() if info.family in CLASSIFIERS and name != "vit"
]


@pytest.mark.parametrize(
    "name",
    [
        # Deeper ones are built by the same code from another number of blocks.
        pytest.param(name, marks=() if name in SHALLOWEST else pytest.mark.campaign)
        for name in NAMES
    ],
)
def test_names_and_shapes_are_torchvisions(name: str) -> None:
    with torch.device("meta"):
        reference = getattr(import_torchvision_models(), name)(weights=None).state_dict()
    classifier = CLASSIFIERS[ARCHITECTURES[name].family]
    kept = {
        key: tuple(value.shape)
        for key, value in reference.items()
        if not key.startswith(classifier)
    }
    ours = {
        key: shape
        for key, (_, shape) in list_backbone_tensor_dtypes_and_shapes(
            {"name": name}, ImageSpec(224, 3)
        ).items()
    }
    assert ours == kept
    assert on_meta({"name": name}, ImageSpec(224, 3)).ignored == (classifier,)


def mark_cases(*names: str, often: tuple[str, ...] = ()) -> list[object]:
    """Return networks as parameters of a test. Of those with many weights, the campaign runs all
    except `often`.
    """

    def choose_mark(name: str) -> object:
        return pytest.mark.slow if name in often else pytest.mark.campaign

    return [
        pytest.param(name, marks=() if name == "resnet18" else choose_mark(name)) for name in names
    ]


FAMILIES = ("vit_b_32", "convnext_tiny")


@pytest.mark.parametrize("name", mark_cases("resnet18", "resnet50", *FAMILIES, often=FAMILIES[1:]))
def test_features_equal_torchvisions(name: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        reference = getattr(import_torchvision_models(), name)(weights=None).eval()
        x = torch.randn(1, 3, 224, 224)
    last: list[torch.Tensor] = []
    classifier = [module for module in reference.modules() if isinstance(module, torch.nn.Linear)][
        -1
    ]
    classifier.register_forward_pre_hook(lambda module, inputs: last.append(inputs[0]))
    backbone = build_initialised_backbone(
        {"name": name}, ImageSpec(224, 3), torch.Generator()
    ).eval()
    backbone.load_base_weights(reference.state_dict())
    with torch.no_grad():
        reference(x)
        torch.testing.assert_close(backbone(x), last[0], rtol=1e-4, atol=1e-5)


def compute_moments(state: dict[str, torch.Tensor]) -> dict[str, tuple[float, float]]:
    floats = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}
    return {name: (t.mean().item(), t.std(correction=0).item()) for name, t in floats.items()}


@pytest.mark.parametrize("name", mark_cases("resnet18", *FAMILIES))
def test_first_weights_are_distributed_as_torchvisions(name: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        reference = compute_moments(
            getattr(import_torchvision_models(), name)(weights=None).state_dict()
        )
    ours = build_initialised_backbone(
        {"name": name}, ImageSpec(224, 3), torch.Generator().manual_seed(0)
    ).state_dict()
    for key, found in compute_moments(ours).items():
        tolerance = 8 * reference[key][1] / ours[key].numel() ** 0.5
        assert found == pytest.approx(reference[key], abs=tolerance + 1e-12), key


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
@pytest.mark.parametrize(
    ("more", "size", "pixels"), [({}, 64, 3), ({}, 65, 7), ({"stem": "standard"}, 32, 7)]
)
def test_small_images_get_a_small_resnet_stem(name: str, more, size: int, pixels: int) -> None:
    shapes = list_backbone_tensor_dtypes_and_shapes({"name": name, **more}, ImageSpec(size, 3))
    assert shapes["conv1.weight"][1] == (64, 3, pixels, pixels)


@pytest.mark.parametrize(
    ("size", "tokens"), [(8, 4), (28, 49), (30, 49), (32, 64), (64, 64), (224, 196)]
)
def test_patches_follow_the_image_size(size: int, tokens: int) -> None:
    shapes = list_backbone_tensor_dtypes_and_shapes({"name": "vit"}, ImageSpec(size, 3))
    assert shapes["encoder.pos_embedding"][1] == (1, tokens + 1, 192)


def test_an_image_that_patches_do_not_fill_is_taken() -> None:
    backbone = build_initialised_backbone(
        {"name": "vit"}, ImageSpec(30, 1), torch.Generator()
    ).eval()
    x = torch.randn(2, 1, 30, 30)
    cut = x.clone()
    cut[:, :, 28:] = 0
    assert torch.equal(backbone(x), backbone(cut))


def test_small_images_get_a_small_convnext_stem() -> None:
    small = list_backbone_tensor_dtypes_and_shapes({"name": "convnext_tiny"}, ImageSpec(32, 3))
    assert small["features.0.0.weight"][1] == (96, 3, 2, 2)
    with pytest.raises(ValueError, match="32 pixels"):
        on_meta({"name": "convnext_tiny", "stem": "standard"}, ImageSpec(28, 3))


def test_the_blocks_of_a_vit_are_split_into_four_runs() -> None:
    backbone = on_meta({"name": "vit_b_16"}, ImageSpec(224, 3))
    blocks = [f"encoder.layers.encoder_layer_{i}" for i in range(12)]
    first = ["conv_proj", "class_token", "encoder.pos_embedding", *blocks[:3]]
    assert backbone.stage_prefixes[0] == first
    assert backbone.stage_prefixes[3] == [*blocks[9:], "encoder.ln"]


@pytest.mark.parametrize("layers", [1, 2, 3, 5, 7])
def test_any_number_of_blocks_makes_at_most_four_stages(layers: int) -> None:
    backbone = on_meta({"name": "vit", "layers": layers}, ImageSpec(32, 3))
    assert len(backbone.stage_prefixes) == min(4, layers)
    assert len(Network(backbone, "class").list_tensor_names_by_depth()) == min(4, layers) + 1


def test_downsamplings_go_with_the_following_stage() -> None:
    backbone = on_meta({"name": "convnext_tiny"}, ImageSpec(224, 3))
    assert backbone.stage_prefixes[0][0] == "features.0"
    assert [stage[0] for stage in backbone.stage_prefixes[1:]] == [
        "features.2",
        "features.4",
        "features.6",
    ]
    assert backbone.stage_prefixes[3][-1] == "classifier.0"


@pytest.mark.parametrize("name", ["resnet18", "vit", "convnext_tiny"])
def test_nothing_in_a_torchvision_backbone_draws_in_training(name: str) -> None:
    backbone = build_initialised_backbone(
        {"name": name}, ImageSpec(32, 3), torch.Generator()
    ).train()
    before = torch.get_rng_state()
    backbone(torch.zeros(2, 3, 32, 32))
    assert torch.equal(torch.get_rng_state(), before)


def test_importing_twice_gives_the_same_module() -> None:
    assert import_torchvision_models() is import_torchvision_models()
