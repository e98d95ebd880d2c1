"""The tables of the database.

Times are seconds since 1970 (UTC) as float, taken from the database's clock wherever two machines
compare them. JSON columns hold values that are only read and written as a whole. The jobs table is
the queue.
"""

from core.db.tables.job import Event, Job, OwnerEvent, WorkerReport
from core.db.tables.model import Alias, AliasMove, Base, Model, Weights
from core.db.tables.owner import Audit, Idempotency, Key, Owner, PredictKey, UserSession
from core.db.tables.store import Chunk, Damage, Scrub, Upload
from core.db.tables.table import Table
from core.db.tables.task import Task
from core.db.tables.version import Export, Exporter, ExportJob, Measurement, Part, Result, Version
from core.db.tables.webhook import Delivery, Webhook

__all__ = [
    "Alias",
    "AliasMove",
    "Audit",
    "Base",
    "Chunk",
    "Damage",
    "Delivery",
    "Event",
    "Export",
    "ExportJob",
    "Exporter",
    "Idempotency",
    "Job",
    "Key",
    "Measurement",
    "Model",
    "Owner",
    "OwnerEvent",
    "Part",
    "PredictKey",
    "Result",
    "Scrub",
    "Table",
    "Task",
    "Upload",
    "UserSession",
    "Version",
    "Webhook",
    "Weights",
    "WorkerReport",
]
