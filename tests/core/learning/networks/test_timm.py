"""timm's networks as backbones: their names, their depth, their first weights and their images."""

import copy
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save
from streams import Bench

from core.admission.network_size import find_network_size
from core.contract.manifest import Manifest
from core.learning.evaluation.predicting import predict_images
from core.learning.networks import (
    ImageSpec,
    build_backbone_on_meta_device,
    build_initialised_backbone,
    build_network,
    build_uninitialised_network,
    describe_expected_base_tensors,
)
from core.learning.networks.backbones.timm_names import (
    RECOMMENDED,
    get_timm_weights_properties,
    list_timm_weights_names,
    load_timm_weights_table,
)
from core.learning.networks.network import get_type_of_part_name
from core.learning.timm_import import import_timm_models

RESNET, VIT = "test_resnet.r160_in1k", "test_vit.r160_in1k"
NAMES = [RESNET, VIT, "test_efficientnet.r160_in1k", "test_convnext.r160_in1k"]
SMALL = pytest.mark.parametrize("name", NAMES)
OWN = ImageSpec(160, 3)
IN_CI = "vit_tiny_patch16_224.augreg_in21k_ft_in1k"
MOST = 40_000_000
"""Parameters of a network that learns in the campaign; the recommended ones above are vit_base,
whose kind is among the smaller."""


def name_architecture(name: str) -> dict[str, Any]:
    return {"name": "timm", "model": name}


def build_timm_backbone(name: str, image: ImageSpec = OWN, seed: int = 1) -> Any:
    return build_initialised_backbone(
        name_architecture(name), image, torch.Generator().manual_seed(seed)
    ).eval()


@SMALL
def test_features_are_timms_own_at_the_weights_own_size(name: str) -> None:
    backbone, x = build_timm_backbone(name), torch.randn(2, 3, 160, 160)
    reference = import_timm_models().create_model(name, num_classes=0).eval()
    reference.load_state_dict(backbone.state_dict())
    with torch.no_grad():
        ours, theirs = backbone(x), reference(x)
    assert ours.shape == (2, backbone.width) and torch.equal(ours, theirs)


@SMALL
def test_features_of_another_size_come_from_the_same_tensors(name: str) -> None:
    known = get_timm_weights_properties(name)
    size = known.smallest if known.step == 1 else known.smallest * 2
    backbone = build_timm_backbone(name, ImageSpec(size, 3))
    shapes = [
        {n: t.shape for n, t in of.state_dict().items()}
        for of in (backbone, build_timm_backbone(name))
    ]
    assert shapes[0] == shapes[1]
    assert backbone(torch.randn(2, 3, size, size)).shape == (2, backbone.width)


@SMALL
def test_depth_counts_the_stem_and_thirds_of_the_layers_after_it(name: str) -> None:
    network = build_network(name_architecture(name), OWN, "class")
    network.add_task_classes(1, ["cat", "dog"], "zero", torch.Generator())
    stages, groups = network.backbone.stage_prefixes, network.list_tensor_names_by_depth()
    assert len(stages) == 4 and len(groups) == 5
    assert groups[0] == ["head.weight", "head.bias"]
    moving = [network.list_trainable_parameter_names(depth) for depth in range(1, 6)]
    assert all(one < more for one, more in pairwise(moving))
    assert moving[4] == {n for n, _ in network.named_parameters()}
    stem = {f"backbone.{n}" for n in network.backbone.list_tensor_names_of_stage(0)}
    assert moving[4] - moving[3] == stem & moving[4]


def test_the_layers_are_those_of_the_transformer_in_order() -> None:
    layers = build_timm_backbone(VIT).layer_prefixes
    assert all(f"blocks.{i}" in layer for i, layer in enumerate(layers[1:7]))
    assert {"patch_embed", "pos_embed"} <= set(layers[0])


