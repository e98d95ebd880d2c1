import threading
import time
from pathlib import Path

from sqlalchemy.exc import OperationalError

from worker.chores import ALIVE, Chores


def test_a_round_does_every_chore_and_touches_the_health_file(tmp_path: Path) -> None:
    done: list[str] = []
    chores = Chores(
        tmp_path,
        10,
        {"a": lambda: done.append("a"), "b": lambda: done.append("b")},
        {"s": lambda: done.append("s")},
    )
    chores.round()
    assert done == ["a", "b", "s"]
    assert (tmp_path / ALIVE).exists()


def test_sweeps_are_rarer_than_rounds(tmp_path: Path) -> None:
    done: list[str] = []
    chores = Chores(tmp_path, 0.01, {"a": lambda: done.append("a")}, {"s": lambda: done.append("s")})
    for _ in range(5):
        chores.round()
    assert done.count("s") == 1
    assert done.count("a") == 5


def test_a_chore_that_fails_stops_neither_the_others_nor_the_next_round(tmp_path: Path) -> None:
    done: list[str] = []

    def out() -> None:
        raise OperationalError("SELECT 1", None, Exception("no database"))

    def broken() -> None:
        raise ZeroDivisionError

    def silent() -> None:
        raise TimeoutError  # without a word

    rounds = {"out": out, "broken": broken, "silent": silent, "a": lambda: done.append("a")}
    chores = Chores(tmp_path, 0.01, rounds, {})
    chores.start()
    end = time.monotonic() + 10
    while len(done) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    chores.close()
    assert len(done) >= 2


def test_closing_waits_for_the_round(tmp_path: Path) -> None:
    done: list[str] = []
    begun = threading.Event()

    def slow() -> None:
        begun.set()
        time.sleep(0.3)
        done.append("slow")

    chores = Chores(tmp_path, 10, {"slow": slow}, {})
    chores.start()
    assert begun.wait(10)
    chores.close()
    assert done == ["slow"]
