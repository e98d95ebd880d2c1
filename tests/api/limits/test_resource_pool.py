"""Turns: fair between owners, in order within one, and never lost."""

import asyncio

import pytest

from api.limits.resource_pool import ResourcePool


async def take_turns(
    turns: ResourcePool[str], owner: str, log: list[str], name: str = "", *, pieces: int = 1
) -> None:
    """Take turns one after the other, each of which lasts until others have had time to ask."""
    for _ in range(pieces):
        async with turns.lend_resource_in_turn(owner):
            log.append(name or owner)
            for _ in range(5):
                await asyncio.sleep(0)


def test_one_owners_many_requests_cost_another_the_turn_under_way_at_most() -> None:
    log: list[str] = []

    async def take_greedy_and_modest_turns() -> None:
        turns = ResourcePool(["helper"])
        greedy = [asyncio.create_task(take_turns(turns, "a", log)) for _ in range(20)]
        await asyncio.sleep(0)
        modest = asyncio.create_task(take_turns(turns, "b", log, pieces=3))
        await asyncio.gather(*greedy, modest)

    asyncio.run(take_greedy_and_modest_turns())
    assert log[:7] == ["a", "b", "a", "b", "a", "b", "a"]


def test_an_owner_has_one_turn_at_a_time_though_more_are_free() -> None:
    log: list[str] = []

    async def take_turns_of_two_owners() -> None:
        turns = ResourcePool(["one", "two"])
        async with turns.lend_resource_in_turn("a"):
            waiting = asyncio.create_task(take_turns(turns, "a", log))
            await take_turns(turns, "b", log)
            await asyncio.sleep(0)
            assert log == ["b"] and not waiting.done()
        await waiting

    asyncio.run(take_turns_of_two_owners())
    assert log == ["b", "a"]


def test_an_owner_who_may_have_several_turns_has_what_nobody_else_waits_for() -> None:
    log: list[str] = []

    async def take_turns_while_both_are_held() -> None:
        turns = ResourcePool(["one", "two"], 2)
        async with turns.lend_resource_in_turn("a"), turns.lend_resource_in_turn("a"):
            waiting = [asyncio.create_task(take_turns(turns, "a", log)) for _ in range(3)]
            await asyncio.sleep(0)
            waiting.append(asyncio.create_task(take_turns(turns, "b", log)))
            await asyncio.sleep(0)
            assert log == []
        await asyncio.gather(*waiting)

    asyncio.run(take_turns_while_both_are_held())
    assert log[0] == "b" and log.count("a") == 3


def test_within_an_owner_the_order_is_that_of_arrival() -> None:
    log: list[str] = []

    async def take_numbered_turns() -> None:
        turns = ResourcePool(["helper"])
        await asyncio.gather(*[take_turns(turns, "a", log, str(number)) for number in range(9)])

    asyncio.run(take_numbered_turns())
    assert log == [str(number) for number in range(9)]


@pytest.mark.parametrize("lent", [False, True], ids=["waiting", "just lent"])
def test_a_turn_that_nobody_waits_for_any_more_goes_to_the_next(lent: bool) -> None:
    log: list[str] = []

    async def cancel_waiting_turn() -> None:
        turns = ResourcePool(["helper"])
        held = turns.lend_resource_in_turn("a")
        await held.__aenter__()
        gone = asyncio.create_task(take_turns(turns, "b", log, "gone"))
        await asyncio.sleep(0)
        if lent:
            await held.__aexit__(None, None, None)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        if not lent:
            await held.__aexit__(None, None, None)
        async with asyncio.timeout(60):
            await take_turns(turns, "c", log)

    asyncio.run(cancel_waiting_turn())
    assert log == ["c"]
