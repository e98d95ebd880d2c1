"""The whole service from one command: `python -m worker.launcher`.

It prepares database, store and admin key, then runs the API and one worker as child processes on
one console. A process that dies is restarted, with growing pauses. The first Ctrl-C or TERM ends
the API and then the worker in order, within the grace period; the second kills them. With a broker
URL, the worker is a Celery worker. Only the standard library is used: this process just waits, so
it should cost nothing.
"""

import contextlib
import ctypes
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from worker.data_folder_lock import DataDirectoryInUse, DataDirectoryLock, lock_data_directory
from worker.setup_report import PreparedServiceSettings

ROOT = Path(__file__).resolve().parent.parent
API_GRACE_S = 5
"""Seconds for open requests and event streams to end."""
LEAVE_S = 5.0
"""Seconds added to a job's grace period, for publishing and releasing after the child has stopped.
"""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
STEADY_S = 15.0
"""Seconds after which a process counts as steady and restarts after the shortest pause."""
TICK_S = 0.2
# From Linux's sys/prctl.h, since Python has no name for it.
PR_SET_PDEATHSIG = 1

CELERY = (
    *("-m", "celery", "-A", "perennial_service.celery_app", "worker", "-P", "solo"),
    *("--without-gossip", "--without-mingle"),
)
"""Arguments with which Python runs a Celery worker."""
DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8000
"""Defaults of `core.settings.Settings`, which is not imported here."""
API = "api"
WORKER = "worker"


@dataclass
class ServiceProcess:
    """A process of the service that the launcher starts and restarts, such as API or worker."""

    name: str
    command: list[str]
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    start_at: float = 0.0
    starts: int = field(default=0)

    def start_child(self, end_process_with_its_parent: Callable[[], None] | None) -> None:
        """Start the process in its own session: the terminal's Ctrl-C reaches only the launcher."""
        self.process = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=end_process_with_its_parent,
        )
        self.started_at = time.monotonic()
        self.starts += 1

    def is_running(self) -> bool:
        """Return True if the process was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, if it is running."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def wait_until_ended(self, until: float) -> bool:
        """Wait until `until` (monotonic seconds); return True if the process has ended."""
        if self.process is None:
            return True
        try:
            self.process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True


class ServiceLauncher:
    """Runs API and worker processes, and restarts those that end, until asked to stop.

    Args:
        processes: those to run, in the order in which they are started and ended.
        grace_s: seconds for the orderly end of a job.
        tell_end: called when the end begins.
    """

    def __init__(
        self,
        processes: list[ServiceProcess],
        grace_s: float,
        tell_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._processes = processes
        self._grace_s = grace_s
        self._tell_end = tell_end
        self._asked = 0
        self._die_with_us = make_parent_death_hook()

    def request_stop(self, _number: int, _frame: FrameType | None) -> None:
        """Handle a stop signal: the first one ends the processes in order, the second one at once."""
        self._asked += 1

    def run_service(self) -> int:
        """Start the service's processes, watch them, and restart those that end.

        Return the exit status after an orderly (0) or forced (1) end.
        """
        try:
            while not self._asked:
                for service in self._processes:
                    self._start_or_schedule_restart(service)
                time.sleep(TICK_S)
            return self._stop_processes_in_order()
        finally:
            for service in self._processes:
                # Whatever ends the launcher, its processes must not outlive it.
                service.send_signal(signal.SIGKILL)
                service.wait_until_ended(time.monotonic() + 5.0)

    def _start_or_schedule_restart(self, service: ServiceProcess) -> None:
        """Start a process, or schedule its restart if it has ended."""
        now = time.monotonic()
        if service.is_running() or now < service.start_at:
            return
        if service.process is not None:
            status, ran_s = service.process.returncode, now - service.started_at
            service.process = None
            service.pause_s = FIRST_PAUSE_S if ran_s > STEADY_S else service.pause_s
            service.start_at = now + service.pause_s
            print_line_to_stderr(
                f"The {service.name} process ended with status {status}; restarting in "
                f"{service.pause_s:g} s."
            )
            service.pause_s = min(2 * service.pause_s, LONGEST_PAUSE_S)
            return
        service.start_child(self._die_with_us)

    def _stop_processes_in_order(self) -> int:
        """End the API, then the workers; return the exit status."""
        self._tell_end()
        print_line_to_stderr(
            "Stopping. A running job writes a snapshot and continues at the next start."
        )
        # First the API, so that nothing is accepted that waits until the next start.
        clean = True
        for service, limit_s in zip(
            self._processes, (API_GRACE_S, self._grace_s + LEAVE_S), strict=False
        ):
            service.send_signal(signal.SIGTERM)
            until = time.monotonic() + limit_s
            # In short steps, so that a second Ctrl-C is noticed.
            while not service.wait_until_ended(min(until, time.monotonic() + TICK_S)):
                if self._asked > 1:
                    print_line_to_stderr("Killed.")
                    return 1
                if time.monotonic() > until:
                    print_line_to_stderr(
                        f"The {service.name} process did not stop in {limit_s:g} s: killed."
                    )
                    # Only a killed worker can leave an unfinished job, which then costs a strike.
                    clean = service.name == API and clean
                    service.send_signal(signal.SIGKILL)
                    until = time.monotonic() + 5.0
        return 0 if clean else 1


def build_service_processes(prepared: PreparedServiceSettings, port: int) -> list[ServiceProcess]:
    """Return the API and worker processes to launch, with their commands and environments."""
    environment = {
        **os.environ,
        "PERENNIAL_DATA_DIR": prepared["data_dir"],
        "PERENNIAL_PORT": str(port),
        # glibc gives every thread an arena of its own; two suffice here and take far less memory.
        "MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX", "2"),
    }
    api = [
        *(sys.executable, "-m", "uvicorn", "--factory", "api.app:create_app"),
        *(
            "--host",
            prepared["host"],
            "--port",
            str(port),
            "--http",
            "api.server.connection:LimitedHttpConnection",
        ),
        *("--no-access-log", "--log-level", "warning", "--no-server-header"),
        # Sooner than this process would kill it, so that the server ends in order.
        *("--timeout-graceful-shutdown", str(API_GRACE_S - 2)),
    ]
    if prepared["embedded"]:
        worker = [sys.executable, "-m", "worker.loop"]
    else:
        worker = [sys.executable, *CELERY, "--loglevel", "WARNING"]
    return [ServiceProcess(API, api, environment), ServiceProcess(WORKER, worker, environment)]


def find_free_port(host: str) -> int:
    """Return a TCP port of `host` that was free a moment ago."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def is_port_taken(host: str, port: int) -> bool:
    """Return True if another process listens on a port of `host`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # Lingering connections of an ended service (TIME_WAIT) do not keep the port in use.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            # other errors are reported by the process that will listen there
            return error.errno == errno.EADDRINUSE
    return False


def report_if_port_in_use() -> None:
    """Print early that the service's port is in use, if it is."""
    host = os.environ.get("PERENNIAL_HOST") or DEFAULT_HOST
    port = os.environ.get("PERENNIAL_PORT") or str(DEFAULT_PORT)
    # `worker.setup` reports an invalid port
    if port.isdecimal() and 0 < int(port) < 65536 and is_port_taken(host, int(port)):
        print_line_to_stderr(
            f"Port {port} is in use by another program. Preparing; then waiting for the port."
        )


