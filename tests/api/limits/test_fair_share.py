"""An owner's share of an API process: slots, waiting, and what a request holds none for."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.testclient import TestClient

from api.limits import fair_share
from api.limits.fair_share import FairRequestSlots, RequestSlotHolder
from core.models import models
from core.settings import Settings
from tests.api.conftest import KeyOf
from tests.api.overlap import Overlap

Scene = Callable[[FairRequestSlots], Awaitable[None]]


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the shares read, which moves only where a test moves it."""
    now = [10_000.0]
    monkeypatch.setattr(fair_share, "monotonic", lambda: now[0])
    return now


def run_scene(scene: Scene, shared: int = 1, alone: int = 3) -> None:
    asyncio.run(
        scene(FairRequestSlots(Settings(owner_requests_shared=shared, owner_requests_alone=alone)))
    )


async def settle_event_loop() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def start_waiting_for_slots(
    share: FairRequestSlots, owner: str, times: int
) -> list["asyncio.Task[None]"]:
    tasks = [asyncio.create_task(share.acquire_owner_slot(owner)) for _ in range(times)]
    await settle_event_loop()
    return tasks


def count_admitted(tasks: list["asyncio.Task[None]"]) -> int:
    return sum(task.done() for task in tasks)


def test_who_is_alone_has_many_slots_and_the_rest_waits_for_one() -> None:
    async def run_scenario(share: FairRequestSlots) -> None:
        tasks = await start_waiting_for_slots(share, "a", 5)
        assert count_admitted(tasks) == 3
        share.release_owner_slot("a")
        await settle_event_loop()
        assert count_admitted(tasks) == 4

    run_scene(run_scenario)


def test_while_another_asks_an_owner_has_its_shared_slots_only() -> None:
    async def run_scenario(share: FairRequestSlots) -> None:
        await start_waiting_for_slots(share, "b", 1)
        tasks = await start_waiting_for_slots(share, "a", 4)
        assert count_admitted(tasks) == 1

    run_scene(run_scenario)


def test_another_owner_never_waits_for_one_that_has_filled_its_slots() -> None:
    async def run_scenario(share: FairRequestSlots) -> None:
        await start_waiting_for_slots(share, "a", 50)
        assert count_admitted(await start_waiting_for_slots(share, "b", 1)) == 1

    run_scene(run_scenario)


def test_slots_beyond_the_share_are_not_filled_again_once_another_has_come() -> None:
    async def run_scenario(share: FairRequestSlots) -> None:
        tasks = await start_waiting_for_slots(share, "a", 6)
        await start_waiting_for_slots(share, "b", 1)
        share.release_owner_slot("a")
        share.release_owner_slot("a")
        await settle_event_loop()
        assert count_admitted(tasks) == 3  # one still works, so none of the others begins
        share.release_owner_slot("a")
        await settle_event_loop()
        assert count_admitted(tasks) == 4

    run_scene(run_scenario)


def test_once_the_other_is_quiet_all_slots_are_there_again(now: list[float]) -> None:
    async def run_scenario(share: FairRequestSlots) -> None:
        await start_waiting_for_slots(share, "b", 1)
        share.release_owner_slot("b")
        tasks = await start_waiting_for_slots(share, "a", 6)
        assert count_admitted(tasks) == 1
        now[0] += fair_share.SHARED_S + 0.01
        share.release_owner_slot("a")
        await settle_event_loop()
        assert count_admitted(tasks) == 4

    run_scene(run_scenario)


def test_requests_of_an_owner_are_worked_on_in_the_order_of_their_coming() -> None:
    async def run_scenario(share: FairRequestSlots) -> None:
        order: list[int] = []

        async def record_request_order(number: int) -> None:
            await share.acquire_owner_slot("a")
            order.append(number)
            share.release_owner_slot("a")

        await share.acquire_owner_slot("a")
        tasks = [asyncio.create_task(record_request_order(number)) for number in range(9)]
        await settle_event_loop()
        share.release_owner_slot("a")
        await asyncio.gather(*tasks)
        assert order == list(range(9))

    run_scene(run_scenario, alone=1)


def test_a_request_that_is_given_up_while_it_waits_leaves_no_gap() -> None:
    async def run_scenario(share: FairRequestSlots) -> None:
        await share.acquire_owner_slot("a")
        gone, waits = await start_waiting_for_slots(share, "a", 2)
        gone.cancel()
        await settle_event_loop()
        share.release_owner_slot("a")
        await settle_event_loop()
        assert waits.done()
        share.release_owner_slot("a")
        assert count_admitted(await start_waiting_for_slots(share, "a", 1)) == 1

    run_scene(run_scenario, alone=1)


