"""Selection of the base for photos for models whose request does not name one."""

from collections.abc import Mapping
from typing import Any

from core.contract.catalogue import RecipeCatalogue
from core.contract.responses.model_change import NewModel, RequestedImageSettings
from core.contract.responses.recipe import RecipeOut
from core.errors import InvalidRecipe
from core.packaged import imagenet_base
from core.recipe import model_defaults
from core.recipe.resolve import resolve_recipe
from core.recipe.stored_patch import build_stored_recipe_patch

HEAD_ALONE = 1
"""The depth at which nothing but the head is trained."""


def is_base_choice_left_open(request: NewModel) -> bool:
    """Return True if a request names no architecture, base or image size, and no grey images."""
    image: RequestedImageSettings = request.get("image") or {}
    named = request.get("architecture") or request.get("base") or image.get("size")
    # The base for photos reads three channels.
    return not named and image.get("channels") != 1


def find_default_recipe_on_imagenet_base(
    catalogue: RecipeCatalogue, request: NewModel
) -> RecipeOut | None:
    """Find the complete default recipe of a model on this base; None if its method does not accept
    it.
    """
    patch = model_defaults.build_recipe_of_new_model(
        catalogue, build_stored_recipe_patch(request.get("recipe") or {}), imagenet_base.NAME
    )
    try:
        return resolve_recipe(
            catalogue, request["scenario"], patch, architecture=imagenet_base.ARCHITECTURE
        ).recipe
    except InvalidRecipe:
        return None


def trains_backbone(recipe: RecipeOut) -> bool:
    """Return True if a recipe trains the backbone, not only the head."""
    method: Mapping[str, Any] = recipe["method"]
    return recipe.get("depth") != HEAD_ALONE or method.get("adapt") is not None
