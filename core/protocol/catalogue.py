"""The catalogue as the learning code writes it: what a recipe can say, for processes that never load torch."""

from typing_extensions import TypedDict

from core.protocol.answers.catalogue import ArchitectureEntry, MethodEntry, RecipeLanguage
from core.protocol.document import JsonObject
from core.protocol.patch import RecipePatch


class Catalogue(TypedDict):
    """Methods, architectures, optimizers (a sentence each) and presets by name, and what surrounds a method.

    `pretrained`: weights by name, with the fields of `core.protocol.pretrained.Pretrained`.
    """

    methods: dict[str, MethodEntry]
    architectures: dict[str, ArchitectureEntry]
    optimizers: dict[str, str]
    augmentations: list[str]
    presets: dict[str, RecipePatch]
    pretrained: dict[str, JsonObject]
    recipe: RecipeLanguage
