"""Shared by the tests of core/learn: the conformance kit and small streams of tasks."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "kit"))

import conformance
import streams


@pytest.fixture(scope="session")
def fork_server() -> Iterator["conformance.ForkServer"]:
    server = conformance.ForkServer()
    yield server
    server.close()


@pytest.fixture
def bench(tmp_path: Path) -> "streams.Bench":
    return streams.Bench(tmp_path)
