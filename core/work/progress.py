"""What a running job says about itself: the child's events become rows, under the fence.

The worker collects events and writes a batch at most once a second, so a busy job costs the database
one short transaction a second. The newest progress also stands in the job's row, where polling reads it.
"""

import math
from typing import Any

from sqlalchemy.orm import Session

from core.db.session import Database
from core.db.tables import Event, Job
from core.work.fence import Claim, hold

_SMOOTHING = 0.5
"""Weight of the newest span in `images_per_s`."""
_FIELDS = ("phase", "epoch", "step", "total_steps", "images", "loss")


def record(db: Database, claim: Claim, events: list[dict[str, Any]]) -> None:
    """Write a batch of the child's events (phase, progress, metric, log), in order.

    Other kinds are left out: the worker acts on those itself. `images_per_s` and `eta_s` are computed
    here, from the database's clock.

    Raises:
        LeaseLost: the claim is not the job's any more; nothing was written.
    """
    known = [event for event in events if event.get("event") in {"phase", "progress", "metric", "log"}]
    if not known:
        return
    with db.write() as session:
        job = hold(session, claim)
        now = db.now(session)
        rows: list[Event] = []
        progress = dict(job.progress)
        newest: dict[str, Any] | None = None
        for event in known:
            kind = str(event["event"])
            data = finite({name: value for name, value in event.items() if name != "event"})
            if kind in {"phase", "progress"}:
                progress = _merged(progress, data, new_phase=kind == "phase")
                newest = progress
                kind = "progress"
                data = {name: progress[name] for name in _FIELDS if name in progress}
            rows.append(Event(job_id=job.id, type=kind, data=data, at=now))
        if newest is not None:
            _set(job, newest, now)
        session.add_all(rows)


def _merged(progress: dict[str, Any], data: dict[str, Any], *, new_phase: bool) -> dict[str, Any]:
    """The progress after an event; a new phase starts its counts anew."""
    if new_phase or data.get("phase", progress.get("phase")) != progress.get("phase"):
        progress = {}
    if "total_images" in data:  # decoding counts images, not steps
        data = {**data, "step": data.get("images"), "total_steps": data["total_images"]}
    return {**progress, **{name: data[name] for name in _FIELDS if name in data}}


def _set(job: Job, progress: dict[str, Any], now: float) -> None:
    """Put the newest progress into the job's row, with its speed and the time left."""
    before = job.progress
    images, step, total = (progress.get(name) for name in ("images", "step", "total_steps"))
    speed = progress.get("images_per_s")
    since = now - before.get("at", now)
    if before.get("phase") == progress.get("phase") and images and "images" in before and since > 0:
        gained = images - before["images"]
        if gained >= 0:
            span = gained / since
            speed = span if speed is None else _SMOOTHING * span + (1 - _SMOOTHING) * speed
    progress["at"] = now
    progress["images_per_s"] = None if speed is None else round(speed, 1)
    left = None
    if speed and images and step and total:
        left = round(max(0, total - step) * (images / step) / speed, 1)
    progress["eta_s"] = left
    job.progress = progress
    job.revision += 1


def finite(value: Any) -> Any:
    """The same JSON with None for NaN and infinities, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return value


def log(session: Session, job_id: str, level: str, message: str, now: float) -> None:
    """Add a line to a job's log, in the caller's transaction."""
    session.add(Event(job_id=job_id, type="log", data={"level": level, "message": message}, at=now))
