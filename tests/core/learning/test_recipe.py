"""Recipes: defaults, merging, presets, and what is refused with the name of the field."""

import pytest
from recipes import resolve_patch

from core.errors import InvalidRecipe


def dump_recipe(recipe):
    return recipe.model_dump(mode="json", by_alias=True)


def test_an_empty_patch_is_der_plus_plus_with_the_documented_numbers() -> None:
    recipe = dump_recipe(resolve_patch({}))
    assert recipe["method"] == {
        "name": "der++", "buffer": 500, "alpha": 0.1, "beta": 0.5, "replay_batch": None, "draws": "separate"
    }  # fmt: skip
    assert (recipe["epochs"], recipe["batch_size"], recipe["optimizer"]["lr"]) == (10, 32, 0.03)


@pytest.mark.parametrize(
    "patch",
    [
        {},
        {"method": "ewc-online"},
        {"method": {"name": "dlcft", "lambda": 0.2}},
        {"preset": "linear-probe"},
        {"optimizer": {"name": "adam", "lr": 1e-3}},
    ],
)
def test_resolving_a_resolved_recipe_changes_nothing(patch) -> None:
    once = dump_recipe(resolve_patch(patch))
    assert dump_recipe(resolve_patch(once)) == once


def test_a_preset_sets_what_the_patch_does_not() -> None:
    recipe = resolve_patch({"preset": "linear-probe", "epochs": 3})
    assert (recipe.depth, recipe.method["name"], recipe.epochs) == (1, "finetune", 3)
    assert resolve_patch({"preset": "linear-probe", "depth": 2}).depth == 2


def test_olor_is_completed_with_its_authors_numbers() -> None:
    olor = dump_recipe(resolve_patch({"optimizer": {"olor": {"iota1": 0.05}}}))["optimizer"]["olor"]
    assert olor == {
        "iota1": 0.05, "iota2": 0.0, "gamma": 2.0, "iota_total": None, "granularity": "block",
        "anchor": "update_start", "anchor_old_head_rows": False,
    }  # fmt: skip


def test_the_olor_presets_name_an_optimizer_and_leave_the_method_open() -> None:
    sgd, adam = (
        resolve_patch({"preset": "olor-sgd"}),
        resolve_patch({"preset": "olor-adam", "method": "er"}),
    )
    assert (sgd.optimizer.name, sgd.optimizer.momentum, sgd.method["name"]) == ("sgd", 0.9, "der++")
    assert (adam.optimizer.name, adam.optimizer.lr, adam.method["name"]) == ("adam", 1e-4, "er")
    for recipe in (sgd, adam):
        assert recipe.optimizer.olor is not None and recipe.optimizer.olor.iota1 == 0.01


def test_a_method_that_does_not_accept_olor_is_refused_with_it() -> None:
    assert resolve_patch({"method": "dlcft"}).optimizer.olor is None
    with pytest.raises(InvalidRecipe) as error:
        resolve_patch({"method": "dlcft", "optimizer": {"olor": {}}})
    assert [f["field"] for f in error.value.fields] == ["recipe.optimizer.olor"]


def test_fast_is_fine_tuning_from_a_zero_head_at_two_rates_deployed_at_any_time() -> None:
    recipe = resolve_patch({"preset": "fast"})
    assert (recipe.method["name"], recipe.head.init, recipe.sampler) == (
        "finetune",
        "zero",
        "stratified",
    )
    optimizer = recipe.optimizer
    assert (optimizer.name, optimizer.momentum, optimizer.schedule) == ("sgd", 0.9, "constant")
    assert (optimizer.lr, optimizer.head_lr) == (0.001, 0.01)
    assert (recipe.validation, recipe.anytime) == (0.05, True)


@pytest.mark.parametrize("patch", [{"anytime": True}, {"preset": "fast", "validation": 0}])
def test_anytime_without_a_validation_part_is_refused_with_what_to_do(patch) -> None:
    with pytest.raises(InvalidRecipe, match=r"above 0 with anytime.*0\.05") as error:
        resolve_patch(patch)
    assert error.value.fields[0]["field"] == "recipe.validation"


@pytest.mark.parametrize(
    "patch",
    [
        {"epochs": 0},
        {"epochs": "3"},
        {"unknown": 1},
        {"optimizer": {"lr": -1.0}},
        {"optimizer": {"lr": float("inf")}},
        {"optimizer": {"olor": {"iota1": 1.01}}},
        {"optimizer": {"olor": {"iota2": -0.01}}},
        {"optimizer": {"olor": {"gamma": -1.0}}},
        {"optimizer": {"olor": {"granularity": "stage"}}},
        {"optimizer": {"dampening": 1.0}},
        {"optimizer": {"name": "lion"}},
        {"depth": 6},
        {"validation": 0.9},
        {"head": {"init": "ones"}},
        {"method": {"name": "der++", "bufer": 3}},
        {"method": {"name": "ewc-online", "gamma": 2.0}},
    ],
)
def test_unknown_fields_types_and_ranges_are_refused(patch) -> None:
    with pytest.raises(InvalidRecipe):
        resolve_patch(patch)


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"method": "magic"}, "method.name"),
        ({"preset": "faster"}, "preset"),
        ({"augment": "mixup"}, "augment"),
    ],
)
def test_unknown_names_are_refused_with_the_names_there_are(patch, field) -> None:
    with pytest.raises(InvalidRecipe) as error:
        resolve_patch(patch)
    assert error.value.fields[0]["field"] == f"recipe.{field}"
