"""Which workers can make exports that take more than copying: those with onnx, onnxruntime and onnxscript.

Each says so once a minute. What was said stays true for an hour, so that workers may be started again meanwhile.
"""

from sqlalchemy import delete, exists, select
from sqlalchemy.orm import Session

from core.db.tables import Exporter

SEEN_S = 3600.0


def tell(session: Session, worker: str, now: float) -> None:
    """Note that a worker is there, and forget those that are long gone."""
    session.execute(delete(Exporter).where(Exporter.seen_at < now - SEEN_S))
    session.merge(Exporter(worker=worker, seen_at=now))


def there(session: Session, now: float) -> bool:
    """Whether there is one."""
    return bool(session.scalar(select(exists().where(Exporter.seen_at >= now - SEEN_S))))
