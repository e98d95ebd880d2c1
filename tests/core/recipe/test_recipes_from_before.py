"""Recipes that older code resolved, refused and stored (`tests/data/recipes-before.json`) mean the same today.

The file was written by the code whose last commit is 678d427, when the API and the learning code each had a resolver;
`jobs` are recipes of jobs in `before-line.tar.gz`, which is older still.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from core.errors import InvalidRecipe
from core.learn.catalogue import catalogue
from core.learn.methods import registry
from core.learn.recipe import Recipe
from core.recipe.resolve import resolve

Json = dict[str, Any]
LATER = {"analytic", "er-ace", "slca"}
"""Methods that came after that code: its messages do not name them."""
CATALOGUE = catalogue()
for later in LATER:
    del CATALOGUE["methods"][later]
BEFORE = json.loads((Path(__file__).parents[2] / "data" / "recipes-before.json").read_text())


def title(case: Json) -> str:
    return f"{case['scenario']} {json.dumps(case.get('patches', case.get('recipe')))}"[:80]


@pytest.mark.parametrize("case", BEFORE["resolved"], ids=title)
def test_a_patch_resolves_to_the_same_recipe_with_the_same_warnings(case: Json) -> None:
    found = resolve(CATALOGUE, case["scenario"], *case["patches"])
    assert (found.recipe, found.warnings) == (case["recipe"], case["warnings"])


@pytest.mark.parametrize("case", BEFORE["refused"], ids=title)
def test_what_was_refused_is_refused_in_the_same_words(case: Json) -> None:
    with pytest.raises(InvalidRecipe) as error:
        resolve(CATALOGUE, case["scenario"], *case["patches"], architecture=case["architecture"])
    assert (error.value.detail, error.value.fields) == (case["detail"], case["fields"])


@pytest.mark.parametrize("case", [*BEFORE["resolved"], *BEFORE["jobs"]], ids=title)
def test_a_stored_recipe_resolves_to_itself_and_the_job_process_takes_it(case: Json) -> None:
    assert resolve(CATALOGUE, case["scenario"], case["recipe"]).recipe == case["recipe"]
    assert Recipe.model_validate(case["recipe"]).model_dump(mode="json") == case["recipe"]
    hyper = dict(case["recipe"]["method"])
    method = registry.get(hyper.pop("name"))
    assert method.Hyper.model_validate(hyper).model_dump(mode="json", by_alias=True) == hyper
