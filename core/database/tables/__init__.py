"""The tables of the database.

Times are seconds since 1970 (UTC) as float, taken from the database's clock wherever two machines
compare them. JSON columns hold values that are only read and written as a whole. The jobs table is
the queue.
"""

from core.database.tables.edit import ClassAlias, Edit, TaskFileBeforeEdit
from core.database.tables.job import Job, OwnerEvent, StoredJobEvent, Trial, TrialFile, WorkerReport
from core.database.tables.model import (
    Alias,
    AliasMove,
    FetchedPretrainedWeights,
    Model,
    UploadedBase,
)
from core.database.tables.owner import (
    AccessKey,
    AuditEntry,
    IdempotencyRecord,
    Owner,
    PredictKeyBindingRow,
    UserSession,
)
from core.database.tables.store import (
    IntegrityScrubProgress,
    StoredObjectDamageMark,
    StoredUploadPiece,
    Upload,
)
from core.database.tables.table import DatabaseTable
from core.database.tables.task import Task
from core.database.tables.version import (
    ExportCapableWorker,
    ExportedDownload,
    ExportJob,
    Version,
    VersionMeasurement,
    VersionPart,
    VersionTaskResult,
)
from core.database.tables.webhook import Webhook, WebhookDelivery

__all__ = [
    "AccessKey",
    "Alias",
    "AliasMove",
    "AuditEntry",
    "ClassAlias",
    "DatabaseTable",
    "Edit",
    "ExportCapableWorker",
    "ExportJob",
    "ExportedDownload",
    "FetchedPretrainedWeights",
    "IdempotencyRecord",
    "IntegrityScrubProgress",
    "Job",
    "Model",
    "Owner",
    "OwnerEvent",
    "PredictKeyBindingRow",
    "StoredJobEvent",
    "StoredObjectDamageMark",
    "StoredUploadPiece",
    "Task",
    "TaskFileBeforeEdit",
    "Trial",
    "TrialFile",
    "Upload",
    "UploadedBase",
    "UserSession",
    "Version",
    "VersionMeasurement",
    "VersionPart",
    "VersionTaskResult",
    "Webhook",
    "WebhookDelivery",
    "WorkerReport",
]
