import threading

import pytest
from sqlalchemy.exc import OperationalError

from tests.worker.conftest import LIMIT_S
from worker import recurring_tasks as worker_chores
from worker.recurring_tasks import PeriodicChores


def test_a_round_does_every_chore_in_order() -> None:
    done: list[str] = []
    chores = PeriodicChores(
        "chores", 10, {"a": lambda: done.append("a"), "b": lambda: done.append("b")}
    )
    chores.run_chores_once()
    chores.run_chores_once()
    assert done == ["a", "b", "a", "b"]


def test_a_chore_that_fails_stops_neither_the_others_nor_the_next_round() -> None:
    rounds: list[int] = []
    twice = threading.Event()

    def raise_operational_error() -> None:
        raise OperationalError("SELECT 1", None, Exception("no database"))

    def raise_zero_division() -> None:
        raise ZeroDivisionError

    def raise_timeout() -> None:
        raise TimeoutError  # without a word

    def count_round() -> None:
        rounds.append(1)
        if len(rounds) == 2:
            twice.set()

    chores = PeriodicChores(
        "chores",
        0.01,
        {
            "out": raise_operational_error,
            "broken": raise_zero_division,
            "silent": raise_timeout,
            "last": count_round,
        },
    )
    chores.start_chores_thread()
    assert twice.wait(LIMIT_S)
    chores.end_chores_thread()


def test_closing_waits_for_the_present_chore_and_begins_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_chores, "CLOSE_S", LIMIT_S)
    done: list[str] = []
    begun = threading.Event()

    def wait_until_closed() -> None:
        begun.set()
        assert chores.wait_within_chore(LIMIT_S)  # until it is closed
        done.append("slow")

    chores = PeriodicChores(
        "chores", 10, {"slow": wait_until_closed, "next": lambda: done.append("next")}
    )
    chores.start_chores_thread()
    assert begun.wait(LIMIT_S)
    chores.end_chores_thread()
    assert done == ["slow"]
