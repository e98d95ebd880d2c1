"""Recipes: merged, completed and checked against the catalogue."""

from typing import Any

import pytest

from core.errors import Invalid, InvalidRecipe
from core.recipe.architecture import complete_architecture
from core.recipe.merge import apply_merge_patch, merge_recipe
from core.recipe.resolve import complete_stored_recipe, resolve_recipe

Json = dict[str, Any]


def make_closed_schema(**properties: Json) -> Json:
    """Return the schema of an object with these fields and no others."""
    return {"type": "object", "additionalProperties": False, "properties": properties}


@pytest.fixture
def catalogue() -> Json:
    """A small catalogue in the shape that the learning code writes."""
    olor = {
        "anyOf": [
            make_closed_schema(iota1={"type": "number", "maximum": 1}, gamma={}),
            {"type": "null"},
        ]
    }
    rate = {"type": "number", "exclusiveMinimum": 0}
    return {
        "methods": {
            "er": {
                "schema": make_closed_schema(buffer={"type": "integer", "minimum": 1}),
                "defaults": {"buffer": 500},
                "scenarios": ["data", "task", "class"],
                "weak": {},
                "accepts": {
                    "optimizers": ["sgd"],
                    "depths": [1, 5],
                    "head_inits": ["zero"],
                    "olor": False,
                },
            },
            "finetune": {
                "schema": make_closed_schema(),
                "defaults": {},
                "scenarios": ["data", "class"],
                "weak": {"class": "it forgets"},
                "accepts": {
                    "optimizers": ["sgd", "adam"],
                    "depths": [1, 2, 3, 4, 5],
                    "head_inits": ["zero"],
                },
            },
        },
        "architectures": {
            "mlp": {
                "family": "mlp",
                "schema": make_closed_schema(
                    hidden={"type": "array", "items": {"type": "integer"}}
                ),
                "defaults": {"hidden": [400]},
                "scenarios": ["data", "class"],
                "min_size": 1,
            },
            "large": {"family": "mlp", "schema": make_closed_schema(), "min_size": 32},
        },
        "presets": {"probe": {"method": {"name": "finetune"}, "depth": 1}},
        "recipe": {
            "schema": make_closed_schema(
                preset={"type": ["string", "null"]},
                method={"type": "object"},
                optimizer=make_closed_schema(name={"enum": ["sgd", "adam"]}, lr=rate, olor=olor),
                depth={"type": "integer"},
                epochs={"type": "integer", "minimum": 1},
                head={"type": "object"},
            ),
            "defaults": {
                "preset": None,
                "method": {"name": "er", "buffer": 500},
                "optimizer": {"name": "sgd", "lr": 0.03, "olor": None},
                "depth": 5,
                "epochs": 10,
                "head": {"init": "zero"},
            },
            "olor": {"iota1": 0.01, "gamma": 2.0},
        },
    }


# RFC 7396, appendix A.
@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_does_what_the_rfc_says(target: Any, patch: Any, result: Any) -> None:
    assert apply_merge_patch(target, patch) == result


def test_another_method_replaces_the_whole_block() -> None:
    before = {"method": {"name": "er", "buffer": 9}, "depth": 2}
    assert merge_recipe(before, {"method": "finetune"}) == {
        "method": {"name": "finetune"},
        "depth": 2,
    }
    assert merge_recipe(before, {"method": {"buffer": 7}})["method"] == {"name": "er", "buffer": 7}
    assert merge_recipe(before, {"method": "er"})["method"] == {"name": "er", "buffer": 9}


def test_an_empty_recipe_is_the_defaults(catalogue: Json) -> None:
    assert resolve_recipe(catalogue, "class").recipe == catalogue["recipe"]["defaults"]


def test_resolving_a_resolved_recipe_changes_nothing(catalogue: Json) -> None:
    once = resolve_recipe(catalogue, "class", {"preset": "probe", "epochs": 3}).recipe
    assert resolve_recipe(catalogue, "class", once).recipe == once


def test_a_preset_lies_under_what_is_said(catalogue: Json) -> None:
    recipe = resolve_recipe(catalogue, "data", {"preset": "probe", "depth": 2}).recipe
    assert recipe["method"] == {"name": "finetune"}
    assert recipe["depth"] == 2


