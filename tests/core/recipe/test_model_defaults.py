"""Defaults of a new model: each fills only what the request leaves out."""

import pytest

from core.packaged import imagenet_base, packaged_base
from core.recipe import model_defaults
from core.recipe.resolve import resolve_recipe
from tests.learning_catalogue import copy_catalogue

CATALOGUE = copy_catalogue()
PACKAGED = packaged_base.PACKAGED


def test_the_default_architecture_is_that_of_the_default_base() -> None:
    assert (
        model_defaults.choose_default_base_weights(model_defaults.choose_default_architecture(None))
        == PACKAGED
    )


def test_the_imagenet_base_has_its_own_architecture() -> None:
    assert (
        model_defaults.choose_default_architecture(imagenet_base.NAME) == imagenet_base.ARCHITECTURE
    )


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
    assert model_defaults.choose_default_base_weights(architecture) == base


@pytest.mark.parametrize("base", [PACKAGED, "pretrained", "bas_1", {"model": "m", "version": 1}])
def test_a_model_with_weights_is_learned_in_closed_form_and_bounds_gradients(base: object) -> None:
    found = model_defaults.complete_recipe_for_base(CATALOGUE, {"epochs": 3}, base)
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
    assert (
        model_defaults.complete_recipe_for_base(CATALOGUE, recipe, PACKAGED).get("method") == method
    )


def test_what_a_recipe_says_of_its_optimizer_stays() -> None:
    found = model_defaults.complete_recipe_for_base(
        CATALOGUE, {"optimizer": {"clip": 5.0, "lr": 0.1}}, PACKAGED
    )
    assert found["optimizer"] == {"clip": 5.0, "lr": 0.1}


@pytest.mark.parametrize("base", [PACKAGED, "random"])
@pytest.mark.parametrize(("said", "balanced"), [({}, True), ({"balanced_batches": False}, False)])
def test_a_new_model_has_balanced_batches_unless_it_says_otherwise(
    base: str, said: dict, balanced: bool
) -> None:
    recipe = model_defaults.build_recipe_of_new_model(CATALOGUE, said, base)
    assert recipe == {
        **model_defaults.complete_recipe_for_base(CATALOGUE, said, base),
        "balanced_batches": balanced,
    }
    assert resolve_recipe(CATALOGUE, "class", recipe).recipe["balanced_batches"] is balanced


def test_the_recipe_of_an_older_model_has_no_balanced_batches() -> None:
    assert resolve_recipe(CATALOGUE, "class", {"method": "er"}).recipe["balanced_batches"] is False


def test_random_weights_have_a_preset_unless_another_is_named() -> None:
    found = model_defaults.complete_recipe_for_base(
        CATALOGUE, {"epochs": 3, "method": "er"}, "random"
    )
    assert found == {"preset": model_defaults.FROM_RANDOM, "epochs": 3, "method": "er"}
    assert model_defaults.complete_recipe_for_base(CATALOGUE, {"preset": "fast"}, "random") == {
        "preset": "fast"
    }


def resolve_from_random(*patches: dict) -> dict:
    return resolve_recipe(
        CATALOGUE, "class", {"preset": model_defaults.FROM_RANDOM}, *patches
    ).recipe


@pytest.mark.parametrize(
    ("method", "lr", "clip"),
    [
        ("der++", 0.1, 2.0),
        ("er", 0.1, 2.0),
        ("er-ace", 0.1, 2.0),
        ("icarl", 0.3, 2.0),
        ("finetune", 0.03, 2.0),
    ],
)
def test_from_random_weights_a_method_has_its_own_rate_and_bound(
    method: str, lr: float, clip: float
) -> None:
    optimizer = resolve_from_random({"method": method})["optimizer"]
    assert (optimizer["lr"], optimizer["clip"]) == (lr, clip)


def test_another_method_for_a_batch_has_its_own_rate_too() -> None:
    assert resolve_from_random({"method": "er"}, {"method": "icarl"})["optimizer"]["lr"] == 0.3


def test_from_random_weights_labels_weigh_twice_as_much_in_der_plus_plus() -> None:
    assert resolve_from_random()["method"]["beta"] == 1.0
    assert (
        resolve_from_random({"method": {"name": "der++", "beta": 0.25}})["method"]["beta"] == 0.25
    )
    assert resolve_recipe(CATALOGUE, "class", {"method": "der++"}).recipe["method"]["beta"] == 0.5


@pytest.mark.parametrize(
    ("patch", "lr"),
    [
        ({"optimizer": {"lr": 0.01}}, 0.01),
        ({"optimizer": {"name": "adam"}}, 0.03),
        ({"preset": "olor-adam"}, 0.0001),
        ({"method": "dlcft"}, 0.001),
    ],
    ids=["said", "adam", "preset", "adam of the method"],
)
def test_what_says_another_rate_counts(patch: dict, lr: float) -> None:
    assert resolve_from_random(patch)["optimizer"]["lr"] == lr


def test_a_complete_recipe_from_random_weights_resolves_to_itself() -> None:
    once = resolve_from_random({"method": "icarl"})
    assert resolve_recipe(CATALOGUE, "class", once).recipe == once
