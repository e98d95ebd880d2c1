"""End-to-end fixtures: one embedded service for all modules, started as `make serve` starts it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rest import Rest
from tools import service


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[service.Service]:
    """An embedded service with one thread per job, that looks for better states of it often."""
    settings = {"PERENNIAL_THREADS": "1", "PERENNIAL_ANYTIME_S": "0.2"}
    with service.running(tmp_path_factory.mktemp("service"), settings) as found:
        yield found


@pytest.fixture
def client(running: service.Service) -> Rest:
    """A client with the admin key."""
    return Rest(running.url, running.key)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
