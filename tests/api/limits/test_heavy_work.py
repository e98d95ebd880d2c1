"""Heavy work has turns: a few at once, one of each owner, in threads of its own."""

import asyncio
import threading

import pytest

from api.limits.heavy_work import HeavyWorkQueue
from tests.api.overlap import PATIENCE_S, Overlap


def test_no_more_are_done_at_once_than_there_are_turns() -> None:
    busy = Overlap(2)

    async def run_six_work_items() -> list[str]:
        work = HeavyWorkQueue(2)
        asked = [
            work.run_work_in_turn(f"owner-{n}", lambda n=n: busy.work(str(n))) for n in range(6)
        ]  # type: ignore[misc]
        return list(await asyncio.gather(*asked))

    assert asyncio.run(run_six_work_items()) == [str(n) for n in range(6)]
    assert busy.most == 2


def test_of_an_owner_one_is_done_at_once_and_another_owner_is_not_behind_all_of_them() -> None:
    order: list[str] = []
    begun, released = threading.Event(), threading.Event()

    def do_greedy_work() -> None:
        order.append("greedy")
        begun.set()
        assert released.wait(PATIENCE_S)

    def do_modest_work() -> None:
        assert begun.wait(PATIENCE_S)  # the threads start in any order
        order.append("modest")

    async def run_greedy_and_modest_work() -> None:
        work = HeavyWorkQueue(2)
        started = [
            asyncio.create_task(work.run_work_in_turn("greedy", do_greedy_work)) for _ in range(6)
        ]
        await asyncio.sleep(0)
        await work.run_work_in_turn("modest", do_modest_work)
        assert order == ["greedy", "modest"]
        released.set()
        await asyncio.gather(*started)
        assert not work._turns._waiting

    asyncio.run(run_greedy_and_modest_work())


def test_an_error_is_raised_and_gives_the_turn_back() -> None:
    def raise_value_error() -> None:
        raise ValueError("broken")

    async def run_failing_then_good_work() -> str:
        work = HeavyWorkQueue(1)
        with pytest.raises(ValueError, match="broken"):
            await work.run_work_in_turn("one", raise_value_error)
        return await work.run_work_in_turn("one", lambda: "done")

    assert asyncio.run(run_failing_then_good_work()) == "done"
