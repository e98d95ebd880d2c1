"""Child processes of the test session: free ports, waiting for servers, and their shutdown.

They end with the session.
"""

import ctypes
import signal
import socket
import subprocess
import time
from pathlib import Path

from tools import service

_PR_SET_PDEATHSIG = 1


class ServiceMissing(Exception):
    """A service that tests need cannot be started or reached; the message says what to do."""


def find_free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that are free now."""
    found: set[int] = set()
    while len(found) < count:
        found.add(service.find_free_port())
    return sorted(found)


def _die_with_parent() -> None:
    # Linux: a killed test session leaves no servers behind. Elsewhere `stop` has to do.
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except AttributeError:
        return


def start_process(
    command: list[str | Path], log: Path, env: dict[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start a server with its output in `log`; it ends when this process does."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=env,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )


def wait_for_port(
    process: "subprocess.Popen[bytes]", port: int, log: Path, seconds: float = 60.0
) -> None:
    """Wait until the process listens.

    Raises:
        ServiceMissing: the process does not listen; the message has the end of its log.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            tail = log.read_text(errors="replace")[-2000:]
            raise ServiceMissing(f"{process.args!r} does not listen on port {port}:\n{tail}")
        time.sleep(0.02)


def stop_process(process: "subprocess.Popen[bytes]", number: int = signal.SIGKILL) -> None:
    """Kill a process at once (test data needs no orderly shutdown)."""
    process.send_signal(signal.SIGCONT)
    process.send_signal(number)
    process.wait(30)
