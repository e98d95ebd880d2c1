"""The lineage of a model as a property test, with any order of requests and outcomes.

Planted bugs must be found.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import and_, select
from sqlalchemy.orm import aliased

from core.database.jobs import build_unfinished_job_condition
from core.database.tables import Job
from core.lineage import judgement
from core.lineage.coverage import MissingTasksAndClasses
from core.scheduling import claim as claims
from core.scheduling import eligible
from core.versions import aliases
from tests.core.scheduling.lineage_machine import Line

STEPS = int(os.environ.get("PERENNIAL_TEST_LINE_STEPS", "60"))
"""Number of steps in all, with 30 in an example.

If it is larger than the default, the examples are drawn differently each time.
"""
SETTINGS = settings(
    max_examples=max(1, STEPS // 30),
    stateful_step_count=30,
    deadline=None,
    database=None,
    derandomize=STEPS == 60,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def machine(desk: Any) -> Callable[[], Line]:
    def make_line() -> Line:
        made = Line()
        made.desk = desk
        return made

    return make_line


@pytest.mark.slow
def test_no_order_of_requests_and_endings_loses_a_task_unsaid_or_stops_a_line_for_ever(
    machine: Callable[[], Line],
) -> None:
    run_state_machine_as_test(machine, settings=SETTINGS)


def allow_claim_by_place() -> Any:
    """Build the condition of a planted bug.

    With it, tasks that are learned again wait at the end of the lineage, like all others.
    """
    other = aliased(Job)
    earlier = select(other.id).where(
        other.model_id == Job.model_id,
        other.place < Job.place,
        build_unfinished_job_condition(other.state),
    )
    return and_(
        Job.state == "queued",
        ~earlier.exists(),
        ~eligible.build_stopped_lineage_condition(Job.model_id),
    )


PLANTED: dict[str, tuple[tuple[Any, str, Any], int]] = {
    "a gate without coverage": (
        (
            judgement,
            "find_lacking_required_tasks_and_classes",
            lambda *_, **__: MissingTasksAndClasses(),
        ),
        4,
    ),
    "a rollback to a version that cannot answer": (
        (aliases, "list_taught_tasks", lambda _manifest: [0]),
        3,
    ),
    "a retry at the end of the line": (
        (claims, "build_claimable_job_condition", allow_claim_by_place),
        3,
    ),
}
"""Bug → what is replaced, and a seed with which an early example finds it."""


@pytest.mark.campaign
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)  # the bugs are in no SQL
@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(
    machine: Callable[[], Line], monkeypatch: pytest.MonkeyPatch, bug: str
) -> None:
    planted, early = PLANTED[bug]
    monkeypatch.setattr(*planted)
    enough = settings(SETTINGS, max_examples=300, phases=[Phase.generate], derandomize=False)
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(seed(early)(machine), settings=enough)