def wait_for_free_port(host: str, port: int, grace_s: float) -> bool:
    """Wait while a port is taken, as long as a service that is ending may need.

    Return False if it is still taken.
    """
    until = time.monotonic() + grace_s
    if is_port_taken(host, port):
        print_line_to_stderr(
            f"Port {port} is in use. If that is a service that ends, it is free in {grace_s:g} s "
            f"at most: waiting."
        )
    while is_port_taken(host, port):
        if time.monotonic() > until:
            print_line_to_stderr(
                f"Port {port} is still in use: another service serves there. Stop it, or choose "
                f"another port: PERENNIAL_PORT={port + 1} perennial serve. Two services need two "
                "data directories (PERENNIAL_DATA_DIR)."
            )
            return False
        time.sleep(0.2)
    return True


def print_line_to_stderr(text: str) -> None:
    """Print one line on the console."""
    print(text, file=sys.stderr, flush=True)


def make_parent_death_hook() -> Callable[[], None] | None:
    """Return a `preexec_fn` that makes a child end when the launcher dies (Linux), else None."""
    if not sys.platform.startswith("linux"):
        return None
    # loaded before the fork, so that the child only calls it
    libc = ctypes.CDLL(None, use_errno=True)

    def end_process_with_its_parent() -> None:
        # TERM and not KILL: a worker still lets its job write a snapshot.
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

    return end_process_with_its_parent


def _try_to_run_setup_program() -> PreparedServiceSettings | None:
    """Run `worker.setup`; return None if it failed, after printing the reason."""
    done = subprocess.run(
        [sys.executable, "-m", "worker.setup"], cwd=ROOT, stdout=subprocess.PIPE, check=False
    )
    if done.returncode != 0:
        return None
    prepared: PreparedServiceSettings = json.loads(done.stdout.splitlines()[-1])
    return prepared


def main() -> int:
    """Start the service with the settings of the environment, and run it until asked to stop."""
    os.environ["PERENNIAL_DATA_DIR"] = str(
        Path(os.environ.get("PERENNIAL_DATA_DIR") or "perennial-data").absolute()
    )
    os.umask(0o077)  # inherited by all processes; see core.files.permissions
    print_line_to_stderr(
        f"Starting Perennial with its data in {os.environ['PERENNIAL_DATA_DIR']} …"
    )
    try:
        with lock_data_directory(Path(os.environ["PERENNIAL_DATA_DIR"])) as lock:
            return _run_service(lock)
    except DataDirectoryInUse as error:
        print_line_to_stderr(str(error))
        return 1


def _run_service(lock: DataDirectoryLock | None) -> int:
    """Prepare the data, start API and worker, and run them until asked to stop."""
    report_if_port_in_use()
    prepared = _try_to_run_setup_program()
    if prepared is None:
        return 1
    if prepared["port"] and not wait_for_free_port(
        prepared["host"], prepared["port"], prepared["grace_s"]
    ):
        return 1
    port = prepared["port"] or find_free_port(prepared["host"])
    host = f"[{prepared['host']}]" if ":" in prepared["host"] else prepared["host"]
    url = f"http://{host}:{port}"
    if lock is not None:
        lock.store_service_address(url)
    print_line_to_stderr(
        f"Perennial serves {url} (documentation: /docs). Data: {prepared['data_dir']}"
    )
    if prepared["admin_key"]:
        file = f"{prepared['data_dir']}/admin-key"
        # A terminal forgets; a file or a journal is read by others, and for years.
        location = (
            f"{prepared['admin_key']} (also in {file})"
            if sys.stderr.isatty()
            else f"in the file {file}"
        )
        print_line_to_stderr(f"Admin key: {location}")
    grace_s = float(prepared["grace_s"])
    tell_end = (lambda: None) if lock is None else (lambda: lock.mark_stopping(grace_s))
    launcher = ServiceLauncher(build_service_processes(prepared, port), grace_s, tell_end)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, launcher.request_stop)
    with contextlib.suppress(KeyboardInterrupt):
        return launcher.run_service()
    return 1


if __name__ == "__main__":
    sys.exit(main())
