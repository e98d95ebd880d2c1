"""Recipes that older code resolved, refused and stored (`tests/data/recipes-before.json`) mean the
same today.

The file was written by the code whose last commit is 678d427, when the API and the learning code
each had a resolver; `jobs` are recipes of jobs that are older still. Patches of `resolved` name the
defaults of their time that changed later, as a migration wrote them into stored patches.
"""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from core.errors import InvalidRecipe
from core.learning.methods import registry
from core.learning.recipe import Recipe
from core.recipe.resolve import resolve_recipe
from tests.learning_catalogue import copy_catalogue

Json = dict[str, Any]
LATER = {"analytic", "er-ace", "slca"}
"""Methods that came after that code: its messages do not name them."""
ADDED = {"iota_total": None, "weight": "constant", "draws": "separate", "memory_batch": None}
"""Fields of methods and optimizers that came after that code, and the values that mean what it did.
"""
NEW_FIELDS = {
    "balanced_batches": False,
    "features": "computed",
    "merge": None,
    "rebalance": None,
    "data_report": "warn",
    "precision": "auto",
    "deterministic": True,
    "resources": {"device": "any", "gpus": 1, "resume": "same"},
    "shards": 1,
}
"""The same for a recipe's own fields."""
CATALOGUE = copy_catalogue()
for later in LATER:
    del CATALOGUE["methods"][later]
OLDER = copy.deepcopy(CATALOGUE)
"""The catalogue without these fields, which messages list."""
del OLDER["presets"]["from-random"]
for field in NEW_FIELDS:
    del OLDER["recipe"]["schema"]["properties"][field], OLDER["recipe"]["defaults"][field]
for method, hyper in (("der++", "draws"), ("gem", "memory_batch")):
    del (
        OLDER["methods"][method]["schema"]["properties"][hyper],
        OLDER["methods"][method]["defaults"][hyper],
    )
BEFORE = json.loads((Path(__file__).parents[2] / "data" / "recipes-before.json").read_text())


def make_case_title(case: Json) -> str:
    return f"{case['scenario']} {json.dumps(case.get('patches', case.get('recipe')))}"[:80]


def remove_later_fields(recipe: Json) -> Json:
    """Return the recipe without the fields that came later.
    They must have the values that say what was before.
    """
    recipe = copy.deepcopy(recipe)
    for block in (recipe.get("method"), (recipe.get("optimizer") or {}).get("olor")):
        for name in set(block or {}) & set(ADDED):
            assert block.pop(name) == ADDED[name]
    for name in set(recipe) & set(NEW_FIELDS):
        assert recipe.pop(name) == NEW_FIELDS[name]
    return recipe


@pytest.mark.parametrize("case", BEFORE["resolved"], ids=make_case_title)
def test_a_stored_patch_resolves_to_the_same_recipe_with_the_same_warnings(case: Json) -> None:
    found = resolve_recipe(CATALOGUE, case["scenario"], *case["patches"])
    assert (remove_later_fields(found.recipe), found.warnings) == (case["recipe"], case["warnings"])


@pytest.mark.parametrize("case", BEFORE["refused"], ids=make_case_title)
def test_what_was_refused_is_refused_in_the_same_words(case: Json) -> None:
    with pytest.raises(InvalidRecipe) as error:
        resolve_recipe(OLDER, case["scenario"], *case["patches"], architecture=case["architecture"])
    assert (error.value.detail, error.value.fields) == (case["detail"], case["fields"])


@pytest.mark.parametrize("case", [*BEFORE["resolved"], *BEFORE["jobs"]], ids=make_case_title)
def test_a_stored_recipe_resolves_to_itself_and_the_job_process_takes_it(case: Json) -> None:
    found = resolve_recipe(CATALOGUE, case["scenario"], case["recipe"], stored=True).recipe
    assert remove_later_fields(found) == case["recipe"]
    read = Recipe.model_validate(case["recipe"]).model_dump(mode="json")
    assert remove_later_fields(read) == case["recipe"]
    hyper = dict(case["recipe"]["method"])
    method = registry.get_method(hyper.pop("name"))
    known = method.Hyper.model_validate(hyper).model_dump(mode="json", by_alias=True)
    assert remove_later_fields({"method": known}) == {"method": hyper}


@pytest.mark.parametrize(
    ("method", "scenario", "defaults"),
    [
        ("si", "task", {"c": 0.1, "xi": 0.001}),
        (
            "analytic",
            "class",
            {
                "head": "auto",
                "projection": None,
                "balanced": True,
                "keep": "features",
                "offsets": True,
            },
        ),
    ],
)
def test_a_recipe_of_today_has_the_defaults_of_today(
    method: str, scenario: str, defaults: Json
) -> None:
    resolved = resolve_recipe(copy_catalogue(), scenario, {"method": method}).recipe["method"]
    assert defaults.items() <= dict(resolved).items()
