"""The verdict on a version from what is stored: its measurements, its model's gate, and where tasks stand now."""

import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.db.tables import Job, Model, Result, Version
from core.line.ancestors import ancestors
from core.line.coverage import lost, taught
from core.line.gate import Place, verdict
from core.matrix import Row


def judge(session: Session, model: Model, version: Version) -> dict[str, Any]:
    """Judge a version by the gate of its job: a change of the model's counts for later tasks."""
    line = ancestors(session, model.id, version.number)
    rows = [Row(v.number, v.task_number, v.parent, tuple(taught(v.manifest))) for v in line]
    query = select(Result).where(
        Result.model_id == model.id, Result.version.in_([row.version for row in rows])
    )
    cells = {(r.version, r.task): (r.correct, r.total) for r in session.scalars(query)}
    job = session.get(Job, version.job_id) if version.job_id is not None else None
    limits = model.gate if job is None or job.gate is None else job.gate
    again = job is not None and job.again
    lacks = lost(session, model, taught(version.manifest), again=again)
    parent = version.parent if version.parent is not None else 0
    place = Place(parent, model.head, lacks, model.allow_lost_classes)
    return verdict(
        limits or {}, rows, cells, version.number, model.scenario, place, predicted_rise(version.manifest)
    )


def predicted_rise(manifest: Mapping[str, Any]) -> float | None:
    """Of the earlier tasks' mean loss, where the method forecasts it; infinite where it was no finite number."""
    forecast = manifest.get("forecast")
    if not forecast:
        return None
    value = forecast.get("predicted")
    return float(value) if isinstance(value, int | float) else math.inf
