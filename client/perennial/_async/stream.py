"""Events as they happen: a stream that is taken up again where it broke."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from perennial._async.http import Ask, AsyncHttp
from perennial._async.waiting import sleep
from perennial.errors import PerennialError
from perennial.events import Parser

SILENCE_S = 60.0
"""The service says every 15 seconds that it is there."""
NOTHING_MORE = 204
AGAIN_S = 0.5
"""A stream ends by itself after some minutes, or because the service stops."""


async def followed(
    http: AsyncHttp,
    path: str,
    params: dict[str, str | None],
    after: int | None,
    is_over: Callable[[], Awaitable[bool]],
) -> AsyncIterator[Any]:
    """What a stream sends after the event `after` (None: from where it begins), as JSON, until it is over.

    Args:
        is_over: asked when the stream ends with nothing new: whether nothing more will come.
    """
    failures = 0
    while True:
        parser, seen, is_last = Parser(), after, False
        pause = AGAIN_S
        try:
            headers = {
                "Accept": "text/event-stream",
                **({} if after is None else {"Last-Event-ID": str(after)}),
            }
            async with http.stream(Ask("GET", path, params, headers=headers, timeout_s=SILENCE_S)) as answer:
                is_last = answer.status_code == NOTHING_MORE
                async for line in answer.aiter_lines():
                    sent = parser.take(line)
                    if sent is not None:
                        failures = 0
                        after = int(sent.id) if sent.id.isdigit() else after
                        yield sent.data
        except PerennialError as error:
            failures += 1
            asked = http.retries.pause_s(error, failures, is_replayable=True)
            if asked is None:
                raise
            pause = asked
        else:
            if is_last or (after == seen and await is_over()):
                return
        await sleep(pause)
