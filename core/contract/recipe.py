"""A resolved recipe as data.

`core.recipe` and, in the job, `core.learning.recipe` check its values.
"""

from pydantic import JsonValue

from core.contract.document import Document, Number


class MethodRecipe(Document):
    """Recipe block of the learning method: its name, with its hyper-parameters beside it."""

    name: str

    @property
    def hyper(self) -> dict[str, JsonValue]:
        """The method's hyper-parameters by name."""
        return self.get_unknown_fields()


class OptimizerRecipe(Document):
    """The optimizer's settings in a recipe, see `core.learning.recipe.OptimizerRecipe`; `olor` is
    null where it is off.
    """

    carry_state: bool = False
    clip: Number | None = None
    dampening: Number | None = None
    head_lr: Number | None = None
    lr: Number | None = None
    momentum: Number | None = None
    name: str
    olor: dict[str, JsonValue] | None = None
    schedule: str | None = None
    warmup_steps: int | None = None
    weight_decay: Number | None = None


class HeadRecipe(Document):
    """Recipe block for the head: new classes' rows start from zero or from the default
    initialisation.
    """

    init: str


class RebalanceRecipe(Document):
    """Recipe block for retraining the head on class-balanced data, see
    `core.learning.recipe.RebalanceRecipe`.
    """

    epochs: int
    lr: Number | None = None


class MergeRecipe(Document):
    """Recipe block for merging the new weights with the old ones, see
    `core.learning.recipe.MergeRecipe`; one field is null.
    """

    weight: Number | None = None
    within: Number | None = None


class ResourcesRecipe(Document):
    """Recipe block for the devices that a job needs, see `core.learning.recipe.ResourcesRecipe`."""

    device: str = "any"
    gpus: int = 1
    resume: str = "same"


class Recipe(Document):
    """Recipe by which a task is learned: method, optimizer and more. An older recipe may lack newer
    fields.
    """

    anytime: bool = False
    augment: str | None = None
    balanced_batches: bool = False
    batch_size: int | None = None
    data_report: str = "warn"
    depth: int | None = None
    deterministic: bool = True
    epochs: int | None = None
    features: str = "computed"
    head: HeadRecipe | None = None
    merge: MergeRecipe | None = None
    method: MethodRecipe | None = None
    optimizer: OptimizerRecipe | None = None
    precision: str = "auto"
    preset: str | None = None
    rebalance: RebalanceRecipe | None = None
    resources: ResourcesRecipe | None = None
    sampler: str | None = None
    seed: int | None = None
    shards: int = 1
    train_ce: str | None = None
    validation: Number = 0.0
