"""Architectures by the name of their pretrained weights, checked without timm."""

import json
import subprocess
import sys
from typing import Any

import pytest

from core.errors import Invalid
from core.learning.catalogue import build_recipe_catalogue
from core.recipe.architecture import complete_architecture
from core.recipe.base_images import override_image_settings_by_base, parse_base_image_config
from core.recipe.images import resolve_image_settings
from core.recipe.resolve import resolve_recipe

CATALOGUE: Any = build_recipe_catalogue()
RESNET, VIT = "test_resnet.r160_in1k", "vit_small_patch14_dinov2.lvd142m"


def resolve_architecture(chosen: Any, **image: int) -> tuple[Any, Any]:
    images = resolve_image_settings(CATALOGUE, chosen, image)
    return complete_architecture(CATALOGUE, "class", chosen, images.image), images


def test_the_short_form_is_stored_as_the_long_one() -> None:
    long = {"name": "timm", "model": VIT}
    assert resolve_architecture(f"timm/{VIT}")[0] == long == resolve_architecture(long)[0]


def test_images_are_those_that_the_weights_were_learned_on() -> None:
    told = CATALOGUE["pretrained"][VIT]
    _, images = resolve_architecture(f"timm/{VIT}")
    assert images.image == {"size": 518, "channels": 3, "crop": 1.0, "interpolation": "bicubic"}
    assert images.normalise == {"mean": told["mean"], "std": told["std"]}


def test_other_architectures_have_the_images_that_they_had() -> None:
    assert resolve_architecture("resnet18")[1].image == {"size": 32, "channels": 3}
    assert resolve_architecture("resnet18", size=64, channels=1)[1].image == {
        "size": 64,
        "channels": 1,
    }
    assert resolve_architecture("resnet18")[1].normalise is None


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("resnet18", "resnet18."),
        ("resnet18.a9_in1k", "resnet18.a1_in1k"),
        ("vit_smal_patch14_dinov2", VIT),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_ones(name: str, near: str) -> None:
    with pytest.raises(Invalid) as caught:
        resolve_architecture(f"timm/{name}")
    assert near in caught.value.detail and caught.value.fields[0]["field"] == "architecture.model"


def test_weights_that_cannot_be_used_are_refused_with_the_reason() -> None:
    name, reason = next(iter(CATALOGUE["unusable"].items()))
    with pytest.raises(Invalid) as caught:
        resolve_architecture(f"timm/{name}")
    assert reason in caught.value.detail


@pytest.mark.parametrize(
    ("name", "image", "field", "said"),
    [
        (VIT, {"size": 100}, "image.size", "518 pixels, or 14 and more in multiples of 14"),
        (RESNET, {"size": 8}, "image.size", "and more"),
        (VIT, {"channels": 1}, "image.channels", "grey images are taken, too"),
    ],
)
def test_images_that_the_network_does_not_take_are_refused_with_those_that_it_takes(
    name: str, image: dict[str, int], field: str, said: str
) -> None:
    with pytest.raises(Invalid) as caught:
        resolve_architecture(f"timm/{name}", **image)
    assert [(e["field"], said in e["message"]) for e in caught.value.fields] == [(field, True)]


@pytest.mark.parametrize(
    ("method", "field"),
    [
        ("dlcft", "recipe.method.name"),
        ({"name": "ewc-online", "curvature": "kfac"}, "recipe.method.curvature"),
        ("vpt", "recipe.method.name"),
        ("dne", "recipe.method.name"),
    ],
    ids=str,
)
def test_methods_that_need_to_know_each_layer_refuse_timms_networks(
    method: Any, field: str
) -> None:
    chosen, _ = resolve_architecture(f"timm/{RESNET}")
    with pytest.raises(Invalid) as caught:
        resolve_recipe(CATALOGUE, "class", {"method": method}, architecture=chosen)
    assert field in [error["field"] for error in caught.value.fields]


def test_what_a_base_says_of_its_images_takes_the_place_of_the_usual() -> None:
    config = parse_base_image_config(
        json.dumps({"mean": [0.4] * 3, "std": [0.2] * 3, "crop": 0.9}), None
    )
    made = override_image_settings_by_base(resolve_architecture("resnet18", size=224)[1], config)
    assert made.image == {"size": 224, "channels": 3, "crop": 0.9}
    assert made.normalise == {"mean": [0.4] * 3, "std": [0.2] * 3}


def test_the_preset_has_imagenets_statistics_and_the_usual_crop() -> None:
    made = override_image_settings_by_base(
        resolve_architecture("resnet18", size=224)[1], parse_base_image_config(None, "imagenet")
    )
    assert made.image == {"size": 224, "channels": 3}
    assert made.normalise == {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


@pytest.mark.parametrize(
    "config",
    ["[]", "{", '{"mean": [0.5]}', '{"mean": [2, 2, 2], "std": [1, 1, '
        '1]}', '{"crop": 0}', '{"colour": 1}',
     '{"interpolation": "lanczos"}'],
)  # fmt: skip
def test_a_config_that_means_nothing_is_refused(config: str) -> None:
    with pytest.raises(Invalid):
        override_image_settings_by_base(
            resolve_architecture("resnet18")[1], parse_base_image_config(config, None)
        )


def test_names_are_checked_without_timm_and_torch() -> None:
    code = (
        "import sys, core.recipe.architecture, core.recipe.base_images;"
        "assert not {'torch', 'timm', 'torchvision'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
