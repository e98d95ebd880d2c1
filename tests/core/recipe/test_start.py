"""Defaults of a new model: each fills only what the request leaves out."""

import pytest

from core import imagenet_base, packaged_base
from core.learn.catalogue import catalogue
from core.recipe import start

CATALOGUE = catalogue()
PACKAGED = packaged_base.PACKAGED


def test_the_default_architecture_is_that_of_the_default_base() -> None:
    assert start.default_base(start.default_architecture(None)) == PACKAGED


def test_the_imagenet_base_has_its_own_architecture() -> None:
    assert start.default_architecture(imagenet_base.NAME) == imagenet_base.ARCHITECTURE


@pytest.mark.parametrize(
    ("architecture", "base"),
    [
        ({"name": "resnet20", "width": 16}, "random"),
        ({"name": "small-cnn"}, "random"),
        ({"name": "timm", "model": "resnet18.a1_in1k"}, "pretrained"),
    ],
)
def test_another_architecture_starts_from_its_own_weights_or_random_ones(
    architecture: dict, base: str
) -> None:
    assert start.default_base(architecture) == base


@pytest.mark.parametrize("base", [PACKAGED, "pretrained", "bas_1", {"model": "m", "version": 1}])
def test_a_model_with_weights_is_learned_in_closed_form_and_bounds_gradients(base: object) -> None:
    found = start.recipe_of(CATALOGUE, {"epochs": 3}, base)
    assert found == {"epochs": 3, "method": {"name": "analytic"}, "optimizer": {"clip": 1.0}}


@pytest.mark.parametrize(
    ("recipe", "method"),
    [
        ({"method": "er"}, {"name": "er"}),
        ({"method": {"name": "er", "buffer": 9}}, {"name": "er", "buffer": 9}),
        ({"preset": "linear-probe"}, None),
        ({"preset": "olor-sgd"}, {"name": "analytic"}),
        ({"method": {"head": "ncm"}}, {"name": "analytic", "head": "ncm"}),
    ],
)
def test_a_method_that_is_named_stays(recipe: dict, method: object) -> None:
    assert start.recipe_of(CATALOGUE, recipe, PACKAGED).get("method") == method


def test_what_a_recipe_says_of_its_optimizer_stays() -> None:
    found = start.recipe_of(CATALOGUE, {"optimizer": {"clip": 5.0, "lr": 0.1}}, PACKAGED)
    assert found["optimizer"] == {"clip": 5.0, "lr": 0.1}


def test_random_weights_change_nothing() -> None:
    assert start.recipe_of(CATALOGUE, {"epochs": 3}, "random") == {"epochs": 3}
