"""Fields of a model in requests: a new model, or a change."""

from typing_extensions import TypedDict

from core.contract.base import ModelBase
from core.contract.gate import GateLimits
from core.contract.patch import ArchitectureIn, RecipePatch
from core.contract.responses.model import Scenario
from core.contract.responses.versions.sure import AnswersSetting


class RequestedImageSettings(TypedDict, total=False):
    """Image settings of a new model, as the request gives them."""

    size: int
    channels: int


class ModelChange(TypedDict, total=False):
    """Fields of a model that a request changes; null resets a field."""

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


class _RequiredNewModelFields(TypedDict):
    name: str
    scenario: Scenario


class NewModel(_RequiredNewModelFields, ModelChange, total=False):
    """Request that creates a model: its name, its scenario, and optional fields."""

    problem: str | None
    architecture: str | ArchitectureIn
    image: RequestedImageSettings
    base: ModelBase
    classes: list[str] | None
    keep_training_data: bool
    held_out: str
    selection: bool
