"""Progress: on standard error, where that is a terminal; in a notebook below the cell; elsewhere nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from perennial.text import one_line, printable
from perennial.words import by_commands, duration, lacks_base

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from perennial._types import Job
    from perennial.transfer import Progress


@contextmanager
def shown_transfer(title: str, progress: bool | Progress | None) -> Iterator[Progress | None]:
    """What to call while bytes go or come: draws a bar for True, is None for False."""
    if not isinstance(progress, bool):
        yield progress
        return
    if progress and _is_notebook():
        yield _bytes_in_notebook(title)
        return
    with _bars(progress, is_bytes=True) as bars:
        if bars is None:
            yield None
            return
        row = bars.add_task(one_line(title), total=None)
        yield lambda done, total: bars.update(row, completed=done, total=total)


@runtime_checkable
class ShownJob(Protocol):
    """Shows a job that is waited for."""

    def __call__(self, job: Job) -> None:
        """Show it as it is now."""

    def away(self, seconds: float) -> None:
        """Show that the service has not answered for some time."""


@contextmanager
def shown_job(progress: bool | Callable[[Job], None]) -> Iterator[ShownJob]:
    """What to call at each change of a job: draws a bar for True, does nothing for False."""
    if not isinstance(progress, bool):
        yield progress if isinstance(progress, ShownJob) else _Called(progress)
        return
    if progress and _is_notebook():
        yield _Called(_job_in_notebook())
        return
    with _bars(progress, is_bytes=False) as bars:
        yield _Called(lambda job: None) if bars is None else _Drawn(bars)


class _Called:
    """A function as what shows a job."""

    def __init__(self, show: Callable[[Job], None]) -> None:
        self._show = show

    def __call__(self, job: Job) -> None:
        self._show(job)

    def away(self, seconds: float) -> None:
        """Nothing has changed."""


class _Drawn:
    """A job as a bar; why it waits, once above it."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._row = bars.add_task("job", total=1.0, left="")
        self._told: set[str] = set()
        self._state = "job"

    def __call__(self, job: Job) -> None:
        self._state = one_line(state(job) + _of_base(job))
        self._bars.update(self._row, completed=share(job), description=self._state, left=left(job))
        why = why_waiting(job)
        if why and why not in self._told:
            self._told.add(why)
            self._bars.console.print(printable(why), markup=False, highlight=False)

    def away(self, seconds: float) -> None:
        self._bars.update(self._row, description=self._state, left=f"no answer for {duration(seconds)}")


@contextmanager
def shown_listing(is_wanted: bool, title: str = "listing") -> Iterator[Progress | None]:
    """Draw a bar while a source beyond the disk is listed. Yields what to call with entries listed and all.

    Args:
        title: what is done with them.
    """
    with _bars(is_wanted, is_bytes=False) as bars:
        if bars is None:
            yield None
            return
        row = bars.add_task(title, total=None, left="")
        yield lambda done, total: bars.update(
            row, completed=done, total=total or None, description=f"{title}: {done:,}"
        )


def share(job: Job) -> float:
    """How far a whole job is, 0 to 1; of an older service, its phase."""
    if job.state == "succeeded":
        return 1.0
    if job.progress.done is not None:
        return job.progress.done
    done, total = job.progress.step or 0, job.progress.total_steps or 0
    return done / total if total else 0.0


def state(job: Job) -> str:
    """What a job does, in a word."""
    if job.state == "succeeded" and job.outcome == "held":
        return "held"
    if job.waiting_for is not None:
        return "waiting"
    return (job.progress.phase if job.state == "running" else None) or job.state


def left(job: Job) -> str:
    """How long a job still takes, in words; empty where that is not known."""
    seconds = None if job.is_terminal else job.progress.left_s
    return "" if seconds is None else f"about {duration(seconds)} left"


def told(job: Job) -> str:
    """What a job does, how far it is and how long it still takes, on a line: "train 43%, about 2 min left"."""
    done = f" {share(job):.0%}" if job.started_at is not None and not job.is_terminal else ""
    return ", ".join(filter(None, (f"{state(job)}{_of_base(job)}{done}", left(job))))


def why_waiting(job: Job) -> str:
    """Why a job waits; empty where it does not, or where that ends the waiting and is told then."""
    return by_commands(job.waiting_for.detail) if job.waiting_for and lacks_base(job) is None else ""


def _of_base(job: Job) -> str:
    """How far the base is that a job waits for."""
    why = job.waiting_for
    return f" (base {why.done:.0%})" if why is not None and why.done and not why.failed else ""


def _is_notebook() -> bool:
    if "IPython" not in sys.modules:
        return False
    from perennial.notebook import is_notebook

    return is_notebook()


def _bytes_in_notebook(title: str) -> Progress:
    from perennial.notebook import LiveHtml, bar_of_bytes

    place = LiveHtml()
    return lambda done, total: place.show(bar_of_bytes(title, done, total), is_last=done == total)


def _job_in_notebook() -> Callable[[Job], None]:
    from perennial.notebook import LiveHtml, describe

    place = LiveHtml()
    return lambda job: place.show(describe(job) or "", is_last=job.is_terminal)


@contextmanager
def _bars(is_wanted: bool, is_bytes: bool) -> Iterator[Bars | None]:
    if not is_wanted:
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    # Two columns stay free: a terminal echoes Ctrl-C as ^C behind the bar, and a row that wraps is drawn twice.
    console.width = max(1, console.width - 2)
    if not console.is_terminal:
        yield None
        return
    # without markup: a phase such as `[link=…]` is text
    described = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=None))
    columns = (
        (*described, DownloadColumn(), TimeRemainingColumn())
        if is_bytes
        else (*described, TaskProgressColumn(), TextColumn("{task.fields[left]}", markup=False))
    )
    with Progress(*columns, console=console, transient=False) as bars:
        yield bars
