"""The problem of a model: which there are, and what they accept of a recipe."""

from typing import Any

import pytest

from core.errors import Invalid
from core.recipe.problem import find_errors_of_recipe_unfit_for_problem, resolve_requested_problem

CATALOGUE: dict[str, Any] = {
    "problems": {
        "classification": {"methods": {}, "optimizers": {}, "augmentations": None},
        "counting": {
            "methods": {"finetune": None, "lwf": "its loss is of classes"},
            "optimizers": {"sgd": None, "adam": "it counts"},
            "augmentations": ["none", "shift"],
        },
    }
}


def make_recipe(method: str = "finetune", optimizer: str = "sgd", augment: str = "auto") -> Any:
    return {"method": {"name": method}, "optimizer": {"name": optimizer}, "augment": augment}


def test_classification_is_stored_as_no_problem() -> None:
    assert resolve_requested_problem(CATALOGUE, None) is None
    assert resolve_requested_problem(CATALOGUE, "classification") is None
    assert resolve_requested_problem(CATALOGUE, "counting") == "counting"


def test_an_unknown_problem_is_refused_with_those_there_are() -> None:
    with pytest.raises(Invalid, match="one of classification, counting") as refused:
        resolve_requested_problem(CATALOGUE, "countin")
    (field,) = refused.value.fields
    assert field["field"] == "problem"
    assert "counting" in field["message"]
    assert refused.value.status == 422


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (make_recipe(method="lwf"), "recipe.method.name"),
        (make_recipe(optimizer="adam"), "recipe.optimizer.name"),
        (make_recipe(augment="flip"), "recipe.augment"),
    ],
)
def test_what_does_not_fit_is_named_with_its_field(given: Any, field: str) -> None:
    ((named, message),) = find_errors_of_recipe_unfit_for_problem(CATALOGUE, "counting", given)
    assert named == field
    assert "counting" in message
    assert list(find_errors_of_recipe_unfit_for_problem(CATALOGUE, None, given)) == []


def test_what_fits_is_accepted() -> None:
    assert list(find_errors_of_recipe_unfit_for_problem(CATALOGUE, "counting", make_recipe())) == []


def test_a_problem_that_this_release_lacks_is_named() -> None:
    ((field, message),) = find_errors_of_recipe_unfit_for_problem(
        CATALOGUE, "poetry", make_recipe()
    )
    assert field == "problem"
    assert "classification" in message
