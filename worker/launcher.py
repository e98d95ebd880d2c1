"""The whole service from one command: `python -m worker.launcher`.

Prepares database, store and admin key, then runs the API and one worker as child processes on one
console and restarts, with growing pauses, the one that dies. The first Ctrl-C or TERM ends the API and
then the worker in order within the grace; the second kills. With a broker URL the worker is a Celery
worker. Standard library only: this process waits, so it should cost nothing.
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

from worker.one_service import DataInUse, held
from worker.prepared import Prepared

ROOT = Path(__file__).resolve().parent.parent
API_GRACE_S = 5
"""Seconds for open requests and event streams to end."""
LEAVE_S = 5.0
"""Added to the grace of a job: publishing and releasing after the child has stopped."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
STEADY_S = 15.0
"""A process that ran so long restarts after the first pause: its job waits for it."""
TICK_S = 0.2
PR_SET_PDEATHSIG = 1

CELERY = (
    *("-m", "celery", "-A", "worker.celery_app", "worker", "-P", "solo"),
    *("--without-gossip", "--without-mingle"),
)
"""What Python runs as a Celery worker."""
API = "api"
WORKER = "worker"


@dataclass
class Part:
    """One supervised process and its restarts."""

    name: str
    command: list[str]
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    start_at: float = 0.0
    starts: int = field(default=0)

    def start(self, die_with_us: Callable[[], None] | None) -> None:
        """Start it in a session of its own: the terminal's Ctrl-C reaches only the launcher."""
        self.process = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_us,
        )
        self.started_at = time.monotonic()
        self.starts += 1

    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def wait(self, until: float) -> bool:
        """Whether it has ended by `until` (monotonic seconds)."""
        if self.process is None:
            return True
        try:
            self.process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True


class Launcher:
    """Runs the parts until asked to stop.

    Args:
        parts: in the order in which they are started and ended.
        grace_s: seconds for the orderly end of a job.
        tell_end: called when the end begins.
    """

    def __init__(
        self, parts: list[Part], grace_s: float, tell_end: Callable[[], None] = lambda: None
    ) -> None:
        self._parts = parts
        self._grace_s = grace_s
        self._tell_end = tell_end
        self._asked = 0
        self._die_with_us = _parent_death_signal()

    def ask_to_stop(self, _number: int, _frame: FrameType | None) -> None:
        """The signal handler: once in order, twice at once."""
        self._asked += 1

    def run(self) -> int:
        """Start, watch and restart; return the exit status after the orderly (0) or forced (1) end."""
        try:
            while not self._asked:
                for part in self._parts:
                    self._tend(part)
                time.sleep(TICK_S)
            return self._end()
        finally:
            for part in self._parts:
                part.signal(signal.SIGKILL)
                part.wait(time.monotonic() + 5.0)

    def _tend(self, part: Part) -> None:
        now = time.monotonic()
        if part.running() or now < part.start_at:
            return
        if part.process is not None:
            status, ran_s = part.process.returncode, now - part.started_at
            part.process = None
            part.pause_s = FIRST_PAUSE_S if ran_s > STEADY_S else part.pause_s
            part.start_at = now + part.pause_s
            say(f"The {part.name} process ended with status {status}; restarting in {part.pause_s:g} s.")
            part.pause_s = min(2 * part.pause_s, LONGEST_PAUSE_S)
            return
        part.start(self._die_with_us)

    def _end(self) -> int:
        self._tell_end()
        say("Stopping. A running job writes a snapshot and continues at the next start.")
        # First the API, so that nothing is accepted that nobody will look at before the next start.
        clean = True
        for part, limit_s in zip(self._parts, (API_GRACE_S, self._grace_s + LEAVE_S), strict=False):
            part.signal(signal.SIGTERM)
            until = time.monotonic() + limit_s
            while not part.wait(min(until, time.monotonic() + TICK_S)):
                if self._asked > 1:
                    say("Killed.")
                    return 1
                if time.monotonic() > until:
                    say(f"The {part.name} process did not stop in {limit_s:g} s: killed.")
                    clean = part.name == API and clean
                    part.signal(signal.SIGKILL)
                    until = time.monotonic() + 5.0
        return 0 if clean else 1


