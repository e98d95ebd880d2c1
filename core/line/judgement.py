"""The verdict on a version from what is stored: its measurements, its model's gate, and where tasks stand now."""

import math

from sqlalchemy.orm import Session

from core.db.measurements import ALL_TASKS, FEATURES, LOSSES, NEGATIVE_FLIPS
from core.db.tables import Job, Measurement, Model, Version
from core.line.coverage import lost, taught
from core.line.gate import Metrics, Place, Production, verdict
from core.line.row import row_of
from core.line.sure import sure_of
from core.matrix_row import row_figures
from core.protocol.features import FeatureCount
from core.protocol.gate import GateOut, Verdict
from core.protocol.losses import Losses


def judge(session: Session, model: Model, version: Version) -> Verdict:
    """Judge a version by the gate of its job: a change of the model's counts for later tasks."""
    tasks = taught(version.manifest)
    row = row_of(session, model.id, version.number)
    found = row_figures(tasks, row, model.scenario)
    own = row.get(version.task_number or 0)
    rise = predicted_rise(session, model.id, version.number)
    beside = beside_production(session, model.id, version.number)
    metrics = Metrics(
        found.forgetting,
        own.accuracy if own else None,
        found.acc,
        rise,
        beside,
        coverage_of(session, model, version.number),
        read_losses(session, model.id, version.number),
        read_features(session, model.id, version.number),
    )
    job = session.get(Job, version.job_id) if version.job_id is not None else None
    limits = limits_of(model, job)
    lacks = lost(session, model, tasks, again=job is not None and job.again)
    parent = version.parent if version.parent is not None else 0
    place = Place(parent, model.head, lacks, model.allow_lost_classes, model.id)
    return verdict(limits or {}, metrics, place)


def limits_of(model: Model, job: Job | None) -> GateOut:
    """The gate that a job's version is judged by; rows from before a limit lack its name."""
    return model.gate if job is None or job.gate is None else job.gate


def beside_production(session: Session, model_id: str, version: int) -> Production | None:
    """What was counted when the version was made, where its gate asks for it."""
    found = session.get(Measurement, (model_id, version, NEGATIVE_FLIPS, ALL_TASKS))
    return None if found is None else Production(**found.detail)


def read_losses(session: Session, model_id: str, version: int) -> Losses | None:
    """Read what was counted for the checks when the version was made, where its gate had one of them."""
    row = session.get(Measurement, (model_id, version, LOSSES, ALL_TASKS))
    return None if row is None else row.detail


def read_features(session: Session, model_id: str, version: int) -> FeatureCount | None:
    """Read what was counted of a version's features beside its ancestors' when it was made."""
    row = session.get(Measurement, (model_id, version, FEATURES, ALL_TASKS))
    return None if row is None else row.detail


def coverage_of(session: Session, model: Model, version: int) -> float | None:
    """Share of held-out images that a version answers surely; None: nothing is promised, or nothing was measured."""
    found = sure_of(session, model, version)
    return None if found is None or not found["images"] else found["covered"] / found["images"]


def predicted_rise(session: Session, model_id: str, version: int) -> float | None:
    """Of the earlier tasks' mean loss, where the method forecasts it; infinite where it was no finite number."""
    found = session.get(Measurement, (model_id, version, "forecast", ALL_TASKS))
    if found is None:
        return None
    return math.inf if found.value is None else found.value
