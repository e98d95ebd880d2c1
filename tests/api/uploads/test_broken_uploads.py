"""Uploads whose clients leave in the middle: nothing of them stays in the process, and none of
their memory in malloc's heap."""

import gc
import logging
import mmap
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.api.conftest import create_model

WARM_UP = 20
UPLOADS = 60
MANY_UPLOADS = 600


@pytest.fixture
def break_off(client: TestClient, caplog: pytest.LogCaptureFixture) -> Callable[[int], None]:
    """Sends so many uploads of 10 MB, one after another, and leaves each after 300 kB."""
    caplog.set_level(logging.ERROR)  # pytest keeps every line
    create_model(client)
    headers = [
        (b"authorization", client.headers["Authorization"].encode()),
        (b"content-length", b"10000000"),
    ]
    path = "/v1/models/birds/tasks"
    statuses: list[int] = []

    async def send_incomplete_upload() -> None:
        chunks: Iterator[dict[str, Any]] = iter(
            [{"type": "http.request", "body": b"PK\x03\x04" + bytes(300_000), "more_body": True}]
        )

        async def receive_chunk() -> dict[str, Any]:
            return next(chunks, {"type": "http.disconnect"})

        async def record_status(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
            "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
        }  # fmt: skip
        await client.app(scope, receive_chunk, record_status)

    def break_off_uploads(count: int) -> None:
        assert client.portal is not None
        statuses.clear()
        for _ in range(count):
            client.portal.call(send_incomplete_upload)
        assert statuses == [400] * count

    return break_off_uploads


@pytest.mark.slow
def test_uploads_that_break_off_leave_no_objects(break_off: Callable[[int], None]) -> None:
    def count_objects_after_uploads(count: int) -> int:
        break_off(count)
        gc.collect()
        return len(gc.get_objects())

    # So many that the hundred cancelled timers do not matter which asyncio keeps and drops
    # together.
    before = count_objects_after_uploads(WARM_UP)
    assert count_objects_after_uploads(MANY_UPLOADS) - before < MANY_UPLOADS  # not one of each


def test_the_buffers_of_an_upload_are_no_part_of_the_heap(break_off: Callable[[int], None]) -> None:
    break_off(WARM_UP)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        break_off(1)
        most = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert most < 1 << 20


def test_the_buffers_of_an_upload_are_given_back_without_a_garbage_collection(
    break_off: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[weakref.ref[mmap.mmap]] = []

    class Pages(mmap.mmap):
        def __init__(self, *_: Any) -> None:
            pages.append(weakref.ref(self))

    monkeypatch.setattr("api.uploads.body.mmap.mmap", Pages)
    gc.disable()
    try:
        break_off(UPLOADS)
    finally:
        gc.enable()
    assert len(pages) == 2 * UPLOADS
    assert sum(page() is not None for page in pages) == 0