def parts(told: Prepared, port: int) -> list[Part]:
    """The API and the worker that fit the settings `told` by `worker.setup`."""
    environment = {
        **os.environ,
        "PERENNIAL_DATA_DIR": told["data_dir"],
        "PERENNIAL_PORT": str(port),
        # glibc gives every thread an arena of its own; two are plenty here and cost far less memory.
        "MALLOC_ARENA_MAX": os.environ.get("MALLOC_ARENA_MAX", "2"),
    }
    api = [
        *(sys.executable, "-m", "uvicorn", "--factory", "api.app:create_app"),
        *("--host", told["host"], "--port", str(port), "--http", "api.connection:Connection"),
        *("--no-access-log", "--log-level", "warning", "--no-server-header"),
        *("--timeout-graceful-shutdown", str(API_GRACE_S - 2)),
    ]
    if told["embedded"]:
        worker = [sys.executable, "-m", "worker.loop"]
    else:
        worker = [sys.executable, *CELERY, "--loglevel", "WARNING"]
    return [Part(API, api, environment), Part(WORKER, worker, environment)]


def free_port(host: str) -> int:
    """A TCP port of `host` that was free a moment ago."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def is_taken(host: str, port: int) -> bool:
    """Whether something listens on a port of `host`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE  # another reason is told by who listens there
    return False


def wait_for(host: str, port: int, grace_s: float) -> bool:
    """Wait while a port is taken, as long as a service that was just ended may need; False: it still is."""
    until = time.monotonic() + grace_s
    if is_taken(host, port):
        say(
            f"Port {port} is in use. If that is a service that ends, it is free in {grace_s:g} s at most: waiting."
        )
    while is_taken(host, port):
        if time.monotonic() > until:
            say(
                f"Port {port} is still in use: another service serves there. Stop it, or choose another port: "
                f"PERENNIAL_PORT={port + 1} perennial serve. Two services need two data directories "
                "(PERENNIAL_DATA_DIR)."
            )
            return False
        time.sleep(0.2)
    return True


def say(text: str) -> None:
    """One line on the console."""
    print(text, file=sys.stderr, flush=True)


def _parent_death_signal() -> Callable[[], None] | None:
    """What a child runs before exec, so that a killed launcher leaves no service behind (Linux)."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)  # loaded before the fork; the child only calls

    def die_with_us() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

    return die_with_us


def _prepare() -> Prepared | None:
    """Run `worker.setup`; None when it refused (it has said why)."""
    done = subprocess.run(
        [sys.executable, "-m", "worker.setup"], cwd=ROOT, stdout=subprocess.PIPE, check=False
    )
    if done.returncode != 0:
        return None
    told: Prepared = json.loads(done.stdout.splitlines()[-1])
    return told


def main() -> int:
    """Start the service with the settings of the environment and stay until asked to stop."""
    os.environ["PERENNIAL_DATA_DIR"] = str(
        Path(os.environ.get("PERENNIAL_DATA_DIR") or "perennial-data").absolute()
    )
    os.umask(0o077)  # all parts inherit it; see core.private
    try:
        with held(Path(os.environ["PERENNIAL_DATA_DIR"])) as lock:
            return _serve((lambda: None) if lock is None else lock.end)
    except DataInUse as error:
        say(str(error))
        return 1


def _serve(tell_end: Callable[[], None]) -> int:
    """Prepare, start the parts, and stay until asked to stop."""
    told = _prepare()
    if told is None:
        return 1
    if told["port"] and not wait_for(told["host"], told["port"], told["grace_s"]):
        return 1
    port = told["port"] or free_port(told["host"])
    host = f"[{told['host']}]" if ":" in told["host"] else told["host"]
    say(f"Perennial serves http://{host}:{port} (documentation: /docs). Data: {told['data_dir']}")
    if told["admin_key"]:
        file = f"{told['data_dir']}/admin-key"
        # A terminal forgets; what goes to a file or a journal is read by others, and for years.
        said = f"{told['admin_key']} (also in {file})" if sys.stderr.isatty() else f"in the file {file}"
        say(f"Admin key: {said}")
    launcher = Launcher(parts(told, port), float(told["grace_s"]), tell_end)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, launcher.ask_to_stop)
    with contextlib.suppress(KeyboardInterrupt):
        return launcher.run()
    return 1


if __name__ == "__main__":
    sys.exit(main())
