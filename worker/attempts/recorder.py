"""Recording of a job process's reports by its worker: progress, snapshots, best states."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import structlog
from sqlalchemy.exc import SQLAlchemyError

from core import telemetry
from core.contract.jobs.job_event import (
    BestStateFolderReadyEvent,
    DataReportEvent,
    JobEvent,
    PhaseEvent,
    ProgressEvent,
    SnapshotEvent,
)
from core.database.session import Database, is_database_outage
from core.errors import Unavailable
from core.execution import progress, snapshots
from core.publishing import anytime
from core.scheduling.claim import JobClaim
from core.storage import ObjectStorage

log = structlog.get_logger(__name__)

KEPT_EVENTS = 5_000
"""Maximum number of events kept during an outage of the database; the oldest are dropped."""


class JobEventRecorder:
    """Stores a job process's events in the database while this worker holds the lease on the job.

    During an outage it keeps events and skips states.
    """

    def __init__(self, db: Database, store: ObjectStorage, claim: JobClaim) -> None:
        self._db = db
        self._store = store
        self._claim = claim
        self._kept: list[JobEvent] = []
        self._inspected_at: float | None = None
        # number of images, and the time of that report
        self._trained: tuple[int, float] | None = None

    def write_job_events(self, events: list[JobEvent]) -> None:
        """Store the job's events, after earlier ones that an outage delayed.

        Of these only the newest `KEPT_EVENTS` remain.

        Raises:
            LeaseLost: the job belongs to another claim.
        """
        self._count_trained_images_in_metrics(events)
        # Added before the write, so that an outage loses nothing.
        self._kept += [self._add_inspection_duration_to_report(event) for event in events]
        try:
            progress.store_job_process_events(self._db, self._claim, self._kept)
        except SQLAlchemyError as error:
            if not is_database_outage(error):
                raise
            log.warning("progress waits for the database", events=len(self._kept))
            # A long outage must not fill the memory of a worker whose job goes on.
            del self._kept[:-KEPT_EVENTS]
        else:
            self._kept = []

    def _count_trained_images_in_metrics(self, events: list[JobEvent]) -> None:
        """Add trained images and training time since the last report to the Prometheus counters."""
        now = time.monotonic()
        for event in events:
            if isinstance(event, PhaseEvent):
                # after resuming, the first report shows the position
                resumed = self._claim.snapshot is not None
                self._trained = (0, now) if event.phase == "train" and not resumed else None
            elif isinstance(event, ProgressEvent) and event.phase == "train":
                if self._trained is not None:
                    telemetry.TRAINING_IMAGES.inc(max(0, event.images - self._trained[0]))
                    telemetry.TRAINING_SECONDS.inc(now - self._trained[1])
                self._trained = event.images, now

    def _add_inspection_duration_to_report(self, event: JobEvent) -> JobEvent:
        """Add how long the inspection of images took to the data report of a job.

        A report on a batch's images gets its duration, since a job process has no clock.
        """
        now = time.monotonic()
        if isinstance(event, PhaseEvent):
            self._inspected_at = now if event.phase == "inspect" else None
        if isinstance(event, DataReportEvent) and self._inspected_at is not None:
            cost_s = round(now - self._inspected_at, 2)
            return event.model_copy(update={"report": {**event.report, "cost_s": cost_s}})
        return event

    def register_and_delete_snapshot_folder(self, event: SnapshotEvent) -> None:
        """Register a job's snapshot from a folder, and delete the folder.

        After an outage, the next snapshot will do.
        """
        path = event.path
        self._register_and_delete_state_folder(
            path,
            lambda: snapshots.upload_snapshot_and_delete_earlier_ones(
                self._db, self._store, self._claim, path, event
            ),
        )

    def register_and_delete_best_state_folder(self, event: BestStateFolderReadyEvent) -> bool:
        """Register a job's best state so far from a folder, and delete the folder.

        Return False if it was not registered.
        """
        path = event.path
        return self._register_and_delete_state_folder(
            path,
            lambda: anytime.upload_and_register_best_state(
                self._db, self._store, self._claim, path
            ),
        )

    def _register_and_delete_state_folder(self, path: Path, register: Callable[[], None]) -> bool:
        """Register a training state from a folder and delete the folder; return False in an outage."""
        try:
            register()
        except (SQLAlchemyError, Unavailable) as error:
            if isinstance(error, SQLAlchemyError) and not is_database_outage(error):
                raise
            log.warning("state not kept", folder=path.name, error=type(error).__name__)
            return False
        finally:
            # States can be large, and the next one replaces this in any case.
            shutil.rmtree(path, ignore_errors=True)
        return True
