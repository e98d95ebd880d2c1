"""Services of the session for all journeys: an embedded one, a large one, and a server of
pretrained weights.

Each file of tests has an owner of its own on the embedded service, so that names of models never
meet. A file that starts another service says why in its fixture.
"""

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, TypeVar

import hub_server
import pytest

from tests.e2e import extended_sources, guarded_site
from tests.e2e.holder import Holder
from tests.rest import Rest
from tools import service

T = TypeVar("T")


@pytest.fixture(scope="session")
def weights_server() -> Iterator[hub_server.Hub]:
    """A server of pretrained weights that the embedded service asks."""
    with hub_server.run_hub() as found:
        yield found


@pytest.fixture
def hub(weights_server: hub_server.Hub) -> Iterator[hub_server.Hub]:
    """The server of weights without files and faults; nothing waits for it afterwards."""
    found = weights_server
    found.files, found.digests, found.stall_at, found.go_on = {}, {}, None, threading.Event()
    found.gets.clear()
    yield found
    found.go_on.set()


@pytest.fixture(scope="session")
def kill_points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which points of death of the embedded service are armed
    (`core/failpoints.py`).
    """
    return tmp_path_factory.mktemp("points")


@pytest.fixture(scope="session")
def metrics_port() -> int:
    """The port on which the embedded service's worker shows its figures."""
    return service.find_free_port()


@pytest.fixture(scope="session")
def running(
    tmp_path_factory: pytest.TempPathFactory,
    weights_server: hub_server.Hub,
    kill_points: Path,
    metrics_port: int,
) -> Iterator[service.RunningService]:
    """An embedded service, started as `make serve` starts it, that looks around more often than
    usual.

    Its processes share their figures.
    """
    settings = {
        **weights_server.environment(),
        "PERENNIAL_THREADS": "1",
        "PERENNIAL_CHORES_S": "1",
        "PERENNIAL_ANYTIME_S": "0.2",
        "PERENNIAL_KILL_POINTS": str(kill_points),
        "PERENNIAL_METRICS_PORT": str(metrics_port),
        "PROMETHEUS_MULTIPROC_DIR": str(tmp_path_factory.mktemp("figures")),
    }
    with service.run_temporary_service(tmp_path_factory.mktemp("service"), settings) as found:
        yield found


@pytest.fixture
def holder(running: service.RunningService, kill_points: Path) -> Iterator[Holder]:
    """Stops processes of the embedded service at named points; none stays there after the test."""
    found = Holder(kill_points, running.process.pid)
    yield found
    found.release()


@pytest.fixture(scope="module")
def admin(running: service.RunningService) -> Rest:
    """A client with the first admin key."""
    return Rest(running.url, running.key)


@pytest.fixture(scope="module")
def client(admin: Rest, request: pytest.FixtureRequest) -> Rest:
    """A client with a write key of an owner that no other file has."""
    owner = request.module.__name__.rpartition(".test_")[2]
    key = {"name": owner, "owner": owner, "scope": "write"}
    made = admin.call("POST", "/v1/keys", json=key).json()
    return Rest(str(admin.http.base_url), made["secret"])


class _Shared:
    """Services that the tests of few files share; each ends after its last test, since an idle one
    looks for work all the time.
    """

    def __init__(self) -> None:
        self._open: dict[str, tuple[ExitStack, Any]] = {}

    def open(self, name: str, start: Callable[[], AbstractContextManager[T]]) -> T:
        """Return the service of a fixture; start it where it does not run."""
        if name not in self._open:
            stack = ExitStack()
            self._open[name] = stack, stack.enter_context(start())
        found: T = self._open[name][1]
        return found

    def close_unused(self, needed: Collection[str]) -> None:
        """End the services of other fixtures than these."""
        for name in self._open.keys() - needed:
            self._open.pop(name)[0].close()


_SHARED = _Shared()


@pytest.hookimpl(trylast=True)  # after the fixtures of the test
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    _SHARED.close_unused(getattr(nextitem, "fixturenames", ()))


@pytest.fixture(scope="module")
def large_site(tmp_path_factory: pytest.TempPathFactory, s3: Any) -> guarded_site.Site:
    """The service in its large size, with passwords that no other text contains."""
    folder = tmp_path_factory.mktemp("large")
    return _SHARED.open("large_site", lambda: guarded_site.run_guarded_site(folder, s3))


@pytest.fixture(scope="session")
def extended_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources with a reader, an export format and a problem more."""
    folder = tmp_path_factory.mktemp("copy")
    extended_sources.copy_and_extend(folder)
    return folder


@pytest.fixture(scope="module")
def extended(extended_code: Path, tmp_path_factory: pytest.TempPathFactory) -> Rest:
    """A client of a service of its own, which runs that copy."""
    settings = {"PERENNIAL_THREADS": "1", "PYTHONPATH": str(extended_code)}
    data = tmp_path_factory.mktemp("service")
    found = _SHARED.open(
        "extended", lambda: service.run_temporary_service(data, settings, code=extended_code)
    )
    return Rest(found.url, found.key)
