"""Without a terminal: lines on standard error while a command waits, so that a log shows that it lives."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from perennial.bars import state, told, why_waiting
from perennial.cli.output import complain
from perennial.text import one_line
from perennial.words import duration

if TYPE_CHECKING:
    from perennial.types import Job

EVERY_S = 15.0
"""Seconds of silence at most."""


class Beat:
    """Repeats what was told last as long as nothing else is told; use it with `with`."""

    def __init__(self) -> None:
        self._text = ""
        self._changed = threading.Condition()
        self._is_over = False
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._thread.join()

    def tell(self, text: str, *, now: bool) -> None:
        """Keep a text for the next line. now: write it at once."""
        with self._changed:
            self._text = text
            if now:
                complain(text)
                self._changed.notify()  # the silence begins again

    def _repeat(self) -> None:
        with self._changed:
            while not self._is_over:
                was_told = self._changed.wait(EVERY_S)
                if not was_told and self._text:
                    complain(self._text)


class JobLines(Beat):
    """A line at each change of state or phase, and one every 15 seconds in between, with the share that is done."""

    def __init__(self) -> None:
        super().__init__()
        self._last = ""
        self._line = ""

    def __call__(self, job: Job) -> None:
        now = state(job)
        why = why_waiting(job)
        self._line = one_line(f"{job.id} {told(job)}")
        self.tell(
            one_line(f"{self._line}: {why}") if why and now != self._last else self._line,
            now=now != self._last,
        )
        self._last = now

    def away(self, seconds: float) -> None:
        """Keep that the service has not answered for some time."""
        self.tell(f"{self._line}; the service has not answered for {duration(seconds)}", now=False)


class SentLines(Beat):
    """A line every 15 seconds of a transfer."""

    def __init__(self) -> None:
        super().__init__()
        self._text = "The batch is being read."

    def __call__(self, done: int, total: int) -> None:
        share = f"{done / total:.0%}" if total else "100%"
        looks = "; the service looks at it" if done >= total else ""
        self.tell(f"{share} of {total / 1e6:,.1f} MB sent{looks}", now=False)
