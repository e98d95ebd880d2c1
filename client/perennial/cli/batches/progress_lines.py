"""Progress lines on standard error without a terminal, so that a log shows that a command is
alive."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from perennial.bars import describe_job_progress, describe_job_state, explain_waiting_job
from perennial.cli.output import print_notice
from perennial.text import make_text_one_line
from perennial.words import format_duration

if TYPE_CHECKING:
    from perennial.types import Job

EVERY_S = 15.0
"""Longest silence between two lines, in seconds."""


class StatusRepeater:
    """Context manager that prints the latest status line again after each silent interval."""

    def __init__(self) -> None:
        self._text = ""
        self._changed = threading.Condition()
        self._is_over = False
        self._thread = threading.Thread(target=self._repeat_status_text, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()
        # Joined, so that no line is printed after the block has ended.
        self._thread.join()

    def update_status_text(self, text: str, *, now: bool) -> None:
        """Set the status line to print at the next interval; `now` prints it at once."""
        with self._changed:
            self._text = text
            if now:
                # Within the lock, so that the thread cannot print an older text after this one.
                print_notice(text)
                self._changed.notify()  # restart the silence interval

    def _repeat_status_text(self) -> None:
        with self._changed:
            while not self._is_over:
                was_told = self._changed.wait(EVERY_S)
                if not was_told and self._text:
                    print_notice(self._text)


class JobStatusLines(StatusRepeater):
    """Prints a job's progress as lines: at each change of state, and every 15 seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._last = ""
        self._line = ""

    def __call__(self, job: Job) -> None:
        now = describe_job_state(job)
        why = explain_waiting_job(job)
        self._line = make_text_one_line(f"{job.id} {describe_job_progress(job)}")
        self.update_status_text(
            make_text_one_line(f"{self._line}: {why}") if why and now != self._last else self._line,
            now=now != self._last,
        )
        self._last = now

    def show_service_outage(self, seconds: float) -> None:
        """Add to the job's status line that the service has not answered for `seconds`."""
        self.update_status_text(
            f"{self._line}; the service has not answered for {format_duration(seconds)}", now=False
        )


class TransferStatusLines(StatusRepeater):
    """Prints the progress of an upload or download as a line every 15 seconds."""

    def __init__(self) -> None:
        super().__init__()
        # Sizes and digests are read before the first byte is sent, which may take minutes.
        self._text = "The batch is being read."

    def __call__(self, done: int, total: int) -> None:
        share = f"{done / total:.0%}" if total else "100%"
        looks = "; the service looks at it" if done >= total else ""
        self.update_status_text(f"{share} of {total / 1e6:,.1f} MB sent{looks}", now=False)
