"""Heavy work has turns: a few at once, one of each owner, in threads of its own."""

import asyncio
import threading
import time

import pytest

from api.heavy_work import HeavyWork


class Busy:
    """Work that takes a moment, and how many did it at once."""

    def __init__(self) -> None:
        self.now, self.most = 0, 0
        self.order: list[str] = []
        self._lock = threading.Lock()

    def work(self, name: str) -> str:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.order.append(name)
        time.sleep(0.05)
        with self._lock:
            self.now -= 1
        return name


def test_no_more_are_done_at_once_than_there_are_turns() -> None:
    busy = Busy()

    async def main() -> list[str]:
        work = HeavyWork(2)
        asked = [work.run(f"owner-{n}", lambda n=n: busy.work(str(n))) for n in range(6)]  # type: ignore[misc]
        return list(await asyncio.gather(*asked))

    assert asyncio.run(main()) == [str(n) for n in range(6)]
    assert busy.most == 2


def test_of_an_owner_one_is_done_at_once_and_another_owner_is_not_behind_all_of_them() -> None:
    busy = Busy()

    async def main() -> None:
        work = HeavyWork(2)
        greedy = [work.run("greedy", lambda: busy.work("greedy")) for _ in range(6)]
        started = [asyncio.create_task(one) for one in greedy]
        await asyncio.sleep(0.01)
        await work.run("modest", lambda: busy.work("modest"))
        assert busy.order.index("modest") <= 2
        await asyncio.gather(*started)
        assert not work._turns._waiting

    asyncio.run(main())
    assert busy.most == 2


def test_an_error_is_raised_and_gives_the_turn_back() -> None:
    def fail() -> None:
        raise ValueError("broken")

    async def main() -> str:
        work = HeavyWork(1)
        with pytest.raises(ValueError, match="broken"):
            await work.run("one", fail)
        return await work.run("one", lambda: "done")

    assert asyncio.run(main()) == "done"
