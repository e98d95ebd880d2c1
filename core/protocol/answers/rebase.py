"""A model on its way to another base: the new model beside the old one, task by task."""

from typing import Literal

from typing_extensions import TypedDict

from core.protocol.answers.architecture import ImageOut
from core.protocol.answers.compare import Flips
from core.protocol.base import ModelBase
from core.protocol.report import DuplicatesPolicy

Arrival = Literal["relearned", "sent", "send_again"]


class RebaseSide(TypedDict):
    """One of the two models; `version` is in production, null where there is none. `deleted`: it is gone."""

    id: str
    name: str
    deleted: bool
    base: ModelBase
    image: ImageOut
    version: int | None


class Share(TypedDict):
    """Right answers among held-out images: `accuracy` = correct / total with its 95 % interval (Wilson)."""

    correct: int
    total: int
    accuracy: float
    interval: list[float]


class RebaseTask(TypedDict):
    """A task that production of the old model was taught.

    `arrival`: relearned from images that are kept; sent, where its archive (`sha256`) is a task of the new model;
    send_again, where it must be sent, with equal images treated by `duplicates_policy` as before. `new_task` is its
    number there, and `standing` where that task stands. It is `arrived` when production of the new model was taught it.

    `old`, `new`: right answers of both versions in production on the same held-out images; null where that cannot be
    said, `detail` says why. `flips`: image by image, `a` the old version and `b` the new one; null where answers are
    not kept for both.
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
    """Over the tasks that are compared image by image: each archive once."""

    old: Share | None
    new: Share | None
    flips: Flips


class RebaseMissing(TypedDict):
    """Something that is missing before production can move: a task (null: another reason), and what to do."""

    task: int | None
    detail: str


class RebaseOut(TypedDict):
    """A rebase: `old` is what `new` is to replace.

    `state`: open until production moves, then finished. `ready`: every task has arrived and is measured, so that
    `missing` is empty. `next`: what to do now. `finished_at`: when the new model took the old one's name.
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
