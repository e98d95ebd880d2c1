"""Recipes of the jobs that tests run themselves: completed as the API and the worker
complete them.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from core.contract.catalogue import RecipeCatalogue
from core.learning.catalogue import build_recipe_catalogue
from core.learning.methods.registry import METHODS
from core.learning.recipe import Recipe
from core.recipe.resolve import complete_stored_recipe
from core.recipe.resolve import resolve_recipe as resolve_recipe


@cache
def _build_catalogue(_methods: tuple[object, ...]) -> RecipeCatalogue:
    return build_recipe_catalogue()


def complete_recipe(patch: Mapping[str, Any], scenario: str | None = None) -> dict[str, Any]:
    """Return the complete recipe as JSON.

    Args:
        scenario: None for one in which the method works.

    Raises:
        InvalidRecipe: the recipe cannot be used.
    """
    known = _build_catalogue(tuple(METHODS.values()))
    if scenario is None:
        method = complete_stored_recipe(known, "class", patch).get("method", {})
        name = method.get("name", "") if isinstance(method, dict) else method
        entry = known["methods"].get(name)
        scenario = entry["scenarios"][0] if entry else "class"
    return cast(dict[str, Any], resolve_recipe(known, scenario, patch).recipe)


def resolve_patch(patch: Mapping[str, Any], scenario: str | None = None) -> Recipe:
    """Return the complete recipe as the job process reads it."""
    return Recipe.model_validate(complete_recipe(patch, scenario))
