"""What a request may say of a model, as keyword arguments of `models.create` and `models.update`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

Json = Mapping[str, Any]
OnEvent = Literal["stop", "continue"]


class ModelChanges(TypedDict, total=False):
    """Fields that can be changed. `recipe` and `gate` are merged, for later tasks; None resets.

    `on_held`, `on_rejected`, `on_failed`: whether later batches wait for a person (stop) or go on;
    `training_data_days`: how long images are kept after a publish. `answers`: `{"precision": 0.98}` calls answers
    sure of which so many are right.
    """

    recipe: Json | None
    gate: Json | None
    answers: Json | None
    on_held: OnEvent | None
    on_rejected: OnEvent | None
    on_failed: OnEvent | None
    training_data_days: float | None
    allow_lost_classes: bool | None
    description: str | None
    tags: list[str]


class NewModel(ModelChanges, total=False):
    """Fields of a new model; what is left out is as the service has it.

    `architecture`: a name, or a name with hyper-parameters; `base`: random, pretrained, the id of an upload, or
    `{"model": …, "version": …}`; `image`: `{"size": pixels a side, "channels": 1 or 3}`; `held_out`: "counts"
    keeps no images.
    """

    architecture: str | Json
    base: str | Json
    image: Json
    classes: list[str]
    keep_training_data: bool
    held_out: Literal["keep", "counts"]
