"""Options of a recipe beside and after training: cached features, `merge`, `rebalance`; and
what is refused.
"""

from typing import Any

import pytest

from core.errors import InvalidRecipe
from core.recipe.resolve import resolve_recipe
from tests.learning_catalogue import copy_catalogue

CATALOGUE = copy_catalogue()


def list_refused_fields(patch: dict[str, Any], scenario: str = "class") -> list[tuple[str, str]]:
    with pytest.raises(InvalidRecipe) as error:
        resolve_recipe(CATALOGUE, scenario, patch)
    return [(field["field"], field["message"]) for field in error.value.fields]


def test_what_a_block_leaves_open_is_shown_with_its_default() -> None:
    recipe = resolve_recipe(CATALOGUE, "class", {"rebalance": {}, "merge": {"weight": 0.5}}).recipe
    assert recipe["rebalance"] == {"epochs": 5, "lr": None}
    assert recipe["merge"] == {"weight": 0.5, "within": None}


def test_a_recipe_that_says_nothing_asks_for_none_of_it() -> None:
    recipe = resolve_recipe(CATALOGUE, "class", {}).recipe
    assert (recipe["features"], recipe["merge"], recipe["rebalance"]) == ("computed", None, None)


def test_a_batch_may_take_another_rule_by_a_null_for_the_first() -> None:
    patches = (
        {"merge": {"weight": 0.5}},
        {"merge": {"within": 0.01, "weight": None}, "validation": 0.1},
    )
    assert resolve_recipe(CATALOGUE, "class", *patches).recipe["merge"] == {
        "weight": None,
        "within": 0.01,
    }


@pytest.mark.parametrize(
    ("patch", "field", "words"),
    [
        ({"merge": {}}, "recipe.merge", "needs one of weight and within"),
        (
            {"merge": {"weight": 0.5, "within": 0.1}, "validation": 0.1},
            "recipe.merge",
            "and the other null",
        ),
        ({"merge": {"within": 0.1}}, "recipe.validation", "must be above 0 with merge.within"),
        (
            {"merge": {"weight": 0.5}, "method": "si"},
            "recipe.merge",
            "does not work with si: its importance",
        ),
        (
            {"rebalance": {}, "method": "ewc"},
            "recipe.rebalance",
            "does not work with ewc: it keeps no images",
        ),
        (
            {"rebalance": {}, "method": "dlcft"},
            "recipe.rebalance",
            "its head is part of the objective",
        ),
        (
            {"rebalance": {}, "optimizer": {"carry_state": True}},
            "recipe.optimizer.carry_state",
            "must be false with rebalance",
        ),
        ({"resources": {"gpus": 2}}, "recipe.resources.gpus", 'above 1 needs "device": "cuda"'),
    ],
)
def test_what_does_not_go_together_is_refused_with_a_reason(patch, field, words) -> None:
    ((found, message),) = list_refused_fields(patch)
    assert found == field and words in message


def test_heads_of_their_own_need_no_balance() -> None:
    ((field, message),) = list_refused_fields({"rebalance": {}, "method": "er"}, "task")
    assert field == "recipe.rebalance" and "every task has a head of its own" in message


@pytest.mark.parametrize(
    "patch", [{"merge": {"weight": 1.5}}, {"rebalance": {"epochs": 0}}, {"features": "kept"}]
)
def test_values_out_of_range_are_refused(patch) -> None:
    assert len(list_refused_fields(patch)) == 1
