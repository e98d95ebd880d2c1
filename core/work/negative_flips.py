"""A new version beside the one in production, image by image, where its gate asks for it.

Production is the version's parent as a rule, and the job has compared them. Where a person put production
elsewhere, the answers of both are read from the store, on the tasks of which they are kept.
"""

from dataclasses import dataclass, replace

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from core import flips
from core.db.measurements import ALL_TASKS, FEATURES, LOSSES, NEGATIVE_FLIPS, Measured
from core.db.session import Database
from core.db.tables import Alias, Job, Model, Result, Task, Version
from core.flips import Flips, Mask
from core.ingest.answers import Place, open_answers
from core.ingest.dataset import open_dataset
from core.line.features import find_best, find_loss
from core.line.gate import Production
from core.line.judgement import limits_of
from core.line.line import PRODUCTION
from core.protocol.features import FeatureCount
from core.protocol.job_result import JobResult
from core.protocol.losses import Losses
from core.protocol.manifest import Manifest
from core.store import Blobs
from core.work.features import compare_features
from core.work.fence import Claim
from core.work.losses import count_losses
from core.work.result import ResultFolder


@dataclass(frozen=True)
class Beside:
    """What production was when it was looked, and what was counted (None: nothing to compare with)."""

    production: int | None
    counted: Production | None
    losses: Losses | None = None
    features: FeatureCount | None = None

    def rows(self) -> list[Measured]:
        """As rows of measurements, for the verdict."""
        rows, flipped, losses = [], self.counted, self.losses
        if flipped is not None and flipped.images:
            rate = flipped.negative / flipped.images
            rows.append(Measured(NEGATIVE_FLIPS, ALL_TASKS, rate, vars(flipped)))
        if losses is not None:
            count = losses["forgotten"]
            net = (count["negative"] - count["positive"]) / count["images"] if count["images"] else None
            rows.append(Measured(LOSSES, ALL_TASKS, net, losses))
        if self.features is not None:
            best = find_best(self.features)
            loss = None if best is None else find_loss(best)
            rows.append(Measured(FEATURES, ALL_TASKS, loss, self.features))
        return rows


@dataclass(frozen=True)
class _Told:
    """A task on which production was measured: its true labels, and production's answers; digests of blobs.

    place: of these answers.
    """

    number: int
    labels: list[str]
    held_out: str
    answers: str
    place: Place


def production_of(session: Session, model_id: str) -> int | None:
    """The number of the version in production."""
    return session.scalar(select(Alias.version).where(Alias.model_id == model_id, Alias.name == PRODUCTION))


def compare(db: Database, blobs: Blobs, claim: Claim, found: ResultFolder[JobResult]) -> Beside:
    """Count negative flips and losses against production, as far as the job's gate asks for them; compare features."""
    beside = _count_flips(db, blobs, claim, found)
    with db.read() as session:
        job = session.get_one(Job, claim.job_id)
        features = compare_features(session, session.get_one(Model, job.model_id), job, found.document)
    losses = count_losses(db, blobs, claim, found, beside.production)
    return replace(beside, losses=losses, features=features)


def _count_flips(db: Database, blobs: Blobs, claim: Claim, found: ResultFolder[JobResult]) -> Beside:
    with db.read() as session:
        job = session.get_one(Job, claim.job_id)
        model = session.get_one(Model, job.model_id)
        number = production_of(session, model.id)
        wanted = limits_of(model, job).get("max_negative_flips") is not None
        if not wanted or not number:  # version 0 was taught nothing that could be lost
            return Beside(number, None)
        tasks = {task.number: task for task in session.scalars(select(Task).where(Task.model_id == model.id))}
        if number == job.parent_version:
            there = {n for n, task in tasks.items() if task.data_deleted_at is None}
            return Beside(number, _by_parent(number, found.document, there))
        version = select(Version.manifest).where(Version.model_id == model.id, Version.number == number)
        manifest: Manifest = session.scalars(version).one()
        told = _told(session, model, number, tasks)
    return Beside(number, _by_answers(blobs, number, manifest, told, found))


def _by_parent(number: int, found: JobResult, tasks: set[int]) -> Production:
    changes = [change for task, change in (found.changes or {}).items() if int(task) in tasks]
    return Production(number, sum(c.regressed for c in changes), sum(c.total for c in changes))


def _told(session: Session, model: Model, number: int, tasks: dict[int, Task]) -> list[_Told]:
    query = select(Result.task, Result.answers).where(
        Result.model_id == model.id, Result.version == number, Result.answers.is_not(None)
    )
    told = []
    for task_number, answers in session.execute(query):
        task = tasks[task_number]
        if answers is not None and task.held_out_sha256 is not None and task.held_out_deleted_at is None:
            labels = list(model.classes or []) if model.scenario == "data" else sorted(task.classes)
            place = Place(number, task_number, task.answers_key)
            told.append(_Told(task_number, labels, task.held_out_sha256, answers, place))
    return told


def _by_answers(
    blobs: Blobs, number: int, manifest: Manifest, told: list[_Told], found: ResultFolder[JobResult]
) -> Production:
    mine = {file.task: found.folder / file.file for file in found.document.answers if file.version == "new"}
    heads = {head.task: head.classes for head in found.document.heads}
    total = Flips()
    for task in told:
        if task.number not in mine:
            continue
        _, labels = open_dataset(blobs.fetch(task.held_out))
        truth = np.array(task.labels, object)[labels]
        old_head = manifest.head_of(task.number)
        old_rows, _ = open_answers(blobs.fetch(task.answers), task.place)
        new_rows, _ = open_answers(mine[task.number])
        old = _right(old_rows, old_head.classes if old_head else manifest.classes or task.labels, truth)
        total += flips.count(old, _right(new_rows, heads.get(task.number, found.document.classes), truth))
    return Production(number, total.negative, total.n)


def _right(rows: np.ndarray, classes: list[str], truth: np.ndarray) -> Mask:
    return np.asarray(np.array(classes, object)[rows] == truth, bool)
