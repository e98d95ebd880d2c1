"""The models that start from the base for photos although their request does not name it."""

from collections.abc import Mapping
from typing import Any

from core import imagenet_base
from core.errors import InvalidRecipe
from core.protocol.answers.model_change import AskedImage, NewModel
from core.protocol.answers.recipe import RecipeOut
from core.protocol.catalogue import Catalogue
from core.recipe import start
from core.recipe.resolve import resolve
from core.recipe.stored import stored

HEAD_ALONE = 1
"""The depth at which nothing but the head is trained."""


def leaves_base_open(given: NewModel) -> bool:
    """Return whether a request names neither architecture nor base nor image size, and wants images in colour."""
    image: AskedImage = given.get("image") or {}
    named = given.get("architecture") or given.get("base") or image.get("size")
    return not named and image.get("channels") != 1


def find_recipe(catalogue: Catalogue, given: NewModel) -> RecipeOut | None:
    """Return the complete recipe that a new model would have on this base; None where its method does not take it."""
    patch = start.new_recipe(catalogue, stored(given.get("recipe") or {}), imagenet_base.NAME)
    try:
        return resolve(catalogue, given["scenario"], patch, architecture=imagenet_base.ARCHITECTURE).recipe
    except InvalidRecipe:
        return None


def trains_backbone(recipe: RecipeOut) -> bool:
    """Return whether learning by a complete recipe changes more of the network than its head."""
    method: Mapping[str, Any] = recipe["method"]
    return recipe.get("depth") != HEAD_ALONE or method.get("adapt") is not None
