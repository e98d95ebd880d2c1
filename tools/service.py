"""An embedded service in a separate process for the duration of a `with` block.

The demo, the end-to-end tests and the benchmarks start the product this way: with the launcher of
`make serve`, on a free port, with a separate data directory.
"""

import contextlib
import fcntl
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from core.recipe.catalogue import load_recipe_catalogue
from core.settings import Settings
from worker.devices.torch_check import check_torch_while_block_runs
from worker.launcher import make_parent_death_hook

ROOT = Path(__file__).resolve().parent.parent
START_S = 600.0
"""Seconds for a start. The first one compiles PyTorch's files, which takes minutes on a busy
machine.
"""
# Above the launcher's own limit of 35 s for its parts, so that it ends them itself.
STOP_S = 40.0
PORTS = range(20_000, 32_000)


class ServiceNotReady(RuntimeError):
    """The started service did not become ready; the message has the end of its log."""


@dataclass
class RunningService:
    """A started service: URL, admin key, data directory, launcher process and log."""

    url: str
    key: str
    data_dir: Path
    process: subprocess.Popen[bytes]
    log: Path


@contextmanager
def run_temporary_service(
    data_dir: Path,
    environment: Mapping[str, str] | None = None,
    *,
    code: Path = ROOT,
    inherits_settings: bool = True,
    port: int | None = None,
    in_terminal: bool = False,
) -> Iterator[RunningService]:
    """Start a service on `data_dir` within the block, and stop it at the end.

    Args:
        data_dir: folder of database, store and key.
        environment: additional settings, such as `{"PERENNIAL_THREADS": "1"}`.
        code: the checkout whose service is started.
        inherits_settings: whether settings of this process reach the service. False keeps out
            another service's database, for example.
        port: TCP port of the loopback address; None: a free one.
        in_terminal: True if a person may press Ctrl-C, which then reaches only this process; the
            service ends with it, however it ends (Linux).

    Raises:
        ServiceNotReady: the service did not become ready.
    """
    port = port or find_free_port()
    data_dir.mkdir(parents=True, exist_ok=True)
    link_shared_test_catalogue(data_dir)
    log = data_dir / "service.log"
    inherited = {
        name: value
        for name, value in os.environ.items()
        if inherits_settings or not name.startswith("PERENNIAL_")
    }
    settings = {
        **inherited,
        "PERENNIAL_DATA_DIR": str(data_dir),
        # Never reachable from other machines, whatever this process inherited.
        "PERENNIAL_HOST": "127.0.0.1",
        "PERENNIAL_PORT": str(port),
        **(environment or {}),
    }
    # The client of the same checkout, since the service imports its rules.
    paths = [str(code / "client"), settings.get("PYTHONPATH", "")]
    settings["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    with log.open("ab") as output:
        # The log is appended to, and an error should show only this service's lines.
        old_bytes = output.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "worker.launcher"],
            cwd=code,
            env=settings,
            stdout=output,
            stderr=output,
            # A second signal, from the terminal, would make the launcher kill its processes.
            start_new_session=in_terminal,
            preexec_fn=make_parent_death_hook() if in_terminal else None,
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_service_ready(url, process, log, old_bytes)
        # The service writes its key before it is ready.
        key = (data_dir / "admin-key").read_text().strip()
        yield RunningService(url, key, data_dir, process, log)
    finally:
        _stop_service_process(process)


def link_shared_test_catalogue(data_dir: Path) -> None:
    """Link the shared test catalogue into a new data directory, since building one takes seconds.

    Making a catalogue takes seconds, and a test run starts a hundred services from the same
    sources. The first call makes it, with the result of the check of torch beside it; calls of
    other processes wait for that.
    """
    lent, own_catalogue = os.environ.get("PERENNIAL_TEST_CATALOGUE"), data_dir / "catalogue"
    if not lent or own_catalogue.exists():
        return
    own_catalogue.symlink_to(lent)
    marker = Path(lent) / "made"
    with (Path(lent) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not marker.exists():
            settings = Settings(data_dir=data_dir)
            with check_torch_while_block_runs(settings):
                load_recipe_catalogue(settings)
            # At the end, so that the next call repeats what an interrupted one has begun.
            marker.touch()


def find_free_port() -> int:
    """Return a TCP port of the loopback address that was free just now.

    It is outside the range from which the system assigns ports to outgoing connections. One of
    those could take it before it is used.
    """
    # At random, so that processes that start at the same time rarely try the same port.
    for port in random.SystemRandom().sample(PORTS, 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError(f"No port of 127.0.0.1 is free from {PORTS.start} to {PORTS.stop - 1}.")


def _wait_until_service_ready(
    url: str, process: subprocess.Popen[bytes], log: Path, old_bytes: int
) -> None:
    """Wait until a started service reports that it is ready.

    Args:
        url: its address.
        process: its launcher.
        log: the file of its output.
        old_bytes: bytes of the log that earlier services wrote.

    Raises:
        ServiceNotReady: it ended, or is not ready after `START_S`; the message has the end of its own
            output.
    """
    deadline = time.monotonic() + START_S
    # One client for all tries, which loads no certificates, because the URL is plain HTTP.
    with httpx2.Client(base_url=url, timeout=2, verify=False) as client:
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(httpx2.TransportError):  # not listening yet
                if client.get("/readyz").status_code == 200:
                    return
            time.sleep(0.05)
    end = log.read_bytes()[old_bytes:].decode(errors="replace")[-4000:]
    raise ServiceNotReady(f"The service did not get ready at {url}. The end of its log:\n{end}")


def _stop_service_process(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            # A process that hangs must not outlive the block.
            process.kill()
            process.wait()