def test_a_request_that_is_given_up_when_its_slot_has_just_come_gives_it_on() -> None:
    async def run_scenario(share: FairRequestSlots) -> None:
        await share.acquire_owner_slot("a")
        gone, waits = await start_waiting_for_slots(share, "a", 2)
        share.release_owner_slot("a")  # the slot is `gone`'s, which has not noticed
        gone.cancel()
        await settle_event_loop()
        assert waits.done()

    run_scene(run_scenario, alone=1)


def test_a_request_holds_no_slot_while_it_pauses() -> None:
    async def run_scenario(share: FairRequestSlots) -> None:
        working = RequestSlotHolder(share, "a")
        await working.acquire_request_slot()
        fair_share.release_request_slot_before_wait()
        fair_share.release_request_slot_before_wait()
        (other,) = await start_waiting_for_slots(share, "a", 1)
        assert other.done()
        again = asyncio.create_task(fair_share.reacquire_request_slot_after_wait())
        await settle_event_loop()
        assert not again.done()
        share.release_owner_slot("a")
        await again

    run_scene(run_scenario, alone=1)


def test_a_request_that_takes_long_holds_its_slot_for_a_part_of_it() -> None:
    async def run_scenario(share: FairRequestSlots) -> None:
        loop, timers = asyncio.get_running_loop(), list[tuple[float, Callable[[], None]]]()
        call_later = loop.call_later

        def keep_timer(seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
            timers.append((seconds, callback))
            return call_later(1000, callback)

        loop.call_later = keep_timer  # type: ignore[method-assign, assignment]
        await RequestSlotHolder(share, "a").acquire_request_slot()
        (other,) = await start_waiting_for_slots(share, "a", 1)
        assert not other.done()
        ((seconds, end),) = timers
        assert seconds == fair_share.HOLD_S
        end()
        await settle_event_loop()
        assert other.done()

    run_scene(run_scenario, alone=1)


def test_nothing_is_kept_of_owners_who_have_gone() -> None:
    async def run_scenario(share: FairRequestSlots) -> None:
        for number in range(1000):
            await share.acquire_owner_slot(str(number))
            share.release_owner_slot(str(number))
        assert not share._held and not share._waiting

    run_scene(run_scenario)


# Over HTTP


@pytest.fixture
def lists_meet(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Overlap]:
    """Makes lists of models wait until so many are made at once, in slots that are kept however
    long it takes.
    """

    def make_lists_overlap(least: int) -> Overlap:
        monkeypatch.setattr(fair_share, "HOLD_S", 1000.0)
        monkeypatch.setattr(fair_share, "SHARED_S", 1000.0)
        overlap = Overlap(least)

        def list_models(*_: object, **__: object) -> dict[str, object]:
            overlap.work()
            return {"items": [], "next_cursor": None}

        monkeypatch.setattr(models, "list_models", list_models)
        return overlap

    return make_lists_overlap


def request_lists_in_parallel(client: TestClient, key: dict[str, str], times: int) -> list[int]:
    with ThreadPoolExecutor(times) as threads:
        asked = [threads.submit(client.get, "/v1/models", headers=key) for _ in range(times)]
        return [one.result().status_code for one in asked]


def test_a_lone_owners_requests_are_worked_on_side_by_side(
    client: TestClient, key_of: KeyOf, lists_meet: Callable[[int], Overlap]
) -> None:
    made = lists_meet(2)
    assert request_lists_in_parallel(client, key_of("a"), 6) == [200] * 6
    assert made.most > 1


def test_beside_another_owner_one_request_is_worked_on_at_once_and_all_are_answered(
    client: TestClient, key_of: KeyOf, lists_meet: Callable[[int], Overlap]
) -> None:
    mine, other = key_of("a"), key_of("b")
    made = lists_meet(1)
    assert client.get("/v1/jobs", headers=other).status_code == 200
    assert request_lists_in_parallel(client, mine, 6) == [200] * 6
    assert made.most == 1


def test_an_error_gives_its_slot_back(client: TestClient, key_of: KeyOf) -> None:
    mine, other = key_of("a"), key_of("b")
    assert client.get("/v1/jobs", headers=other).status_code == 200
    for path in ("/v1/models/nothing", "/v1/jobs?limit=x", "/v1/jobs/job_0"):
        assert client.get(path, headers=mine).status_code in (404, 422)
    assert client.get("/v1/models", headers=mine).status_code == 200
