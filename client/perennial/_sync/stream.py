"""Event streams that are resumed after an interruption."""

from __future__ import annotations

from collections.abc import Iterator, Callable
from typing import Any

from perennial._sync.http import ApiRequest, Http
from perennial._sync.waiting import sleep_seconds
from perennial.errors import PerennialError
from perennial.events import EventStreamParser, TextLineSplitter

SILENCE_S = 60.0
"""Timeout of a silent stream; the service sends a sign of life every 15 seconds."""
# By the standard of server-sent events, 204 ends a stream for good.
NOTHING_MORE = 204
MAX_STREAM_BYTES = 64 << 20
"""Maximum bytes per connection; a longer stream is reconnected after its last event."""
AGAIN_S = 0.5
"""Seconds before reconnecting to a stream that the service has ended, as it does after some
minutes.
"""


def follow_events(
    http: Http,
    path: str,
    params: dict[str, str | None],
    after: int | None,
    is_over: Callable[[], bool],
) -> Iterator[Any]:
    """Yield events of a server-sent event stream until it is over, reconnecting as necessary.

    Args:
        after: resume after this event; None: from the stream's beginning.
        is_over: called when the stream ends without new events; returns True if no more will
            follow.
    """
    failures = 0
    while True:
        # New for each connection: half an event must not be joined to the next connection's bytes.
        parser, line_splitter, after_before, is_last, size = (
            EventStreamParser(),
            TextLineSplitter(),
            after,
            False,
            0,
        )
        pause = AGAIN_S
        try:
            headers = {
                "Accept": "text/event-stream",
                # Uncompressed, so that the limit on received bytes also bounds the text held.
                "Accept-Encoding": "identity",
                **({} if after is None else {"Last-Event-ID": str(after)}),
            }
            with http.stream(
                ApiRequest("GET", path, params, headers=headers, timeout_s=SILENCE_S)
            ) as response:
                is_last = response.status_code == NOTHING_MORE
                for chunk in response.iter_bytes():
                    for text_line in line_splitter.split_into_lines(chunk):
                        event = parser.parse_stream_line(text_line)
                        if event is None or _is_already_received_event(event.id, after):
                            continue
                        # An event shows that the service works, so only failures in a row count.
                        failures = 0
                        after = after if event.id is None else event.id
                        yield event.data
                    size += len(chunk)
                    if size > MAX_STREAM_BYTES:
                        break
        except PerennialError as error:
            failures += 1
            retry_pause = http.retries.compute_pause_seconds(error, failures, is_replayable=True)
            if retry_pause is None:
                raise
            pause = retry_pause
        else:
            # A stream that brought events may have more, and asking costs a request.
            if is_last or (after == after_before and is_over()):
                return
        sleep_seconds(pause)


def _is_already_received_event(number: int | None, after: int | None) -> bool:
    """Return True if an event was received before; a stream that repeats events would never end."""
    return number is not None and after is not None and number <= after