def test_children_of_every_kind_of_recommended_network_are_found_by_their_names() -> None:
    for name in RECOMMENDED:
        if name.startswith("vit_") and name != IN_CI:
            continue  # one transformer stands for those that differ in size
        backbone = build_backbone_on_meta_device(
            name_architecture(name), ImageSpec(get_timm_weights_properties(name).size, 3)
        )
        for path, _ in backbone.named_modules():
            assert backbone.get_submodule(path) is not None, f"{name}: {path}"


def test_the_same_seed_gives_the_same_weights_and_the_global_generator_stays() -> None:
    before = torch.get_rng_state()
    one, two, other = (build_timm_backbone(VIT, seed=seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[n], two[n]) for n in one)
    assert not all(torch.equal(one[n], other[n]) for n in one)
    assert torch.equal(before, torch.get_rng_state())


def test_buffers_that_are_computed_are_there_after_an_empty_build() -> None:
    name = "levit_128s.fb_dist_in1k"
    image = ImageSpec(get_timm_weights_properties(name).size, 3)
    full = build_timm_backbone(name, image)
    empty = build_uninitialised_network(name_architecture(name), image, "class").backbone.eval()
    for key, tensor in empty.state_dict().items():
        tensor.copy_(full.state_dict()[key])
    x = torch.randn(1, 3, image.size, image.size)
    assert torch.equal(empty(x), full(x))


def test_a_checkpoint_of_timm_loads_without_renaming() -> None:
    published = import_timm_models().create_model(RESNET).state_dict()
    backbone = build_timm_backbone(RESNET)
    backbone.load_base_weights(load_tensors(save(published)))
    assert all(
        torch.equal(tensor, published[name]) for name, tensor in backbone.state_dict().items()
    )
    expected = describe_expected_base_tensors(name_architecture(RESNET), OWN)
    beside = set(published) - set(expected["tensors"])
    assert beside and all(name.startswith(tuple(expected["ignored"])) for name in beside)


def test_a_copy_has_tensors_of_its_own() -> None:
    backbone = build_timm_backbone(VIT)
    other, x = copy.deepcopy(backbone), torch.randn(1, 3, 160, 160)
    before = backbone(x)
    for parameter in other.parameters():
        parameter.data.add_(0.1)
    assert torch.equal(backbone(x), before) and not torch.equal(other(x), before)


def test_parameters_can_be_replaced_for_a_pass() -> None:
    backbone, x = build_timm_backbone(VIT), torch.randn(1, 3, 160, 160)
    other = build_timm_backbone(VIT, seed=2)
    found = torch.func.functional_call(backbone, dict(other.named_parameters()), (x,))
    assert torch.equal(found, other(x))


@SMALL
def test_no_activation_works_in_place(name: str) -> None:
    assert not [
        n for n, m in build_timm_backbone(name).named_modules() if getattr(m, "inplace", False)
    ]


@pytest.mark.slow
def test_parts_rebuild_the_network() -> None:
    network = build_network(name_architecture(VIT), OWN, "class", seed=5)
    again = build_uninitialised_network(name_architecture(VIT), OWN, "class")
    again.load_parts(network.copy_parts_to_cpu())
    assert {get_type_of_part_name(part) for part in network.list_tensor_names_by_part()} == {
        "backbone",
        "head",
    }
    x = torch.randn(1, 3, 160, 160)
    assert torch.equal(again.eval()(x), network.eval()(x))


def test_a_pass_in_training_trains() -> None:
    backbone = build_timm_backbone(RESNET).train()
    backbone(torch.randn(2, 3, 64, 64)).sum().backward()
    assert all(parameter.grad is not None for parameter in backbone.parameters())


def test_an_unknown_name_and_an_unusable_one_are_refused() -> None:
    with pytest.raises(ValueError, match="did you mean"):
        get_timm_weights_properties("resnet18.a1_in1")
    name, reason = next(iter(load_timm_weights_table()["refused"].items()))
    with pytest.raises(ValueError) as caught:
        get_timm_weights_properties(name)
    assert reason in str(caught.value)


