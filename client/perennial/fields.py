"""What a request may say, as keyword arguments: of a model, a webhook, and how a batch is read."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal, TypedDict

Json = Mapping[str, Any]
OnEvent = Literal["stop", "continue"]


class NotGiven(Enum):
    """The kind of `NOT_GIVEN`, which stands where nothing was said: None resets a field."""

    NOT_GIVEN = "not given"

    def __repr__(self) -> str:
        return self.name


NOT_GIVEN: Final = NotGiven.NOT_GIVEN


def said(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that were given."""
    return {name: value for name, value in fields.items() if value is not NOT_GIVEN}


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


class BatchOptions(TypedDict, total=False):
    """How a batch is read, where its look does not say: see `perennial.pack.open_batch` for which kind has which.

    `kind`: folder, csv, webdataset, parquet, imagefolder, coco, yolo, urls or archive; `layout`, `one_class`,
    `classes`, `image`, `label`, `table`, `names_pattern`, `known_classes`: how folders, archives and tables name
    classes; `names`: of classes, in WebDataset shards; `whole`, `boxes`, `images`: of COCO and YOLO; `max_bad`: the
    share of bad entries up to which the others are sent; `allow_outside`: follow paths and links out of the folder;
    `allow_private`, `max_entries`: of URLs; `endpoint`, `profile`, `anonymous`: of buckets.
    """

    kind: str | None
    layout: str
    one_class: bool
    classes: str
    image: str | None
    label: str | None
    table: str
    names_pattern: str
    known_classes: Collection[str]
    names: Sequence[str] | None
    whole: bool
    boxes: str
    images: str | os.PathLike[str] | None
    max_bad: float | str
    allow_outside: bool
    allow_private: bool
    max_entries: int
    endpoint: str | None
    profile: str | None
    anonymous: bool
