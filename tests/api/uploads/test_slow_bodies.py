"""Time limits of the body of an upload; waiting for the disk does not count."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from api.uploads.body import DoubleBufferedWriter, open_temporary_spool_file, stream_body_to_writer
from core.errors import BodyTimeout
from core.settings import Settings
from tests.api import virtual_time


def send_pieces_slowly(
    settings: Settings, pieces: list[bytes], pause_s: float, disk_s: float = 0.0
) -> int:
    """Send pieces, with a pause before each, and then nothing more. Return the number of bytes
    written.
    """
    sent = 0

    async def receive_piece_slowly() -> dict[str, Any]:
        nonlocal sent
        await asyncio.sleep(pause_s if sent < len(pieces) else 3600)
        sent += 1
        return {"type": "http.request", "body": pieces[sent - 1], "more_body": sent < len(pieces)}

    class SlowWriter(DoubleBufferedWriter):
        async def write(self, data: memoryview) -> None:
            await asyncio.sleep(disk_s)
            await super().buffer_bytes(data)

    async def write_body_to_spool() -> int:
        request = Request({"type": "http", "headers": []}, receive_piece_slowly)
        with open_temporary_spool_file(settings, 1 << 20) as file:
            await stream_body_to_writer(request, SlowWriter(file), None, 1 << 20, settings)
            return file.size

    return virtual_time.run_in_virtual_time(write_body_to_spool())


@pytest.fixture
def limited(settings: Settings) -> Settings:
    return settings.model_copy(update={"upload_idle_s": 10.0, "upload_min_rate": 1000})


def test_a_body_that_pauses_for_less_than_the_limit_comes_whole(limited: Settings) -> None:
    assert send_pieces_slowly(limited, [b"x" * 20_000] * 5, pause_s=9) == 100_000


def test_a_client_that_stops_sending_is_disconnected(limited: Settings) -> None:
    with pytest.raises(BodyTimeout, match=r"Nothing of the body came for 10 s\."):
        send_pieces_slowly(limited, [b"x" * 100_000, b"x"], pause_s=11)
    assert not list(limited.make_folder("spool").iterdir())


def test_a_client_that_sends_too_slowly_is_disconnected(limited: Settings) -> None:
    with pytest.raises(BodyTimeout, match="less than 1000 bytes/s"):
        send_pieces_slowly(limited, [b"x"] * 100, pause_s=1)
    assert not list(limited.make_folder("spool").iterdir())


def test_a_slow_disk_disconnects_no_client(limited: Settings) -> None:
    assert send_pieces_slowly(limited, [b"x" * 100_000] * 2, pause_s=1, disk_s=60) == 200_000
