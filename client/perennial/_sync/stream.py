"""Events as they happen: a stream that is taken up again where it broke."""

from __future__ import annotations

from collections.abc import Iterator, Callable
from typing import Any

from perennial._sync.http import Ask, Http
from perennial._sync.waiting import sleep
from perennial.errors import PerennialError
from perennial.events import Lines, Parser

SILENCE_S = 60.0
"""The service says every 15 seconds that it is there."""
NOTHING_MORE = 204
MAX_STREAM_BYTES = 64 << 20
"""Of one connection: a stream that brings more is asked for again, after its last event."""
AGAIN_S = 0.5
"""A stream ends by itself after some minutes, or because the service stops."""


def followed(
    http: Http,
    path: str,
    params: dict[str, str | None],
    after: int | None,
    is_over: Callable[[], bool],
) -> Iterator[Any]:
    """What a stream sends after the event `after` (None: from where it begins), as JSON, until it is over.

    Args:
        is_over: asked when the stream ends with nothing new: whether nothing more will come.
    """
    failures = 0
    while True:
        parser, lines, seen, is_last, size = Parser(), Lines(), after, False, 0
        pause = AGAIN_S
        try:
            headers = {
                "Accept": "text/event-stream",
                "Accept-Encoding": "identity",
                **({} if after is None else {"Last-Event-ID": str(after)}),
            }
            with http.stream(Ask("GET", path, params, headers=headers, timeout_s=SILENCE_S)) as answer:
                is_last = answer.status_code == NOTHING_MORE
                for chunk in answer.iter_bytes():
                    for line in lines.take(chunk):
                        sent = parser.take(line)
                        if sent is None or _is_old(sent.id, after):
                            continue
                        failures = 0
                        after = after if sent.id is None else sent.id
                        yield sent.data
                    size += len(chunk)
                    if size > MAX_STREAM_BYTES:
                        break
        except PerennialError as error:
            failures += 1
            asked = http.retries.pause_s(error, failures, is_replayable=True)
            if asked is None:
                raise
            pause = asked
        else:
            if is_last or (after == seen and is_over()):
                return
        sleep(pause)


def _is_old(number: int | None, after: int | None) -> bool:
    """Tell if an event came before: a stream that repeats itself would never end."""
    return number is not None and after is not None and number <= after
