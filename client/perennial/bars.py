"""Progress: on standard error, where that is a terminal; in a notebook below the cell; elsewhere nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perennial.text import one_line, printable
from perennial.words import by_commands

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


@contextmanager
def shown_job(progress: bool | Callable[[Job], None]) -> Iterator[Callable[[Job], None]]:
    """What to call at each change of a job: draws a bar for True, does nothing for False."""
    if not isinstance(progress, bool):
        yield progress
        return
    if progress and _is_notebook():
        yield _job_in_notebook()
        return
    with _bars(progress, is_bytes=False) as bars:
        if bars is None:
            yield lambda job: None
            return
        row = bars.add_task("job", total=1.0)
        told: set[str] = set()

        def show(job: Job) -> None:
            bars.update(row, completed=share(job), description=one_line(state(job)))
            why = by_commands(job.waiting_for.detail) if job.waiting_for else ""
            if why and why not in told:
                told.add(why)
                bars.console.print(printable(why), markup=False, highlight=False)

        yield show


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
        row = bars.add_task(title, total=None)
        yield lambda done, total: bars.update(
            row, completed=done, total=total or None, description=f"{title}: {done:,}"
        )


def share(job: Job) -> float:
    """How far a job is, 0 to 1."""
    if job.state == "succeeded":
        return 1.0
    done, total = job.progress.step or 0, job.progress.total_steps or 0
    return done / total if total else 0.0


def state(job: Job) -> str:
    """What a job does, in a word."""
    if job.state == "succeeded" and job.outcome == "held":
        return "held"
    if job.waiting_for is not None:
        return "waiting"
    return (job.progress.phase if job.state == "running" else None) or job.state


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
    last = DownloadColumn() if is_bytes else TaskProgressColumn()
    # without markup: a phase such as `[link=…]` is text
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        last,
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=False) as bars:
        yield bars
