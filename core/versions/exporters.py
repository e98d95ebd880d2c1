"""Workers that can make slow exports: those with onnx, onnxruntime and onnxscript.

Each worker reports once a minute. A report is valid for an hour, so that workers may be restarted
meanwhile.
"""

from sqlalchemy import delete, exists, select
from sqlalchemy.orm import Session

from core.database.tables import ExportCapableWorker

SEEN_S = 3600.0


def record_exporting_worker(session: Session, worker: str, now: float) -> None:
    """Record that a worker can export to slow formats, and delete old reports."""
    session.execute(delete(ExportCapableWorker).where(ExportCapableWorker.seen_at < now - SEEN_S))
    session.merge(ExportCapableWorker(worker=worker, seen_at=now))


def has_exporting_worker(session: Session, now: float) -> bool:
    """Return True if any present worker can export to slow formats."""
    return bool(session.scalar(select(exists().where(ExportCapableWorker.seen_at >= now - SEEN_S))))
