"""Rebase of a model to another base: the new model beside the old one, task by task."""

from typing import Literal

from typing_extensions import TypedDict

from core.contract.base import ModelBase
from core.contract.reports.report import DuplicatesPolicy
from core.contract.responses.architecture import ImageOut
from core.contract.responses.versions.compare import Flips

Arrival = Literal["relearned", "sent", "send_again"]


class RebaseSide(TypedDict):
    """One of the two models in a rebase (a model relearned on another base): the old or the new
    one.

    - `version`: the version in production; null: none.
    - `deleted`: the model is deleted.
    """

    id: str
    name: str
    deleted: bool
    base: ModelBase
    image: ImageOut
    version: int | None


class Share(TypedDict):
    """Correct predictions among a number of held-out images.

    - `accuracy`: correct / total.
    - `interval`: its 95 % interval (Wilson).
    """

    correct: int
    total: int
    accuracy: float
    interval: list[float]


class RebaseTask(TypedDict):
    """A task of the old model's production version, with the accuracy of the old and new model on
    it.

    - `arrival`: relearned: from retained images; sent: its archive (`sha256`) is a task of the new
      model; send_again: it must be sent again, with the same `duplicates_policy`.
    - `new_task`, `standing`: its number and standing in the new model.
    - `arrived`: production of the new model was taught it.
    - `old`, `new`: correct answers of both versions in production on the same held-out images; null
      if unknown, for the reason in `detail`.
    - `flips`: image by image, `a` the old version and `b` the new one; null if answers are not
      retained for both.
    """

    task: int
    name: str | None
    classes: list[str]
    images: int
    sha256: str
    duplicates_policy: DuplicatesPolicy
    arrival: Arrival
    new_task: int | None
    standing: str | None
    arrived: bool
    old: Share | None
    new: Share | None
    flips: Flips | None
    detail: str | None


class RebaseTotals(TypedDict):
    """Totals of a rebase over the tasks that are compared image by image, each archive once."""

    old: Share | None
    new: Share | None
    flips: Flips


class RebaseMissing(TypedDict):
    """A condition that is missing before production can move to the new model, and what to do.

    `task`: the task concerned; null: another reason.
    """

    task: int | None
    detail: str


class RebaseOut(TypedDict):
    """A rebase: model `new`, relearned on another base, is to replace model `old`.

    - `state`: open until production moves, then finished.
    - `ready`: every task has arrived and is measured, so that `missing` is empty.
    - `next`: what to do now.
    - `finished_at`: time when the new model took the old one's name.
    """

    state: Literal["open", "finished"]
    old: RebaseSide
    new: RebaseSide
    tasks: list[RebaseTask]
    totals: RebaseTotals
    ready: bool
    missing: list[RebaseMissing]
    next: str
    warnings: list[str]
    finished_at: str | None
