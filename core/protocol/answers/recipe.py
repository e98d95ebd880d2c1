"""A resolved recipe, as answers show it."""

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict


@with_config(
    ConfigDict(
        json_schema_extra={
            "additionalProperties": {
                "description": "A hyper-parameter; GET /v1/methods has the schema of each method"
            }
        }
    )
)
class MethodChoice(TypedDict):
    """A method's name, and beside it its hyper-parameters."""

    name: str


class OlorOut(TypedDict, total=False):
    """After each step, a share of the way back to the weights that the run started from.

    `iota_total`: the sum of the first layer's shares over a task, in place of `iota1`; null: `iota1` counts.
    """

    iota1: float
    iota2: float
    gamma: float
    iota_total: float | None
    granularity: str
    anchor: str
    anchor_old_head_rows: bool


class OptimizerOut(TypedDict, total=False):
    """`lr` is the peak rate; `head_lr` null: the same for the head. `clip` bounds the gradient's norm."""

    name: str
    lr: float
    head_lr: float | None
    momentum: float
    dampening: float
    weight_decay: float
    schedule: str
    warmup_steps: int
    clip: float | None
    carry_state: bool
    olor: OlorOut | None


class HeadInit(TypedDict, total=False):
    """How rows of new classes start."""

    init: str


class RebalanceOut(TypedDict, total=False):
    """After training, the head alone learns from as many images of each class; `lr` null: at the head's rate."""

    epochs: int
    lr: float | None


class MergeOut(TypedDict, total=False):
    """After training, a straight line back to the weights of the start: how far, or by which rule; the other
    is null."""

    weight: float | None
    within: float | None


class ResourcesOut(TypedDict, total=False):
    """Where the job may run: device any, cpu or cuda, and CUDA devices at least. `resume`: same continues an
    interrupted job only on the kind of device that it was begun on; any continues it anywhere."""

    device: str
    gpus: int
    resume: str


class RecipeOut(TypedDict, total=False):
    """How a task is learned; GET /v1/methods has the schema. A recipe from before a field lacks it."""

    preset: str | None
    method: MethodChoice
    optimizer: OptimizerOut
    depth: int
    head: HeadInit
    epochs: int
    batch_size: int
    sampler: str
    balanced_batches: bool
    augment: str
    validation: float
    anytime: bool
    train_ce: str
    features: str
    merge: MergeOut | None
    rebalance: RebalanceOut | None
    data_report: str
    precision: str
    deterministic: bool
    resources: ResourcesOut
    seed: int
    shards: int
