"""Stored form of a recipe patch that a client sent, limited in size."""

import json
from collections.abc import Mapping
from typing import Any

from core.contract.catalogue import RecipeCatalogue
from core.contract.patch import RecipePatch
from core.errors import InvalidRecipe
from core.recipe.merge import merge_recipe
from core.recipe.resolve import list_recipe_paths

MAX_RECIPE_BYTES = 64 << 10
"""Maximum size of a patch as sent, in UTF-8 bytes. The stored form is smaller."""


def build_stored_recipe_patch(
    patch: Mapping[str, Any], before: Mapping[str, Any] | None = None
) -> RecipePatch:
    """Build the recipe patch that a model stores: `patch` over its recipe `before`, without nulls.

    Nulls are dropped because they set nothing and may have any name.

    Raises:
        InvalidRecipe: the patch is larger than `MAX_RECIPE_BYTES`.
    """
    _require_recipe_patch_size_limit(patch)
    return dict[str, object](merge_recipe(merge_recipe({}, before or {}), patch))


def build_stored_recipe_override(
    catalogue: RecipeCatalogue, patch: Mapping[str, Any]
) -> RecipePatch:
    """Build the recipe patch that a job stores over its model's recipe.

    Unlike `build_stored_recipe_patch`, it retains the nulls of known fields, since they reset a value.

    Raises:
        InvalidRecipe: the patch is larger than `MAX_RECIPE_BYTES`.
    """
    _require_recipe_patch_size_limit(patch)
    # Most overrides are empty, and the paths of all methods are many.
    paths = (
        [path for method in catalogue["methods"] for path in list_recipe_paths(catalogue, method)]
        if patch
        else []
    )
    return _drop_unknown_null_recipe_fields(
        patch, {name for path in paths for name in path.split(".")}
    )


def _drop_unknown_null_recipe_fields(
    patch: Mapping[str, Any], known_names: set[str]
) -> RecipePatch:
    return {
        key: _drop_unknown_null_recipe_fields(value, known_names)
        if isinstance(value, Mapping)
        else value
        for key, value in patch.items()
        if value is not None or key in known_names
    }


def _require_recipe_patch_size_limit(patch: Mapping[str, Any]) -> None:
    # As sent: escapes would make one letter up to six bytes.
    size = len(json.dumps(patch, ensure_ascii=False).encode())
    if size > MAX_RECIPE_BYTES:
        raise InvalidRecipe(
            f"A recipe may have {MAX_RECIPE_BYTES} bytes; this one has {size}.",
            fields=[{"field": "recipe", "message": f"at most {MAX_RECIPE_BYTES} bytes"}],
        )
