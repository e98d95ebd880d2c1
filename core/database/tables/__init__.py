"""The tables of the database.

Times are seconds since 1970 (UTC) as float, taken from the database's clock wherever two machines
compare them. JSON columns hold values that are only read and written as a whole. The jobs table is
the queue.
"""

from core.database.tables.edit import ClassAlias, Edit, EditedPart
from core.database.tables.job import Event, Job, OwnerEvent, WorkerReport
from core.database.tables.model import Alias, AliasMove, Base, Model, Weights
from core.database.tables.owner import Audit, Idempotency, Key, Owner, PredictKey, UserSession
from core.database.tables.store import Chunk, Damage, Scrub, Upload
from core.database.tables.table import Table
from core.database.tables.task import Task
from core.database.tables.trial import Trial, TrialFile
from core.database.tables.version import (
    Export,
    Exporter,
    ExportJob,
    Measurement,
    Part,
    Result,
    Version,
)
from core.database.tables.webhook import Delivery, Webhook

__all__ = [
    "Alias",
    "AliasMove",
    "Audit",
    "Base",
    "Chunk",
    "ClassAlias",
    "Damage",
    "Delivery",
    "Edit",
    "EditedPart",
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
    "Trial",
    "TrialFile",
    "Upload",
    "UserSession",
    "Version",
    "Webhook",
    "Weights",
    "WorkerReport",
]
