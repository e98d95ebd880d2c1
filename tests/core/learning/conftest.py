"""Shared by the tests of core/learning: the conformance kit and small streams of tasks."""

import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "kit"))

import conformance
import streams


@pytest.fixture(scope="module", autouse=True)
def without_fsync() -> Iterator[None]:
    """Spare the waits for the disk: each run of a job has several, and no test here loses power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def case_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., conformance.Case]]:
    """The case of a method and a scenario: one for all checks, which share what it has learned."""
    server = conformance.ForkServer()

    @cache
    def make_case(name: str, scenario: str, module: str | None = None) -> conformance.Case:
        return conformance.Case(name, scenario, tmp_path_factory.mktemp("case"), server, module)

    yield make_case
    server.close()


@pytest.fixture
def bench(tmp_path: Path) -> "streams.Bench":
    return streams.Bench(tmp_path)


@pytest.fixture
def deep(bench: "streams.Bench") -> "streams.Bench":
    """A bench for a network with layers at each depth."""
    bench.architecture, bench.size, bench.n = {"name": "resnet20"}, 8, 10
    return bench
