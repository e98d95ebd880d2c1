"""Where a new model starts if its request does not say: architecture, base and method.

Chosen by measurement: docs/design/defaults.md has the table.
"""

from collections.abc import Mapping
from typing import Any

from core import imagenet_base, packaged_base
from core.protocol.answers.architecture import ArchitectureChoice
from core.protocol.base import PRETRAINED, ModelBase
from core.protocol.catalogue import Catalogue
from core.protocol.patch import RecipePatch
from core.recipe.merge import merge_recipe
from core.recipe.pretrained import ARCHITECTURE

RANDOM = "random"
WITH_WEIGHTS = {"name": "analytic"}
"""The method of a model that starts from weights; with random ones it is the recipe's own default."""
FROM_RANDOM = "from-random"
"""The preset of a model that starts from random weights: rate, bound of gradients and hyper-parameters that its method
has for them. As a preset it gives way to another one, and a change of method changes them too."""
CLIP = 1.0
"""The bound of the gradient's norm for a model with weights: its BatchNorm layers no longer normalise after the first
task, and steps without a bound diverge."""


BALANCED: RecipePatch = {"balanced_batches": True}
"""What the recipe of a new model says of its batches. Older models learn on as they did."""


def default_architecture(base: ModelBase | None) -> Mapping[str, Any]:
    """Return that of the ImageNet base where a request names it, else that of the small base of the package."""
    if base == imagenet_base.NAME:
        return imagenet_base.ARCHITECTURE
    return packaged_base.packaged().architecture


def default_base(architecture: ArchitectureChoice) -> str:
    """The weights that there are by name for an architecture: the package's, timm's, or random ones."""
    if architecture == packaged_base.packaged().architecture:
        return packaged_base.PACKAGED
    return PRETRAINED if architecture["name"] == ARCHITECTURE else RANDOM


def recipe_of(catalogue: Catalogue, recipe: Mapping[str, Any], base: ModelBase) -> RecipePatch:
    """A patch with what a model of that base needs where it is silent: a method, and how gradients are bounded.

    A method and a preset that the patch names stay. The result is what a null resets to.
    """
    if base == RANDOM:
        return {"preset": FROM_RANDOM, **recipe}
    defaults: RecipePatch = {"optimizer": {"clip": CLIP}}
    if not _names_method(catalogue, recipe):
        defaults["method"] = WITH_WEIGHTS
    return dict(merge_recipe(defaults, recipe))


def new_recipe(catalogue: Catalogue, recipe: Mapping[str, Any], base: ModelBase) -> RecipePatch:
    """The patch of a new model: as `recipe_of`, and with balanced batches, which older models do not have."""
    return {**BALANCED, **recipe_of(catalogue, recipe, base)}


def _names_method(catalogue: Catalogue, recipe: Mapping[str, Any]) -> bool:
    said = recipe.get("method")
    if isinstance(said, str) or (isinstance(said, Mapping) and "name" in said):
        return True
    preset = recipe.get("preset")
    return isinstance(preset, str) and "method" in catalogue["presets"].get(preset, {})