def test_later_patches_win_and_null_gives_the_default_back(catalogue: Json) -> None:
    recipe = resolve_recipe(
        catalogue, "class", {"epochs": 3, "optimizer": {"lr": 1.0}}, {"epochs": None}
    ).recipe
    assert recipe["epochs"] == 10
    assert recipe["optimizer"] == {"name": "sgd", "lr": 1.0, "olor": None}


def test_olor_is_completed_where_a_recipe_asks_for_it(catalogue: Json) -> None:
    catalogue["methods"]["finetune"]["accepts"]["olor"] = True
    asked = {"method": "finetune", "optimizer": {"olor": {"iota1": 0.05}}}
    assert resolve_recipe(catalogue, "data", asked).recipe["optimizer"]["olor"] == {
        "iota1": 0.05,
        "gamma": 2.0,
    }


def test_a_weak_combination_is_a_warning(catalogue: Json) -> None:
    assert "it forgets" in resolve_recipe(catalogue, "class", {"method": "finetune"}).warnings[0]
    assert resolve_recipe(catalogue, "data", {"method": "finetune"}).warnings == []


def test_a_methods_advice_lies_under_presets_and_what_is_said(catalogue: Json) -> None:
    catalogue["methods"]["finetune"]["advice"] = {
        "optimizer": {"name": "adam", "lr": 0.001},
        "epochs": 4,
    }
    recipe = resolve_recipe(
        catalogue, "data", {"method": "finetune", "optimizer": {"lr": 0.5}}
    ).recipe
    assert (
        recipe["optimizer"] == {"name": "adam", "lr": 0.5, "olor": None} and recipe["epochs"] == 4
    )
    catalogue["presets"]["probe"]["epochs"] = 7
    assert resolve_recipe(catalogue, "data", {"preset": "probe"}).recipe["epochs"] == 7
    assert resolve_recipe(catalogue, "data", recipe).recipe == recipe


def test_the_advice_goes_with_its_method_and_null_brings_it_back(catalogue: Json) -> None:
    catalogue["methods"]["finetune"]["advice"] = {"optimizer": {"name": "adam", "lr": 0.001}}
    assert resolve_recipe(catalogue, "data", {"method": "er"}).recipe["optimizer"]["lr"] == 0.03
    advised = {"method": "finetune", "optimizer": {"lr": 0.5}}
    assert (
        resolve_recipe(catalogue, "data", advised, {"optimizer": {"lr": None}}).recipe["optimizer"][
            "lr"
        ]
        == 0.001
    )
    assert (
        resolve_recipe(catalogue, "data", advised, {"optimizer": None}).recipe["optimizer"]["name"]
        == "adam"
    )
    assert (
        resolve_recipe(catalogue, "data", advised, {"method": "er"}).recipe["optimizer"]["name"]
        == "sgd"
    )
    assert catalogue["methods"]["finetune"]["advice"] == {
        "optimizer": {"name": "adam", "lr": 0.001}
    }


def test_a_value_that_does_not_work_in_a_scenario_is_refused_there_alone(catalogue: Json) -> None:
    er = catalogue["methods"]["er"]
    er["schema"]["properties"]["mode"] = {"enum": ["free", "fixed"]}
    er["defaults"]["mode"] = "free"
    er["accepts"]["refused"] = {"class": {"mode": "fixed"}}
    fixed = {"method": {"name": "er", "mode": "fixed"}}
    assert resolve_recipe(catalogue, "task", fixed).recipe["method"]["mode"] == "fixed"
    assert resolve_recipe(catalogue, "class", {"method": "er"}).recipe["method"]["mode"] == "free"
    with pytest.raises(InvalidRecipe) as caught:
        resolve_recipe(catalogue, "class", fixed)
    assert [f["field"] for f in caught.value.fields] == ["recipe.method.mode"]
    assert '"fixed" does not work in the class scenario' in str(caught.value)


def test_a_default_of_a_scenario_counts_there_unless_something_is_said_or_was_stored_before(
    catalogue: Json,
) -> None:
    er = catalogue["methods"]["er"]
    er["schema"]["properties"]["mode"] = {"enum": ["free", "fixed"]}
    er["defaults"]["mode"] = "free"
    er["scenario_defaults"] = {"class": {"mode": "fixed"}}

    def resolve_method_mode(scenario: str, *patches: Json, stored: bool = False) -> object:
        return resolve_recipe(catalogue, scenario, *patches, stored=stored).recipe["method"]["mode"]

    assert (
        resolve_method_mode("class", {"method": "er"}) == "fixed"
        and resolve_method_mode("task", {"method": "er"}) == "free"
    )
    assert resolve_method_mode("class", {"method": {"name": "er", "mode": "free"}}) == "free"
    assert (
        resolve_method_mode("class", {"method": {"name": "er", "buffer": 500}}, stored=True)
        == "free"
    )
    assert complete_stored_recipe(catalogue, "class", {"method": "er"})["method"] == {
        **er["defaults"],
        "name": "er",
        "mode": "fixed",
    }


