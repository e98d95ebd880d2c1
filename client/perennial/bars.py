"""Progress bars: on standard error if it is a terminal, below the cell of a notebook, else none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from perennial.text import escape_control_characters, make_text_one_line
from perennial.words import (
    explain_missing_base_weights,
    format_duration,
    replace_requests_by_commands,
)

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from perennial._types import Job
    from perennial.transfer import Progress


@contextmanager
def open_transfer_bar(title: str, progress: bool | Progress | None) -> Iterator[Progress | None]:
    """Open a progress bar for an upload or download; yield the function that updates it."""
    if not isinstance(progress, bool):
        yield progress
        return
    if progress and _is_running_in_notebook():
        yield _make_notebook_transfer_bar(title)
        return
    with _open_terminal_bars(progress, is_bytes=True) as bars:
        if bars is None:
            yield None
            return
        # The total is not known before the first call.
        row = bars.add_task(make_text_one_line(title), total=None)
        yield lambda done, total: bars.update(row, completed=done, total=total)


@runtime_checkable
class JobProgressDisplay(Protocol):
    """Protocol of a progress display for a job: called with the job whenever it has changed."""

    def __call__(self, job: Job) -> None:
        """Show the job as it is now."""

    def show_service_outage(self, seconds: float) -> None:
        """Show in the job's progress display that the service has not answered for some time."""


@contextmanager
def open_job_bar(progress: bool | Callable[[Job], None]) -> Iterator[JobProgressDisplay]:
    """Open a progress display for a job; yield the object to call with the changed job."""
    if not isinstance(progress, bool):
        yield (
            progress if isinstance(progress, JobProgressDisplay) else _CallbackJobDisplay(progress)
        )
        return
    if progress and _is_running_in_notebook():
        yield _CallbackJobDisplay(_make_notebook_job_bar())
        return
    with _open_terminal_bars(progress, is_bytes=False) as bars:
        yield _CallbackJobDisplay(lambda job: None) if bars is None else _JobProgressBar(bars)


class _CallbackJobDisplay:
    """Adapter that makes a plain function the progress display of a job."""

    def __init__(self, show: Callable[[Job], None]) -> None:
        self._show = show

    def __call__(self, job: Job) -> None:
        self._show(job)

    def show_service_outage(self, seconds: float) -> None:
        """Do nothing: a plain function has no way to show an outage."""


class _JobProgressBar:
    """Progress bar of a job on a terminal; prints once why the job waits."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._row = bars.add_task("job", total=1.0, left="")
        self._told: set[str] = set()
        self._state = "job"

    def __call__(self, job: Job) -> None:
        self._state = make_text_one_line(describe_job_state(job) + _format_fetched_base_share(job))
        self._bars.update(
            self._row,
            completed=compute_job_share_done(job),
            description=self._state,
            left=describe_job_time_left(job),
        )
        why = explain_waiting_job(job)
        if why and why not in self._told:
            self._told.add(why)
            self._bars.console.print(escape_control_characters(why), markup=False, highlight=False)

    def show_service_outage(self, seconds: float) -> None:
        self._bars.update(
            self._row, description=self._state, left=f"no answer for {format_duration(seconds)}"
        )


@contextmanager
def show_listing_bar(is_wanted: bool, title: str = "listing") -> Iterator[Progress | None]:
    """Show a progress bar while the entries of a remote source are listed.

    Yields a callback that takes the number of entries listed and the total; None without a bar.

    Args:
        title: the label of the bar, such as "listing".
    """
    with _open_terminal_bars(is_wanted, is_bytes=False) as bars:
        if bars is None:
            yield None
            return
        row = bars.add_task(title, total=None, left="")
        # A total of 0 means unknown, for which rich needs None: 0 would be a finished bar.
        yield lambda done, total: bars.update(
            row, completed=done, total=total or None, description=f"{title}: {done:,}"
        )


def compute_job_share_done(job: Job) -> float:
    """Return the share of a whole job that is done, 0 to 1; for an older service, of its phase."""
    if job.state == "succeeded":
        return 1.0
    if job.progress.done is not None:
        return job.progress.done
    done, total = job.progress.step or 0, job.progress.total_steps or 0
    return done / total if total else 0.0


def describe_job_state(job: Job) -> str:
    """Return the state of a job as one word; while it runs, the name of its phase."""
    if job.state == "succeeded" and job.outcome == "held":
        return "held"
    if job.waiting_for is not None:
        return "waiting"
    return (job.progress.phase if job.state == "running" else None) or job.state


def describe_job_time_left(job: Job) -> str:
    """Describe how long a job still takes; empty if that is not known."""
    seconds = None if job.is_terminal else job.progress.left_s
    return "" if seconds is None else f"about {format_duration(seconds)} left"


def describe_job_progress(job: Job) -> str:
    """Describe a job on one line: state, share done and time left ("train 43%, about 2 min left")."""
    done = (
        f" {compute_job_share_done(job):.0%}"
        if job.started_at is not None and not job.is_terminal
        else ""
    )
    return ", ".join(
        filter(
            None,
            (
                f"{describe_job_state(job)}{_format_fetched_base_share(job)}{done}",
                describe_job_time_left(job),
            ),
        )
    )


def explain_waiting_job(job: Job) -> str:
    """Return the reason a job waits; empty if it does not wait, or will raise BaseUnavailable
    instead."""
    return (
        replace_requests_by_commands(job.waiting_for.detail)
        if job.waiting_for and explain_missing_base_weights(job) is None
        else ""
    )


def _format_fetched_base_share(job: Job) -> str:
    """Return how much of the awaited base weights is fetched, such as " (base 40%)"; else ""."""
    why = job.waiting_for
    return f" (base {why.done:.0%})" if why is not None and why.done and not why.failed else ""


def _is_running_in_notebook() -> bool:
    # In a notebook, IPython is loaded already; elsewhere it is not worth importing.
    if "IPython" not in sys.modules:
        return False
    from perennial.notebook import is_running_in_notebook

    return is_running_in_notebook()


def _make_notebook_transfer_bar(title: str) -> Progress:
    from perennial.notebook import LiveHtml, render_transfer_bar

    live_html = LiveHtml()
    return lambda done, total: live_html.replace_html_at_limited_rate(
        render_transfer_bar(title, done, total), is_last=done == total
    )


def _make_notebook_job_bar() -> Callable[[Job], None]:
    from perennial.notebook import LiveHtml, render_response_as_html

    live_html = LiveHtml()
    return lambda job: live_html.replace_html_at_limited_rate(
        render_response_as_html(job) or "", is_last=job.is_terminal
    )


@contextmanager
def _open_terminal_bars(is_wanted: bool, is_bytes: bool) -> Iterator[Bars | None]:
    if not is_wanted:
        yield None
        return
    # rich takes a moment to import, and most programs draw no bar.
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
    # Two columns stay free: a terminal echoes Ctrl-C as ^C behind the bar, and a row that wraps is
    # drawn twice.
    console.width = max(1, console.width - 2)
    if not console.is_terminal:
        yield None
        return
    # no markup: a phase such as `[link=…]` is plain text
    described = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=None))
    columns = (
        (*described, DownloadColumn(), TimeRemainingColumn())
        if is_bytes
        else (*described, TaskProgressColumn(), TextColumn("{task.fields[left]}", markup=False))
    )
    with Progress(*columns, console=console, transient=False) as bars:
        yield bars
