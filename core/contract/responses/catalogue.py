"""The catalogue of recipes and architectures, which the learning code writes."""

from typing import Annotated, NotRequired

from pydantic import Field, JsonValue
from typing_extensions import TypeAliasType, TypedDict

from core.contract.patch import RecipePatch
from core.contract.responses.recipe import MergeOut, OlorOut, RebalanceOut, RecipeOut

JsonSchema = TypeAliasType(
    "JsonSchema",
    Annotated[dict[str, JsonValue], Field(description="A JSON Schema, draft 2020-12.")],
)
HyperParameters = TypeAliasType(
    "HyperParameters",
    Annotated[dict[str, JsonValue], Field(description="Hyper-parameters by their names.")],
)


class Accepts(TypedDict):
    """Combinations of scenario, network and optimizer that a learning method accepts.

    - `architectures`: families; null: all.
    - `task_only`: hyper-parameters that must be off outside the task scenario.
    - `refused`: by scenario, the values of hyper-parameters that do not work there.
    - `unfit`: by family of architectures and hyper-parameter, the values that do not work on it. A
      family without hyper-parameters does not work with the method at all.
    """

    optimizers: list[str]
    depths: list[int]
    head_inits: list[str]
    olor: bool
    architectures: list[str] | None
    task_only: list[str]
    refused: dict[str, HyperParameters]
    unfit: dict[str, dict[str, list[str]]]


class Footprint(TypedDict):
    """Memory that a method uses while it learns, from which a job's memory is estimated.

    - `copies`: copies of the weights.
    - `copies_with`: hyper-parameter → value → copies used instead.
    - `examples`: further copies where the gradients of single images are as large as the weights.
    - `growing`: further copies for each earlier task.
    - `batches`, `images`: numbers whose activations are in memory.
    - `columns`: hyper-parameter with the number of columns of which the method stores second
      moments for each task. Its value 0 stands for the number of the network's features plus one.
      "" means that it stores none.
    """

    copies: float
    copies_with: dict[str, dict[str, float]]
    examples: float
    growing: float
    batches: float
    images: int
    columns: str


class MethodEntry(TypedDict):
    """Catalogue entry of a learning method: description, hyper-parameters and what it accepts.

    - `schema`, `defaults`: of its hyper-parameters.
    - `scenario_defaults`: defaults that differ in a scenario.
    - `former_defaults`: meaning of missing hyper-parameters in a stored recipe.
    - `weak`: by scenario, why it works badly there.
    - `family`: the network that it makes, fixed for a model's life, as are the hyper-parameters in
      `structure`.
    - `advice`: values for fields that a recipe leaves open.
    - `from_random`: the same for a model that starts from random weights (preset `from-random`,
      SGD).
    - `takes`: types of state that it can take over from another method.
    - `predicts_with`: types of state that it needs for inference.
    - `neutral`: hyper-parameters with which it equals fine-tuning, or `no_neutral`: why there are
      none.
    - `inference`: file of a download's loading code that predicts with its state.
    - `no_feature_cache`, `no_merge`, `no_rebalance`, `no_shards`: why that feature of a recipe does
      not work with it, or null.
    """

    schema: JsonSchema
    defaults: HyperParameters
    scenario_defaults: dict[str, HyperParameters]
    former_defaults: HyperParameters
    scenarios: list[str]
    weak: dict[str, str]
    accepts: Accepts
    footprint: Footprint
    family: str
    structure: list[str]
    advice: RecipePatch
    from_random: RecipePatch
    takes: list[str]
    predicts_with: list[str]
    inference: str | None
    source: str
    description: str
    neutral: HyperParameters | None
    no_neutral: str | None
    no_feature_cache: str | None
    no_merge: str | None
    no_rebalance: str | None
    no_shards: str | None


class MethodOut(MethodEntry):
    """Catalogue entry of a learning method, with its name."""

    name: str


class ArchitectureEntry(TypedDict):
    """Catalogue entry of a network architecture: description and hyper-parameters.

    - `schema`, `defaults`: of its hyper-parameters.
    - `min_size`: smallest image in pixels a side.
    - `recommended`: some of the many networks that it stands for, with the purpose of each.
    """

    schema: JsonSchema
    defaults: HyperParameters
    scenarios: list[str]
    description: str
    source: str
    family: str
    min_size: int
    recommended: NotRequired[dict[str, str]]


class ArchitectureOut(ArchitectureEntry):
    """Catalogue entry of a network architecture, with its name."""

    name: str


class RecipeLanguage(TypedDict):
    """Fields of a recipe beside its method: JSON Schema, defaults and optional blocks.

    `olor` stands for `optimizer.olor`.
    """

    schema: JsonSchema
    defaults: RecipeOut
    olor: OlorOut
    merge: MergeOut
    rebalance: RebalanceOut


class MethodList(TypedDict):
    """Catalogue of all learning methods, optimizers and presets.

    - `optimizers`: a sentence for each name.
    - `presets`: a recipe patch for each name.
    """

    items: list[MethodOut]
    next_cursor: str | None
    recipe: RecipeLanguage
    optimizers: dict[str, str]
    presets: dict[str, RecipePatch]


class ArchitectureList(TypedDict):
    """Catalogue of all network architectures."""

    items: list[ArchitectureOut]
    next_cursor: str | None