@pytest.mark.parametrize(
    ("scenario", "patch", "field"),
    [
        ("class", {"epochs": 0}, "recipe.epochs"),
        ("class", {"epochs": 3.0}, "recipe.epochs"),
        ("class", {"epochs": True}, "recipe.epochs"),
        ("class", {"colour": 1}, "recipe.colour"),
        ("class", {"optimizer": {"lr": 0}}, "recipe.optimizer.lr"),
        ("class", {"optimizer": {"rate": 1}}, "recipe.optimizer.rate"),
        ("class", {"optimizer": 3}, "recipe.optimizer"),
        ("data", {"method": "finetune", "optimizer": {"olor": 3}}, "recipe.optimizer.olor"),
        (
            "data",
            {"method": "finetune", "optimizer": {"olor": {"iota1": 2}}},
            "recipe.optimizer.olor.iota1",
        ),
        (
            "data",
            {"method": "finetune", "optimizer": {"olor": {"iota": 0}}},
            "recipe.optimizer.olor.iota",
        ),
        ("class", {"optimizer": {"olor": {}}}, "recipe.optimizer.olor"),
        ("class", {"method": 3}, "recipe.method"),
        ("class", {"method": {"name": "er", "buffer": 0}}, "recipe.method.buffer"),
        ("class", {"method": {"name": "er", "other": 0}}, "recipe.method.other"),
        ("class", {"method": {"name": 3}}, "recipe.method.name"),
        ("class", {"preset": "none"}, "recipe.preset"),
        ("class", {"preset": []}, "recipe.preset"),
        ("class", {"optimizer": {"name": "adam"}}, "recipe.optimizer.name"),
        ("class", {"depth": 3}, "recipe.depth"),
        ("task", {"method": "finetune"}, "recipe.method.name"),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_field(
    catalogue: Json, scenario: str, patch: Json, field: str
) -> None:
    with pytest.raises(InvalidRecipe) as caught:
        resolve_recipe(catalogue, scenario, patch)
    assert field in [f["field"] for f in caught.value.fields]


def test_several_wrong_fields_are_all_named(catalogue: Json) -> None:
    with pytest.raises(InvalidRecipe) as caught:
        resolve_recipe(catalogue, "class", {"epochs": 0, "colour": 1, "method": {"buffer": 0}})
    assert {f["field"] for f in caught.value.fields} == {
        "recipe.epochs",
        "recipe.colour",
        "recipe.method.buffer",
    }


def test_a_stored_recipe_of_a_method_that_is_gone_is_shown_as_it_is(catalogue: Json) -> None:
    assert complete_stored_recipe(catalogue, "class", {"method": "gone"}) == {"method": "gone"}


def test_an_architecture_is_completed(catalogue: Json) -> None:
    image = {"size": 32, "channels": 3}
    assert complete_architecture(catalogue, "class", "mlp", image) == {
        "name": "mlp",
        "hidden": [400],
    }
    asked = {"name": "mlp", "hidden": [5]}
    assert complete_architecture(catalogue, "class", asked, image) == asked


@pytest.mark.parametrize(
    ("scenario", "asked", "size", "field"),
    [
        ("class", "none", 32, "architecture.name"),
        ("class", {}, 32, "architecture.name"),
        ("class", {"name": "mlp", "width": 3}, 32, "architecture.width"),
        ("class", {"name": "mlp", "hidden": [1.5]}, 32, "architecture.hidden.0"),
        ("task", "mlp", 32, "architecture.name"),
        ("class", "large", 16, "image.size"),
    ],
)
def test_an_unusable_architecture_is_refused(
    catalogue: Json, scenario: str, asked: Any, size: int, field: str
) -> None:
    with pytest.raises(Invalid) as caught:
        complete_architecture(catalogue, scenario, asked, {"size": size, "channels": 3})
    assert field in [f["field"] for f in caught.value.fields]
