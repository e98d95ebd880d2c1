import threading
import time

from sqlalchemy.exc import OperationalError

from worker.chores import Chores


def test_a_round_does_every_chore_in_order() -> None:
    done: list[str] = []
    chores = Chores("chores", 10, {"a": lambda: done.append("a"), "b": lambda: done.append("b")})
    chores.round()
    chores.round()
    assert done == ["a", "b", "a", "b"]


def test_a_chore_that_fails_stops_neither_the_others_nor_the_next_round() -> None:
    done: list[str] = []

    def out() -> None:
        raise OperationalError("SELECT 1", None, Exception("no database"))

    def broken() -> None:
        raise ZeroDivisionError

    def silent() -> None:
        raise TimeoutError  # without a word

    rounds = {"out": out, "broken": broken, "silent": silent, "a": lambda: done.append("a")}
    chores = Chores("chores", 0.01, rounds)
    chores.start()
    end = time.monotonic() + 10
    while len(done) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    chores.close()
    assert len(done) >= 2


def test_closing_waits_for_the_present_chore_and_begins_no_other() -> None:
    done: list[str] = []
    begun = threading.Event()

    def slow() -> None:
        begun.set()
        time.sleep(0.3)
        done.append("slow")

    chores = Chores("chores", 10, {"slow": slow, "next": lambda: done.append("next")})
    chores.start()
    assert begun.wait(10)
    chores.close()
    assert done == ["slow"]
