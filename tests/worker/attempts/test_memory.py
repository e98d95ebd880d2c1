"""A job process that takes more memory than its bound ends, and the next one runs."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worker.conftest import LIMIT_S
from worker.attempts.child import ForkServer, JobProcess
from worker.attempts.memory import JobMemoryLimitEnforcer, read_anonymous_memory_bytes

Spec = Callable[..., Path]
MB = 1 << 20
DONE = ("emit", {"event": "done", "path": "/r"})


def _read_to_end(child: JobProcess) -> tuple[list[str], int | None]:
    """Return the names of a child's events, and its exit code."""
    deadline, seen = time.monotonic() + LIMIT_S, []
    while not child.ended and time.monotonic() < deadline:
        seen += [event.event for event in child.read_child_events(0.2)]
    return seen, child.close_and_wait()


def test_a_process_that_outgrows_its_bound_is_ended_and_the_next_one_runs(
    zygote: ForkServer, spec: Spec
) -> None:
    greedy = zygote.fork_child(spec(("take", 150 * MB), ("sleep", 600), DONE))
    with JobMemoryLimitEnforcer(greedy, 100 * MB) as watch:
        seen, status = _read_to_end(greedy)
    assert (seen, status, watch.is_memory_exceeded) == ([], -9, True)
    modest = zygote.fork_child(spec(("take", 20 * MB), ("sleep", 0.3), DONE))
    with JobMemoryLimitEnforcer(modest, 100 * MB) as watch:
        assert _read_to_end(modest) == (["done"], 0)
    assert not watch.is_memory_exceeded


@pytest.mark.parametrize("limit", [0, 2000 * MB])
def test_a_process_within_its_bound_or_without_one_is_left_alone(
    zygote: ForkServer, spec: Spec, limit: int
) -> None:
    child = zygote.fork_child(spec(("take", 100 * MB), ("sleep", 0.3), DONE))
    with JobMemoryLimitEnforcer(child, limit) as watch:
        assert _read_to_end(child) == (["done"], 0)
    assert not watch.is_memory_exceeded


def test_what_a_process_could_not_have_is_refused_to_it_before_it_takes_it(
    zygote: ForkServer, spec: Spec
) -> None:
    script = (("take", 4000 * MB), DONE)
    child = zygote.fork_child(spec(*script), 1000 * MB)
    assert _read_to_end(child) == (["error"], 1)
    free = zygote.fork_child(spec(("take", 100 * MB), DONE), 1000 * MB)
    assert _read_to_end(free) == (["done"], 0)


def test_the_memory_of_a_process_that_is_gone_cannot_be_told() -> None:
    assert read_anonymous_memory_bytes(2**22 + 1) is None
