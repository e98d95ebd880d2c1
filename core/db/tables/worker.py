"""The workers that report, and what each has to run jobs on."""

from sqlalchemy import Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from core.db.tables.table import Table


class WorkerReport(Table):
    """A worker, when it last said that it is there, and the device that it runs jobs on, see core.db.workers."""

    __tablename__ = "workers"
    worker: Mapped[str] = mapped_column(String(120), primary_key=True)
    device: Mapped[str] = mapped_column(String(4))  # cpu, cuda
    gpus: Mapped[int]  # CUDA devices; 0 of a CPU worker
    problem: Mapped[str | None] = mapped_column(Text)  # why its device cannot be used; null: it claims jobs
    seen_at: Mapped[float]
    answers_since: Mapped[float | None]  # the database has answered it from then to `seen_at`; null: unknown
    __table_args__ = (Index("ix_workers_device_seen_at", "device", "seen_at"),)
