"""Defaults of a new model: architecture, base and method.

They were chosen by measurement: docs/design/defaults.md has the table.
"""

from collections.abc import Mapping
from typing import Any

from core.contract.base import ADOPTED, PRETRAINED, ModelBase
from core.contract.catalogue import RecipeCatalogue
from core.contract.patch import RecipePatch
from core.contract.responses.architecture import ArchitectureChoice
from core.packaged import imagenet_base, packaged_base
from core.recipe.merge import merge_recipe
from core.recipe.pretrained import ARCHITECTURE

RANDOM = "random"
WITH_WEIGHTS = {"name": "analytic"}
"""Method of a model that starts from weights; random ones use the recipe's own default."""
AFTER_ADOPTION: RecipePatch = {"method": {"name": "lwf", "lambda_o": 1.5}, "depth": 1}
"""Method of a model that adopts a classifier: it needs no image of the classes so far.

The head alone learns, since the features are what the classifier knows: `bench.research.adopted`.
"""
FROM_RANDOM = "from-random"
"""Preset of a model that starts from random weights: rate, bound of gradients, hyper-parameters.

As a preset it gives way to another one, and a change of method changes its hyper-parameters too.
"""
CLIP = 1.0
"""Bound of the gradient's norm for a model with weights.

Its BatchNorm layers no longer normalise after the first task, and steps without a bound diverge.
"""


BALANCED: RecipePatch = {"balanced_batches": True}
"""Batch settings in the recipe of a new model. Older models keep theirs."""


def choose_default_architecture(base: ModelBase | None) -> Mapping[str, Any]:
    """Choose a new model's architecture: the ImageNet base's if requested, else the small
    base's.
    """
    if base == imagenet_base.NAME:
        return imagenet_base.ARCHITECTURE
    return packaged_base.load_packaged_base_description().architecture


def choose_default_base_weights(architecture: ArchitectureChoice) -> str:
    """Choose the initial weights of an architecture: the package's, timm's, or random ones."""
    if architecture == packaged_base.load_packaged_base_description().architecture:
        return packaged_base.PACKAGED
    return PRETRAINED if architecture["name"] == ARCHITECTURE else RANDOM


def complete_recipe_for_base(
    catalogue: RecipeCatalogue, recipe: Mapping[str, Any], base: ModelBase
) -> RecipePatch:
    """Complete a recipe patch with the method and gradient bound that a model on this base needs.

    A method and a preset that the patch names stay. The result is the recipe that a null resets to.
    """
    if base == RANDOM:
        # In front, so that a preset that the recipe names takes its place.
        return {"preset": FROM_RANDOM, **recipe}
    defaults: RecipePatch = {"optimizer": {"clip": CLIP}}
    if not _does_recipe_name_method(catalogue, recipe):
        defaults |= AFTER_ADOPTION if base == ADOPTED else {"method": WITH_WEIGHTS}
    return dict(merge_recipe(defaults, recipe))


def build_recipe_of_new_model(
    catalogue: RecipeCatalogue, recipe: Mapping[str, Any], base: ModelBase
) -> RecipePatch:
    """Build the recipe patch of a new model: as `complete_recipe_for_base`, with balanced batches.

    Older models do not have balanced batches.
    """
    return {**BALANCED, **complete_recipe_for_base(catalogue, recipe, base)}


def _does_recipe_name_method(catalogue: RecipeCatalogue, recipe: Mapping[str, Any]) -> bool:
    method = recipe.get("method")
    if isinstance(method, str) or (isinstance(method, Mapping) and "name" in method):
        return True
    preset = recipe.get("preset")
    return isinstance(preset, str) and "method" in catalogue["presets"].get(preset, {})
