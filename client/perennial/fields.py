"""Keyword arguments of requests: fields of models and webhooks, and options for reading a batch."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal, TypedDict

Json = Mapping[str, Any]
OnEvent = Literal["stop", "continue"]


# An enumeration, because type checkers narrow its only member, unlike a bare object().
class NotGiven(Enum):
    """Type of `NOT_GIVEN`, the default of arguments that leave a field unchanged; None resets it."""

    NOT_GIVEN = "not given"

    def __repr__(self) -> str:
        return self.name


NOT_GIVEN: Final = NotGiven.NOT_GIVEN


def drop_fields_not_given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request fields without those that were not given."""
    return {name: value for name, value in fields.items() if value is not NOT_GIVEN}


class ModelChanges(TypedDict, total=False):
    """Fields that an update of a model may change; None resets them.

    `recipe` and `gate` are merged, for later tasks. `on_held`, `on_rejected`, `on_failed`: later
    batches wait for a person (stop) or continue. `training_data_days`: days for which images are
    retained after a publish. `answers`: `{"precision": 0.98}` marks predictions as sure so that
    this share of them is correct.
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


class NewModelFields(ModelChanges, total=False):
    """Fields of a request that creates a model; the service has defaults for missing ones.

    `problem`: what it predicts for an image; classification by default. `architecture`: a
    name, or a name with hyper-parameters. `base`: random, pretrained, the id of an upload, or
    `{"model": …, "version": …}`. `image`: `{"size": pixels per side, "channels": 1 or 3}`.
    `held_out`: "counts" stores no held-out images. `selection`: images of each batch are set aside
    to compare trials.
    """

    problem: str
    architecture: str | Json
    base: str | Json
    image: Json
    classes: list[str]
    keep_training_data: bool
    held_out: Literal["keep", "counts"]
    selection: bool


class OpenBatchOptions(TypedDict, total=False):
    """Options for reading an ambiguous batch; see `perennial.pack.open_batch`.

    `kind`: folder, csv, webdataset, parquet, imagefolder, coco, yolo, urls or archive. `layout`,
    `one_class`, `classes`, `image`, `label`, `table`, `names_pattern`, `known_classes`: the classes
    of folders, archives and tables. `names`: class names in WebDataset shards. `whole`, `boxes`,
    `images`: for COCO and YOLO. `max_bad`: largest share of bad entries with which the others are
    still sent. `allow_outside`: follow paths and links out of the folder. `allow_private`,
    `max_entries`: for URLs. `endpoint`, `profile`, `anonymous`: for buckets.
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
