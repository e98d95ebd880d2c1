"""The catalogue as the learning code writes it: what a recipe can say, for processes that never load torch."""

from typing_extensions import TypedDict

from core.protocol.answers.catalogue import ArchitectureEntry, MethodEntry, RecipeLanguage
from core.protocol.patch import RecipePatch
from core.protocol.pretrained import PretrainedRow


class Catalogue(TypedDict):
    """Methods, architectures, optimizers (a sentence each) and presets by name, and what surrounds a method.

    `pretrained`: timm's weights by name; `unusable`: those that cannot be used, and why; `recommended`: a
    dozen by name, and what each is good for.
    """

    methods: dict[str, MethodEntry]
    architectures: dict[str, ArchitectureEntry]
    optimizers: dict[str, str]
    augmentations: list[str]
    presets: dict[str, RecipePatch]
    recipe: RecipeLanguage
    pretrained: dict[str, PretrainedRow]
    unusable: dict[str, str]
    recommended: dict[str, str]
