"""Notification of workers that a job may be waiting. A ring may be lost, repeated or late.

The jobs table is the queue; a ring only saves the wait for the next poll. With a broker, a ring is
the Celery message `perennial.look`. A background thread sends it with 1 s socket time-outs and
without retries, because an unresponsive broker must not delay a request. Without a broker, it is a
datagram to the worker's socket in the data directory. The workers' chores repeat lost rings.
"""

import os
import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import structlog
from sqlalchemy import update
from sqlalchemy.exc import SQLAlchemyError

from core.database.session import Database
from core.database.tables import Job
from core.failpoints import hit_failpoint
from core.settings import Settings

log = structlog.get_logger(__name__)

TASK = "perennial.look"
QUEUE = "perennial"
SOCKET_TIMEOUT_S = 1.0
CHECK_S = 5.0
"""Seconds between checks of the broker while there are no rings."""
WAITING = 10_000
"""Rings that wait for a slow broker. Further ones are dropped, and the chores repeat them."""
SOCKET_NAME = "doorbell.sock"

Status = Literal["up", "down", "none"]


class WorkerNotifier:
    """Thread that notifies workers of new jobs through the broker (Celery and Redis).

    Args:
        settings: `broker_url` chooses between Celery and the datagram socket in `data_dir`.
        db: database where `rung_at` is recorded after the broker has accepted a message.
    """

    def __init__(self, settings: Settings, db: Database) -> None:
        self._settings = settings
        self._db = db
        self._status: Status = "down" if settings.broker_url else "none"
        self._rings: queue.Queue[str | None] = queue.Queue(WAITING)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._checked = threading.Event()

    def start_sending_notifications(self) -> None:
        """Start the thread that notifies workers, if there is a broker. Further calls do nothing."""
        if self._settings.is_brokerless:
            return
        # Several threads may ring for the first time at once.
        with self._lock:
            if self._thread is None:
                # A daemon, so that a broker that hangs does not keep the process alive.
                self._thread = threading.Thread(
                    target=self._send_notifications, name="doorbell", daemon=True
                )
                self._thread.start()

    def notify_workers(self, job_id: str) -> None:
        """Ask a worker to look for jobs in the queue.

        Call this after the commit that made `job_id` eligible.

        Returns at once, and does not raise if the broker does not respond.
        """
        if self._settings.is_brokerless:
            wake_worker(self._settings.data_dir)
            hit_failpoint("ring-sent")
            return
        self.start_sending_notifications()
        try:
            # Dropped if the queue is full: workers find the job by polling, only later.
            self._rings.put_nowait(job_id)
        except queue.Full:
            log.warning("ring dropped", job=job_id)

    def get_broker_status(self) -> Status:
        """Return the message broker's state at the last check: `up`, `down`, or `none` without a
        broker.

        The first call waits for the first check, at most 2.5 times the socket time-out.
        """
        self.start_sending_notifications()
        if not self._settings.is_brokerless:
            # A check may take two time-outs, to connect and to read; the rest is a margin.
            self._checked.wait(SOCKET_TIMEOUT_S * 2.5)
        return self._status

    def close(self, timeout_s: float = 2 * SOCKET_TIMEOUT_S) -> None:
        """Stop the notifying thread; periodic tasks repeat the notifications that still wait."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is None:
            return
        # The queue may be full: make room for the end mark, or the thread would never end.
        while True:
            try:
                self._rings.put_nowait(None)
                break
            except queue.Full:
                dropped_job_id = self._rings.get_nowait()
                log.warning("ring dropped", job=dropped_job_id)
        thread.join(timeout_s)

    def _send_notifications(self) -> None:
        broker = _NotificationBroker(self._settings.broker_url_with_password)
        self._check_and_record_broker_status(broker)
        while True:
            try:
                job_id = self._rings.get(timeout=CHECK_S)
            except queue.Empty:
                self._check_and_record_broker_status(broker)
                continue
            if job_id is None:
                broker.close()
                return
            if self._try_send_notification(broker, job_id):
                hit_failpoint("ring-sent")
                self._record_notification_time(job_id)

    def _check_and_record_broker_status(self, broker: "_NotificationBroker") -> None:
        self._set_and_log_broker_status(broker.is_reachable())
        self._checked.set()

    def _try_send_notification(self, broker: "_NotificationBroker", job_id: str) -> bool:
        is_sent = broker.send_notification()
        if not is_sent:
            log.warning("broker did not take a ring; the chores ring again", job=job_id)
        self._set_and_log_broker_status(is_sent)
        return is_sent

    def _set_and_log_broker_status(self, up: bool) -> None:
        status: Status = "up" if up else "down"
        if status != self._status:
            log.info("broker", status=status)
        self._status = status

    def _record_notification_time(self, job_id: str) -> None:
        try:
            with self._db.write() as session:
                session.execute(
                    update(Job).where(Job.id == job_id).values(rung_at=self._db.now(session))
                )
        except SQLAlchemyError as error:
            # Without `rung_at`, the chores ring once more, which is harmless.
            log.warning("rung_at not noted", job=job_id, error=type(error).__name__)


class _NotificationBroker:
    """Celery and Redis clients by which workers are notified of jobs.

    Imported on creation, so that embedded processes do not load them.
    """

    def __init__(self, url: str) -> None:
        import redis
        from celery import Celery
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        # Not the current app: in a worker, that is the app of `worker.celery_app`.
        self._app: Any = Celery("perennial-doorbell", broker=url, set_as_current=False)
        self._app.conf.update(
            broker_connection_timeout=SOCKET_TIMEOUT_S,
            broker_transport_options={
                "socket_timeout": SOCKET_TIMEOUT_S,
                "socket_connect_timeout": SOCKET_TIMEOUT_S,
                "retry_on_timeout": False,
            },
            # Only the sending thread uses the pool.
            broker_pool_limit=1,
            task_default_queue=QUEUE,
            task_publish_retry=False,
            task_ignore_result=True,
            task_serializer="json",
            accept_content=["json"],
        )
        self._errors: tuple[type[Exception], ...] = (
            *self._app.connection_for_write().recoverable_connection_errors,
            redis.RedisError,
            OSError,
        )
        no_retry = Retry(NoBackoff(), 0)
        self._redis = redis.Redis.from_url(
            url,
            socket_timeout=SOCKET_TIMEOUT_S,
            socket_connect_timeout=SOCKET_TIMEOUT_S,
            retry=no_retry,
        )

    def send_notification(self) -> bool:
        # A single time-out, where kombu's own connection attempts would add up.
        if not self.is_reachable():
            return False
        try:
            self._app.send_task(TASK, queue=QUEUE, retry=False, ignore_result=True)
        except self._errors as error:
            log.warning("broker", error=type(error).__name__)
            # The pool would hand out the broken connection again.
            self._app.pool.force_close_all()
            return False
        return True

    def is_reachable(self) -> bool:
        try:
            return bool(self._redis.ping())
        except self._errors:
            return False

    def close(self) -> None:
        self._redis.close()
        self._app.close()


def wake_worker(data_dir: Path) -> bool:
    """Wake the worker of `data_dir` with a datagram; return True if a worker listens there."""
    try:
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
            _shorten_socket_path(data_dir) as address,
        ):
            # A request must not wait for a worker whose queue of wake-ups is full.
            sender.setblocking(False)
            sender.sendto(b"1", address)
    except BlockingIOError:
        return True  # the worker's queue of wake-ups is full, so it will look
    except OSError:
        return False  # no worker listens; one that starts later polls
    return True


@contextmanager
def open_wakeup_socket(data_dir: Path) -> Iterator[socket.socket | None]:
    """Open the non-blocking socket whose datagrams wake this worker; yield None if that fails."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        with _shorten_socket_path(data_dir) as address:
            # A worker that was killed leaves its socket's file behind, and bind would fail.
            Path(address).unlink(missing_ok=True)
            listener.bind(address)
        listener.setblocking(False)
    except OSError as error:
        log.warning("no doorbell socket; polling only", error=str(error))
        listener.close()
        yield None
        return
    try:
        yield listener
    finally:
        listener.close()


@contextmanager
def _shorten_socket_path(data_dir: Path) -> Iterator[str]:
    """Yield a path for the socket that is short enough, through a descriptor of its folder if
    needed.

    UNIX socket addresses end at 107 bytes.
    """
    plain = str(data_dir.absolute() / SOCKET_NAME)
    if len(os.fsencode(plain)) < 100:
        yield plain
        return
    folder = os.open(data_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{SOCKET_NAME}"
    finally:
        os.close(folder)


def drain_pending_wakeups(listener: socket.socket) -> None:
    """Read all pending datagrams that wake the worker, for at most `SOCKET_TIMEOUT_S` seconds."""
    # Bounded, because rings may arrive as fast as they are read.
    deadline = time.monotonic() + SOCKET_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            listener.recv(16)
        except BlockingIOError:
            return
