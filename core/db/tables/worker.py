"""Workers that report, and their devices."""

from sqlalchemy import Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from core.db.tables.table import Table


class WorkerReport(Table):
    """A worker, its last report, and the device that it runs jobs on, see core.db.workers."""

    __tablename__ = "workers"
    worker: Mapped[str] = mapped_column(String(120), primary_key=True)
    device: Mapped[str] = mapped_column(String(4))  # cpu or cuda
    gpus: Mapped[int]  # number of CUDA devices; 0 for a CPU worker
    # reason why its device cannot be used; null: it claims jobs
    problem: Mapped[str | None] = mapped_column(Text)
    seen_at: Mapped[float]
    # time since when the database has responded to it, up to `seen_at`; null: unknown
    answers_since: Mapped[float | None]
    __table_args__ = (Index("ix_workers_device_seen_at", "device", "seen_at"),)
