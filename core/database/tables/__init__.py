"""The tables of the database.

Times are seconds since 1970 (UTC) as float, taken from the database's clock wherever two machines
compare them. JSON columns hold values that are only read and written as a whole. The jobs table is
the queue.
"""

from core.database.tables.edit import ClassAlias, Edit, TaskFileBeforeEdit
from core.database.tables.job import Event, Job, OwnerEvent, Trial, TrialFile, WorkerReport
from core.database.tables.model import Alias, AliasMove, Base, FetchedWeights, Model
from core.database.tables.owner import (
    AuditEntry,
    IdempotencyRecord,
    Key,
    Owner,
    PredictKey,
    UserSession,
)
from core.database.tables.store import DamagedObject, ScrubProgress, StoredUploadPiece, Upload
from core.database.tables.table import Table
from core.database.tables.task import Task
from core.database.tables.version import (
    ExportedDownload,
    ExportingWorker,
    ExportJob,
    Part,
    Version,
    VersionMeasurement,
    VersionTaskResult,
)
from core.database.tables.webhook import Delivery, Webhook

__all__ = [
    "Alias",
    "AliasMove",
    "AuditEntry",
    "Base",
    "ClassAlias",
    "DamagedObject",
    "Delivery",
    "Edit",
    "Event",
    "ExportJob",
    "ExportedDownload",
    "ExportingWorker",
    "FetchedWeights",
    "IdempotencyRecord",
    "Job",
    "Key",
    "Model",
    "Owner",
    "OwnerEvent",
    "Part",
    "PredictKey",
    "ScrubProgress",
    "StoredUploadPiece",
    "Table",
    "Task",
    "TaskFileBeforeEdit",
    "Trial",
    "TrialFile",
    "Upload",
    "UserSession",
    "Version",
    "VersionMeasurement",
    "VersionTaskResult",
    "Webhook",
    "WorkerReport",
]
