"""The catalogue that the learning code writes, for processes that never load torch."""

from typing_extensions import TypedDict

from core.contract.patch import RecipePatch
from core.contract.pretrained import PretrainedWeightsRow
from core.contract.problem import ProblemTypeCatalogueEntry
from core.contract.responses.catalogue import ArchitectureEntry, MethodEntry, RecipeLanguage


class RecipeCatalogue(TypedDict):
    """Catalogue of what a recipe can name: methods, architectures, optimizers and presets.

    - `recipe`: the other fields of a recipe.
    - `problems`: what a model can learn to predict, by name.
    - `pretrained`: timm's weights by name.
    - `unusable`: weights that cannot be used, with the reason.
    - `recommended`: a dozen weights, with the purpose of each.
    """

    methods: dict[str, MethodEntry]
    architectures: dict[str, ArchitectureEntry]
    problems: dict[str, ProblemTypeCatalogueEntry]
    optimizers: dict[str, str]
    augmentations: list[str]
    presets: dict[str, RecipePatch]
    recipe: RecipeLanguage
    pretrained: dict[str, PretrainedWeightsRow]
    unusable: dict[str, str]
    recommended: dict[str, str]