def test_images_that_it_does_not_take_are_refused() -> None:
    with pytest.raises(ValueError, match="in multiples of 16"):
        build_timm_backbone(VIT, ImageSpec(100, 3))
    with pytest.raises(ValueError, match="3 channels"):
        build_timm_backbone(VIT, ImageSpec(160, 1))


def test_what_is_recommended_exists() -> None:
    assert len(RECOMMENDED) == 12 and set(RECOMMENDED) <= set(list_timm_weights_names())


def test_every_name_of_timm_can_be_used_or_has_its_reason() -> None:
    known = set(list_timm_weights_names()) | set(load_timm_weights_table()["refused"])
    assert known == set(import_timm_models().list_pretrained())


ARCHITECTURES = sorted(
    {name.partition(".")[0]: name for name in list_timm_weights_names()}.values()
)
ONE = pytest.param([IN_CI], id="one")  # `SMALL` are others
MANY = pytest.param(ARCHITECTURES[::12], id="each twelfth", marks=pytest.mark.campaign)


@pytest.mark.parametrize("names", [ONE, MANY])
def test_architectures_build_with_five_depths_and_the_size_that_the_table_says(
    names: list[str],
) -> None:
    for name in names:
        known = get_timm_weights_properties(name)
        for size in {known.size, known.smallest}:
            backbone = build_backbone_on_meta_device(name_architecture(name), ImageSpec(size, 3))
            assert 1 <= len(backbone.stage_prefixes) <= 4, name
            with torch.no_grad():
                found = backbone.eval()(torch.empty(2, 3, size, size, device="meta"))
            assert found.shape == (2, backbone.width), (name, size)
        assert sum(p.numel() for p in backbone.parameters()) == known.parameters, name


def test_a_networks_size_is_told_without_timm() -> None:
    found, half = (
        find_network_size(
            name_architecture(VIT),
            {"size": size, "channels": 3},
            load_timm_weights_table()["weights"],
        )
        for size in (160, 80)
    )
    assert found.parameters == sum(p.numel() for p in build_timm_backbone(VIT).parameters())
    assert half.activations < found.activations / 3


def mark_case(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.slow if name == IN_CI else pytest.mark.campaign)


@pytest.mark.parametrize(
    "name", [mark_case(n) for n in RECOMMENDED if get_timm_weights_properties(n).parameters < MOST]
)
def test_what_is_recommended_learns_two_tasks_and_predicts(tmp_path, name: str) -> None:
    known = get_timm_weights_properties(name)
    size = 2 * known.smallest if known.step > 1 else known.smallest
    bench = Bench(
        tmp_path, architecture=name_architecture(name), size=size, channels=3, n=4, n_held_out=2
    )
    learned = bench.stream(2, epochs=1, depth=2, augment="none")
    normalise = Manifest.from_json(learned.as_parent()["manifest"]).normalise
    network, _ = learned.deployed()
    labels, probabilities = predict_images(
        network, np.zeros((2, size, size, 3), np.uint8), None, normalise
    )
    assert set(labels) <= {"ant", "bee", "cat", "dog"}
    assert probabilities.shape == (2, 4) and np.allclose(probabilities.sum(1), 1)


OTHERS = [
    pytest.param(method, marks=pytest.mark.campaign)
    for method in ("analytic", "ewc", "mas", "er", "lwf")
]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["der++", *OTHERS])
def test_methods_learn_timms_networks(tmp_path, method: str) -> None:
    bench = Bench(
        tmp_path, architecture=name_architecture(VIT), size=32, channels=3, n=6, n_held_out=2
    )
    learned = bench.stream(2, epochs=1, method=method, depth=1 if method == "analytic" else 5)
    assert learned.result["classes"] == ["ant", "bee", "cat", "dog"]
