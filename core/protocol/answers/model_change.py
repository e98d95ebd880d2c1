"""What a request says of a model: a new one, or a change."""

from typing_extensions import TypedDict

from core.protocol.answers.model import Scenario
from core.protocol.answers.sure import AnswersSetting
from core.protocol.base import ModelBase
from core.protocol.gate import GateLimits
from core.protocol.patch import ArchitectureIn, RecipePatch


class AskedImage(TypedDict, total=False):
    """Images as a request asks for them."""

    size: int
    channels: int


class ModelChange(TypedDict, total=False):
    """Fields of a model that a request sets; null resets."""

    recipe: RecipePatch | None
    gate: GateLimits | None
    answers: AnswersSetting | None
    on_held: str | None
    on_rejected: str | None
    on_failed: str | None
    training_data_days: float | None
    allow_lost_classes: bool | None
    description: str | None
    tags: list[str] | None


class _Named(TypedDict):
    name: str
    scenario: Scenario


class NewModel(_Named, ModelChange, total=False):
    """A new model: its name and scenario, and whatever else the request says."""

    architecture: str | ArchitectureIn
    image: AskedImage
    base: ModelBase
    classes: list[str] | None
    keep_training_data: bool
    held_out: str
