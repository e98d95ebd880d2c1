"""Bodies of predictions count as they come and must keep coming; answers count until they have been
taken.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from api.predict.body import PIECE_BYTES, SlotHoldingJsonResponse, read_predict_body_within_limits
from api.predict.concurrency import PredictConcurrencyLimiter
from core.errors import BodyTimeout, BodyTooLarge, BodyTruncated, TooManyRequests, Unavailable
from core.settings import Settings
from tests.api import virtual_time

LIMITS = {"predict_owner_bytes": 100, "predict_bytes": 150, "predict_owner_requests": 3}
SETTINGS = Settings(upload_idle_s=10, upload_min_rate=100, **LIMITS)


class Sender:
    """A client that sends pieces, each after some seconds, and then nothing for ever."""

    def __init__(self, *pieces: bytes, pause_s: float = 0.0, ends: bool = True) -> None:
        self.pieces, self.pause_s, self.ends = list(pieces), pause_s, ends

    async def __call__(self) -> dict[str, Any]:
        if not self.pieces:
            await asyncio.sleep(3600)
        await asyncio.sleep(self.pause_s)
        body = self.pieces.pop(0)
        return {
            "type": "http.request",
            "body": body,
            "more_body": bool(self.pieces) or not self.ends,
        }


def read_body_in_virtual_time(
    line: PredictConcurrencyLimiter,
    sender: Sender,
    most: int = 90,
    declared: int | None = None,
    settings: Settings = SETTINGS,
) -> bytearray:
    async def read_body() -> bytearray:
        return await read_predict_body_within_limits(
            sender, line.acquire_predict_slot("a"), most, declared, settings
        )

    return virtual_time.run_in_virtual_time(read_body())


def test_a_body_is_counted_as_it_comes_and_not_as_it_is_announced() -> None:
    line = PredictConcurrencyLimiter(SETTINGS)
    with pytest.raises(BodyTimeout, match=r"Nothing of the body came for 10 s"):
        read_body_in_virtual_time(line, Sender(b"x" * 10, ends=False), declared=90)
    assert line.bytes["a"] == 10
    assert (
        read_body_in_virtual_time(line, Sender(b"x" * 50, b"y" * 10), declared=60)
        == b"x" * 50 + b"y" * 10
    )
    assert line.bytes["a"] == 70


def test_a_body_in_drops_is_ended_though_none_of_its_pauses_is_long() -> None:
    line = PredictConcurrencyLimiter(SETTINGS)
    with pytest.raises(BodyTimeout, match="less than 100 bytes/s"):
        read_body_in_virtual_time(line, Sender(*[b"x"] * 80, pause_s=0.9))
    assert line.bytes["a"] == 12  # until the first beyond ten seconds


@pytest.mark.parametrize(
    ("pieces", "declared", "error"),
    [([b"x" * 91], None, BodyTooLarge), ([b""], 91, BodyTooLarge), ([b"x"], 2, BodyTruncated)],
)
def test_a_body_of_another_length_is_refused(
    pieces: Sequence[bytes], declared: int | None, error: type[Exception]
) -> None:
    with pytest.raises(error):
        read_body_in_virtual_time(
            PredictConcurrencyLimiter(SETTINGS), Sender(*pieces), declared=declared
        )


def test_bytes_beyond_the_owners_are_his_429_and_beyond_all_a_503() -> None:
    line = PredictConcurrencyLimiter(SETTINGS)
    for _ in range(2):
        line.acquire_predict_slot("a").reserve_request_bytes(50)
    with pytest.raises(
        TooManyRequests, match="hold 100 bytes of images and answers, and an owner may have 100"
    ):
        line.acquire_predict_slot("a").reserve_request_bytes(1)
    line.acquire_predict_slot("b").reserve_request_bytes(50)
    with pytest.raises(Unavailable):
        line.acquire_predict_slot("b").reserve_request_bytes(1)


def test_places_beyond_the_owners_are_refused_and_one_that_is_left_is_free_again() -> None:
    line = PredictConcurrencyLimiter(SETTINGS)
    places = [line.acquire_predict_slot("a") for _ in range(3)]
    with pytest.raises(TooManyRequests):
        line.acquire_predict_slot("a")
    places[0].release_predict_slot()
    places[0].release_predict_slot()
    line.acquire_predict_slot("a")
    line.acquire_predict_slot("b")
    assert line.requests == {"a": 3, "b": 1}


def test_an_answer_is_counted_until_the_client_has_taken_it() -> None:
    line = PredictConcurrencyLimiter(Settings())
    sent: list[int] = []

    async def send_response_to_slow_client() -> None:
        place = line.acquire_predict_slot("a")
        place.reserve_request_bytes(7)
        place.replace_request_bytes_by_response_bytes(3 * PIECE_BYTES)
        free = asyncio.Event()

        async def accept_message_when_free(message: dict[str, Any]) -> None:
            if len(sent) == 2:
                await free.wait()
            sent.append(len(message.get("body", b"")))

        answer = SlotHoldingJsonResponse(bytes(3 * PIECE_BYTES), place, Settings())
        sending = asyncio.create_task(answer({}, None, accept_message_when_free))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        assert line.bytes["a"] == 3 * PIECE_BYTES and line.requests["a"] == 1
        free.set()
        await sending

    virtual_time.run_in_virtual_time(send_response_to_slow_client())
    assert sent == [0, *[PIECE_BYTES] * 3, 0]
    assert not line.bytes and not line.requests


def test_a_client_that_takes_nothing_is_given_up() -> None:
    line = PredictConcurrencyLimiter(SETTINGS)

    async def accept_nothing(message: dict[str, Any]) -> None:
        await asyncio.sleep(36_000)

    async def send_response_to_idle_client() -> None:
        place = line.acquire_predict_slot("a")
        place.replace_request_bytes_by_response_bytes(9)
        answer = SlotHoldingJsonResponse(b"x" * 9, place, SETTINGS)
        with pytest.raises(ClientDisconnect):
            await answer({}, None, accept_nothing)  # type: ignore[arg-type]

    virtual_time.run_in_virtual_time(send_response_to_idle_client())
    assert not line.bytes and not line.requests
