"""Tests of the client: a service of the session to talk to, and an empty home so that no profile of
the developer counts."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perennial import Perennial
from tools import digits, service

sys.path.append(str(Path(__file__).parent))

import small_batches


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and no setting of the client."""
    found = tmp_path / "home"
    monkeypatch.setenv("HOME", str(found))
    for name in (
        "XDG_CONFIG_HOME",
        "XDG_CACHE_HOME",
        "PERENNIAL_URL",
        "PERENNIAL_API_KEY",
        "PERENNIAL_PROFILE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return found


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[service.RunningService]:
    """A service whose jobs use one thread."""
    with service.run_temporary_service(
        tmp_path_factory.mktemp("service"), {"PERENNIAL_THREADS": "1"}
    ) as found:
        yield found


@pytest.fixture(scope="session")
def archives() -> list[bytes]:
    """Five batches of two digits each, small ones."""
    return [small_batches.reduce_batch(archive) for _, archive in digits.build_digit_archives()]


@pytest.fixture
def client(running: service.RunningService) -> Iterator[Perennial]:
    """A client with the admin's key."""
    with Perennial(running.key, base_url=running.url) as found:
        yield found


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for."""
    for module in ("http", "upload", "download"):
        monkeypatch.setattr(f"perennial._sync.{module}.sleep_seconds", lambda _: None)
