"""Recipes: defaults, merging, presets, and what is refused with the name of the field."""

import pytest
from pydantic import ValidationError

from core.learn.recipe import RecipeError, merge, resolve


def dump(recipe):
    return recipe.model_dump(mode="json", by_alias=True)


def test_an_empty_patch_is_der_plus_plus_with_the_documented_numbers() -> None:
    recipe = dump(resolve({}))
    assert recipe["method"] == {
        "name": "der++", "buffer": 500, "alpha": 0.1, "beta": 0.5, "replay_batch": None
    }  # fmt: skip
    assert (recipe["epochs"], recipe["batch_size"], recipe["optimizer"]["lr"]) == (10, 32, 0.03)


@pytest.mark.parametrize(
    "patch",
    [{}, {"method": "ewc-online"}, {"preset": "linear-probe"}, {"optimizer": {"name": "adam", "lr": 1e-3}}],
)
def test_resolving_a_resolved_recipe_changes_nothing(patch) -> None:
    once = dump(resolve(patch))
    assert dump(resolve(once)) == once


def test_a_preset_sets_what_the_patch_does_not() -> None:
    recipe = resolve({"preset": "linear-probe", "epochs": 3})
    assert (recipe.depth, recipe.method["name"], recipe.epochs) == (1, "finetune", 3)
    assert resolve({"preset": "linear-probe", "depth": 2}).depth == 2


def test_a_patch_that_names_another_method_drops_the_hyper_parameters_of_the_first() -> None:
    merged = merge({"method": {"name": "der++", "buffer": 9}}, {"method": "finetune"})
    assert merged == {"method": {"name": "finetune"}}


def test_a_patch_that_names_the_same_method_keeps_them() -> None:
    merged = merge({"method": {"name": "der++", "buffer": 9}}, {"method": {"alpha": 0.3}})
    assert merged == {"method": {"name": "der++", "buffer": 9, "alpha": 0.3}}


def test_null_in_a_patch_removes_a_field() -> None:
    assert merge({"epochs": 3, "optimizer": {"lr": 1.0, "clip": 2.0}}, {"epochs": None, "optimizer": {"clip": None}}) == {
        "optimizer": {"lr": 1.0}
    }  # fmt: skip


@pytest.mark.parametrize(
    "patch",
    [
        {"epochs": 0},
        {"epochs": "3"},
        {"unknown": 1},
        {"optimizer": {"lr": -1.0}},
        {"optimizer": {"lr": float("inf")}},
        {"optimizer": {"olor": {"iota1": 0.01}}},
        {"optimizer": {"name": "lion"}},
        {"depth": 6},
        {"validation": 0.9},
        {"head": {"init": "ones"}},
        {"method": {"name": "der++", "bufer": 3}},
        {"method": {"name": "ewc-online", "gamma": 2.0}},
    ],
)
def test_unknown_fields_types_and_ranges_are_refused(patch) -> None:
    with pytest.raises(ValidationError):
        resolve(patch)


@pytest.mark.parametrize(
    ("patch", "field"),
    [({"method": "magic"}, "method.name"), ({"preset": "fast"}, "preset"), ({"augment": "mixup"}, "augment")],
)
def test_unknown_names_are_refused_with_the_names_there_are(patch, field) -> None:
    with pytest.raises(RecipeError) as error:
        resolve(patch)
    assert error.value.field == field
