"""The worker at scale: Celery messages notify it, and the jobs table is the queue.

Start it with `perennial worker`, or with `celery -A perennial_service.celery_app worker -P solo
--without-gossip --without-mingle`. The only task, `perennial.look`, has no arguments; it lets this
process claim jobs until none is eligible. Lost, repeated and late messages are harmless, so
acknowledgement is early, and there are no results and no retries. The pool is solo because a task
forks and waits. While it runs, the worker does not answer `inspect ping`, so the age of
`worker-alive` shows its health. The worker waits without limit for a broker that is away.
"""

import logging
import socket
from typing import Any

import structlog
from celery import Celery, signals
from celery.worker import state as celery_state
from sqlalchemy.exc import SQLAlchemyError

from core.database.session import Database
from core.errors import PerennialError
from core.jobs.worker_notification import QUEUE, TASK, WorkerNotifier
from core.logging import configure_logging
from core.processes.garbage import exclude_existing_objects_from_gc
from core.processes.start_requirements import prepare_data_directory_and_check_startup
from core.settings import Settings
from worker.loop import Worker

log = structlog.get_logger(__name__)

KEEPALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
"""Keep-alive settings by which a cut connection is noticed within a minute.

The kernel's default is two hours.
"""

settings = Settings()
app = Celery("perennial", broker=settings.broker_url_with_password or None, set_as_current=True)
app.conf.update(
    # A late acknowledgement would deliver a killed worker's message again and again.
    task_acks_late=False,
    task_reject_on_worker_lost=False,
    worker_disable_prefetch=True,
    # A message that one busy worker holds back cannot wake another one.
    worker_prefetch_multiplier=1,
    worker_concurrency=1,
    worker_pool="solo",
    # A running job writes a snapshot and is given back in this time.
    worker_soft_shutdown_timeout=settings.grace_s,
    # The lease decides over a running job, not the connection to the broker.
    worker_cancel_long_running_tasks_on_connection_loss=False,
    # Celery would replace the handlers that write JSON lines.
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    worker_send_task_events=False,
    worker_enable_remote_control=True,
    # The outcome of a job is in its row, and nobody reads a result.
    task_ignore_result=True,
    task_store_errors_even_if_ignored=False,
    task_track_started=False,
    task_default_queue=QUEUE,
    task_serializer="json",
    accept_content=["json"],
    broker_connection_retry=True,
    broker_connection_retry_on_startup=True,
    # The table is the queue: without a broker, a worker still has its chores to do.
    broker_connection_max_retries=None,
    broker_transport_options={
        "socket_keepalive": True,
        "socket_keepalive_options": KEEPALIVE,
        "socket_connect_timeout": 5.0,
    },
    result_backend=None,
    timezone="UTC",
)


class _CeleryProcessState:
    """The worker and notifier of this Celery process, kept between Celery's signals."""

    worker: Worker | None = None
    doorbell: WorkerNotifier | None = None


def _is_celery_stopping() -> bool:
    """Return True if Celery was asked to stop.

    After a TERM, `should_stop` is 0 and not True, and None means no request.
    """
    return celery_state.should_stop is not None or celery_state.should_terminate is not None


def _get_or_start_worker() -> Worker:
    """Return the worker of this process, started on first use."""
    if _CeleryProcessState.worker is None:
        doorbell = WorkerNotifier(settings, Database(settings.resolved_database_url, pool=1))
        worker = Worker(settings, doorbell.notify_workers)
        worker.prepare_worker()
        _CeleryProcessState.worker, _CeleryProcessState.doorbell = worker, doorbell
    return _CeleryProcessState.worker


@signals.celeryd_init.connect
def _silence_celery_banner(instance: Any, **_given: Any) -> None:
    """Turn off Celery's banner, which is not a JSON line."""
    instance.quiet = True


@signals.setup_logging.connect
def _configure_worker_logging(**_given: Any) -> None:
    configure_logging("worker")
    # a line for each notification would say nothing
    for name in ("celery.worker.strategy", "celery.app.trace"):
        logging.getLogger(name).setLevel(logging.WARNING)


@signals.worker_init.connect
def _start_worker_early(**_given: Any) -> None:
    """Create the worker before Celery connects, so that torch is imported meanwhile."""
    if not settings.broker_url:
        raise SystemExit(
            "PERENNIAL_BROKER_URL is not set: without a broker run `python -m worker.loop`."
        )
    try:
        advice = prepare_data_directory_and_check_startup(settings)
        if advice is not None:
            log.warning("data directory open to others", advice=advice)
        _get_or_start_worker()
    except (PerennialError, SQLAlchemyError) as error:
        log.error("cannot start", reason=str(error).partition("\n")[0])
        raise SystemExit(1) from error


@signals.worker_ready.connect
def _start_worker_chores(**_given: Any) -> None:
    worker = _get_or_start_worker()
    exclude_existing_objects_from_gc()
    worker.start_chores()
    log.info("worker ready", worker=worker.name)


@signals.worker_shutdown.connect
def _close_worker(**_given: Any) -> None:
    if _CeleryProcessState.worker is not None:
        _CeleryProcessState.worker.close_worker()
        _CeleryProcessState.worker = None
    if _CeleryProcessState.doorbell is not None:
        _CeleryProcessState.doorbell.close()
        _CeleryProcessState.doorbell = None


@app.task(name=TASK, ignore_result=True)
def run_eligible_jobs() -> None:
    """Claim and run jobs until none is eligible or Celery was asked to stop."""
    _get_or_start_worker().run_jobs(_is_celery_stopping)
