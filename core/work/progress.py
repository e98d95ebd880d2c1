"""What a running job says about itself: the child's events become rows, under the fence.

The worker collects events and writes a batch at most once a second, so a busy job costs the database
one short transaction a second. The newest progress also stands in the job's row, where polling reads it.
"""

import math
from typing import Any

from core.db import job_log
from core.db.session import Database
from core.db.tables import Event, Job
from core.work.fence import Claim, hold

_SMOOTHING = 0.5
"""Weight of the newest span in `images_per_s`."""
EPOCH_LINES = 20
"""Finished epochs that the log tells, of however many."""
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
        rows: list[tuple[str, dict[str, Any]]] = []
        progress = dict(job.progress)
        newest: dict[str, Any] | None = None
        for event in known:
            kind = str(event["event"])
            data = finite({name: value for name, value in event.items() if name != "event"})
            if kind in {"phase", "progress"}:
                progress = _merged(progress, data, new_phase=kind == "phase")
                newest = progress
                rows.append(("progress", {name: progress[name] for name in _FIELDS if name in progress}))
                if _is_told(data):
                    rows.append(("epoch", data))
            else:
                rows.append((kind, data))
        before = job.progress.get("images_per_s")
        if newest is not None:
            _set(job, newest, now)
        speed = (
            job.progress.get("images_per_s") or before
        )  # of training, when another phase has begun already
        for kind, data in rows:
            if kind == "epoch":
                job_log.add(session, job.id, _epoch_line(data, speed), now)
            else:
                session.add(Event(job_id=job.id, type=kind, data=data, at=now))


def _is_told(data: dict[str, Any]) -> bool:
    """Whether a report of training ends an epoch that the log tells: every one, or every so many, and the last."""
    epochs = data.get("epochs")
    if not epochs or data["step"] * epochs % data["total_steps"]:  # all epochs have the same number of steps
        return False
    return bool(data["epoch"] == epochs or data["epoch"] % math.ceil(epochs / EPOCH_LINES) == 0)


def _epoch_line(data: dict[str, Any], speed: float | None) -> job_log.Line:
    loss = data.get("loss")
    said = [f"Epoch {data['epoch']:,} of {data['epochs']:,}"]
    if loss is not None:
        said.append(f"loss {loss:.4g}")
    if speed:
        said.append(f"{speed:,.0f} images/s")
    return "info", ", ".join(said) + "."


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
