"""The catalogue: what a recipe can say, and which architectures there are. The learning code writes it."""

from typing import Annotated, NotRequired

from pydantic import Field, JsonValue
from typing_extensions import TypeAliasType, TypedDict

from core.protocol.answers.recipe import MergeOut, OlorOut, RebalanceOut, RecipeOut
from core.protocol.patch import RecipePatch

JsonSchema = TypeAliasType(
    "JsonSchema", Annotated[dict[str, JsonValue], Field(description="A JSON Schema, draft 2020-12.")]
)
HyperParameters = TypeAliasType(
    "HyperParameters", Annotated[dict[str, JsonValue], Field(description="Hyper-parameters by their names.")]
)


class Accepts(TypedDict):
    """What a method can be combined with.

    `architectures`: families; null: all. `task_only`: hyper-parameters that must be off outside the task scenario;
    `refused`: by scenario, the values of hyper-parameters that do not work there; `unfit`: by family of
    architectures, values that do not work on it, by hyper-parameter; none named: the method does not.
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
    """What a method holds at once while it learns, by which a job's memory is estimated.

    `copies`: of the weights; `copies_with`: hyper-parameter → value → copies in its place; `examples`: copies
    more where the gradients of single images are as large as the weights; `growing`: copies more for each
    earlier task; `batches`, `images`: whose activations are held; `columns`: the hyper-parameter that says of
    how many columns the method keeps second moments of each task, 0 of it for the network's features and one;
    "": it keeps none.
    """

    copies: float
    copies_with: dict[str, dict[str, float]]
    examples: float
    growing: float
    batches: float
    images: int
    columns: str


class MethodEntry(TypedDict):
    """A method. `schema`, `defaults`: of its hyper-parameters; `scenario_defaults`: those that differ in a
    scenario; `former_defaults`: those that a stored recipe without them means; `weak`: by scenario, why it
    works badly there.

    `family`: what it makes of the network, kept for a model's life, as are the hyper-parameters in
    `structure`; `advice`: of a recipe that leaves it open; `from_random`: the same, of a model that starts from
    random weights (preset `from-random`, SGD); `takes`: types of memory that it can take over from another
    method; `predicts_with`: those that it answers with; `neutral`: hyper-parameters with which it equals
    fine-tuning, or `no_neutral`: why there are none; `inference`: the file of a download's loading code that
    answers with its memory; `no_feature_cache`, `no_merge`, `no_rebalance`, `no_shards`: why what a recipe
    calls so does not work with it, or null.
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
    """A method by its name."""

    name: str


class ArchitectureEntry(TypedDict):
    """An architecture. `schema`, `defaults`: of its hyper-parameters; `min_size`: of an image, in pixels a side.

    `recommended`: some of the many networks that it stands for, and what each is good for.
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
    """An architecture by its name."""

    name: str


class RecipeLanguage(TypedDict):
    """What surrounds a method in a recipe: its JSON Schema, what an empty patch means, and blocks left open.

    `olor` stands for `optimizer.olor`.
    """

    schema: JsonSchema
    defaults: RecipeOut
    olor: OlorOut
    merge: MergeOut
    rebalance: RebalanceOut


class MethodList(TypedDict):
    """All methods, and what else a recipe may say: optimizers by name in a sentence, presets by name as patches."""

    items: list[MethodOut]
    next_cursor: str | None
    recipe: RecipeLanguage
    optimizers: dict[str, str]
    presets: dict[str, RecipePatch]


class ArchitectureList(TypedDict):
    """All architectures."""

    items: list[ArchitectureOut]
    next_cursor: str | None
