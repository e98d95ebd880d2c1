"""Warnings about recipes that are accepted and known to work badly."""

import pytest

from core.recipe.resolve import resolve_recipe
from tests.learning_catalogue import copy_catalogue

CATALOGUE = copy_catalogue()
OLOR = {"optimizer": {"olor": {}}}
WEAK = [(n, s) for n, m in CATALOGUE["methods"].items() for s in m["weak"]]
FINE = [
    (n, s) for n, m in CATALOGUE["methods"].items() for s in m["scenarios"] if s not in m["weak"]
]


def list_recipe_warnings(scenario, *patches):
    return resolve_recipe(CATALOGUE, scenario, *patches).warnings


@pytest.mark.parametrize(("name", "scenario"), WEAK)
def test_a_method_that_is_weak_in_a_scenario_says_why(name, scenario) -> None:
    reason = CATALOGUE["methods"][name]["weak"][scenario]
    assert (
        f"{name} is known to be weak in the {scenario} scenario: {reason}"
        in list_recipe_warnings(scenario, {"method": name})
    )


@pytest.mark.parametrize(("name", "scenario"), FINE)
def test_a_method_where_it_works_is_not_warned_about(name, scenario) -> None:
    assert list_recipe_warnings(scenario, {"method": name}) == []


def test_olor_alone_is_weak_in_the_class_scenario_only() -> None:
    said = list_recipe_warnings("class", {"method": "finetune"}, OLOR)
    assert any("OLOR is known to be weak" in text and "der++" in text for text in said)
    assert not any("OLOR" in text for text in list_recipe_warnings("class", {"method": "er"}, OLOR))
    assert not any(
        "OLOR" in text for text in list_recipe_warnings("task", {"method": "finetune"}, OLOR)
    )


@pytest.mark.parametrize("scenario", ["data", "task", "class"])
def test_olor_at_depth_one_does_nothing_unless_it_holds_rows_of_the_head(scenario) -> None:
    recipe = {"method": "er", "depth": 1}
    said = list_recipe_warnings(scenario, recipe, OLOR)
    assert len(said) == 1 and said[0].startswith("OLOR does nothing at depth 1")
    held = {"optimizer": {"olor": {"anchor_old_head_rows": True}}}
    assert (
        list_recipe_warnings(scenario, recipe, held)
        == list_recipe_warnings(scenario, {"method": "er", "depth": 2}, OLOR)
        == []
    )


def test_a_linear_probe_is_weak_in_the_class_scenario_unless_replay_protects_the_head() -> None:
    assert any(
        "depth 1" in text for text in list_recipe_warnings("class", {"preset": "linear-probe"})
    )
    assert list_recipe_warnings("class", {"method": "er", "depth": 1}) == []
    assert not any(
        "depth 1" in text for text in list_recipe_warnings("class", {"method": "vpt"})
    )  # prompts move as well
    assert list_recipe_warnings("task", {"preset": "linear-probe"}) == []


@pytest.mark.parametrize(
    ("scenario", "what"), [("class", "new-rows-zero"), ("data", "goes on"), ("task", None)]
)
def test_fast_says_where_its_head_is_not_zero_as_a_whole(scenario, what) -> None:
    said = [
        text for text in list_recipe_warnings(scenario, {"preset": "fast"}) if "preset fast" in text
    ]
    assert len(said) == (what is not None)
    assert what is None or what in said[0]


def test_a_patch_that_changes_the_method_of_a_preset_is_judged_by_the_result() -> None:
    assert list_recipe_warnings("class", {"preset": "olor-sgd"}, {"method": "er"}) == []


def test_what_changes_nothing_because_nothing_is_trained_is_said() -> None:
    recipe = {"method": "analytic", "epochs": 5, "optimizer": {"lr": 0.1, "clip": 1.0}}
    (said,) = resolve_recipe(CATALOGUE, "class", recipe).warnings
    assert said.startswith("analytic trains nothing, so epochs and optimizer change nothing.")
    quiet = [{"method": "analytic", "optimizer": {"clip": 1.0}}, {"method": "er", "epochs": 5}]
    quiet.append({"method": {"name": "analytic", "adapt": {"epochs": 1, "depth": 5}}, "epochs": 5})
    assert all(not resolve_recipe(CATALOGUE, "class", recipe).warnings for recipe in quiet)
