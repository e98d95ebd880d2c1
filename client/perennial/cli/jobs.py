"""jobs: list, show, watch, logs, cancel, pause, resume, retry."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from perennial import words
from perennial.bars import left, share, state
from perennial.cli.command import RECIPE, SECONDS, Shell, command
from perennial.cli.exits import Detached
from perennial.cli.following import came_away, follow, stream_events
from perennial.cli.groups import Commands
from perennial.cli.output import fields, say, when, when_short
from perennial.cli.recipe import recipe_rows
from perennial.cli.states import JOBS, state_option
from perennial.guard import shell_word
from perennial.text import one_line
from perennial.types import Job


@click.group("jobs", cls=Commands)
def jobs() -> None:
    """List, follow, pause, cancel and retry jobs."""


@command("list", jobs, columns=("job", "kind", "task", "state", "version", "created UTC"))
@click.option("--model", "-m", metavar="MODEL", help="Those of one model.")
@state_option("--state", "wanted", JOBS)
@click.option("--kind", metavar="KIND", help="learn, validate, fetch or export.")
@click.option(
    "--limit", "-n", type=click.IntRange(1), default=30, show_default=True, help="How many at most."
)
def list_jobs(shell: Shell, model: str | None, wanted: str | None, kind: str | None, limit: int) -> None:
    """List jobs, newest first."""
    client, service_state = shell.client(), None if wanted is None else JOBS[wanted]
    every = client.jobs.list(model=model, state=service_state, kind=kind)
    matching_jobs = list(islice((one for one in every if wanted in (None, one.state, state(one))), limit))
    rows = [
        (one.id, one.kind, one.task, state(one), one.version, when_short(one.created_at))
        for one in matching_jobs
    ]
    shell.rows(matching_jobs, rows, "No job.")


@command("show", jobs)
@click.argument("job")
def show(shell: Shell, job: str) -> None:
    """Show one job: its progress, what it waits for, and how it ended."""
    job_details = shell.client().jobs.retrieve(job)
    shell.answer(job_details, lambda: _show(job_details))


def _show(job: Job) -> None:
    rows = [
        ("job", job.id),
        ("kind", job.kind),
        ("model", job.model),
        ("task", job.task),
        ("state", state(job)),
        ("done", f"{share(job):.0%}"),
        ("to go", left(job) or None),
        ("version", job.version),
        *recipe_rows(job.recipe),
        ("created", when(job.created_at)),
        ("finished", when(job.finished_at)),
    ]
    fields(rows)
    if job.waiting_for is not None:
        say(f"It waits: {words.by_commands(job.waiting_for.detail)}")
    if job.error is not None:
        say(words.by_commands(job.error.detail))
    for warning in job.warnings:
        say(f"warning: {words.about_task(warning, job.model, job.task)}")
    if job.outcome == "held":
        said = f"perennial models show {shell_word(job.model)}"
        say(f"Its version is held: `{said}` says why, and how to go on.")


@command("watch", jobs)
@click.argument("job")
@click.option("--timeout", type=SECONDS, metavar="SECONDS", help="Wait so long at most.")
def watch(shell: Shell, job: str, timeout: float | None) -> None:
    """Follow a job to its end; --json prints each event as a line. Ctrl-C does not stop the job."""
    client = shell.client()
    handle = client.job(job)
    handle.refresh()
    if shell.is_json:
        stream_events(shell, handle)
    else:
        follow(shell, client, handle, timeout)


@command("logs", jobs)
@click.argument("job")
@click.option("--follow", "-f", "is_followed", is_flag=True, help="Go on until it has ended.")
def logs(shell: Shell, job: str, is_followed: bool) -> None:
    """Print the log of a job."""
    try:
        for one in shell.client().job(job).logs(follow=is_followed):
            mark = "" if one.level == "info" else f"{one.level}: "
            text = one_line(f"{(one.at or '')[11:19]} {mark}{one.message}")
            shell.stream(one, lambda text=text: say(text))  # type: ignore[misc]
    except KeyboardInterrupt:
        raise Detached(came_away(job)) from None


def _acts(verb: str, text: str, done: str) -> None:
    @command(verb, jobs, help=text)
    @click.argument("job")
    def act(shell: Shell, job: str) -> None:
        changed_job = getattr(shell.client().jobs, verb)(job)
        shell.answer(changed_job, lambda: say(f"Job {job} {done}: it is {changed_job.state}."))


_acts("cancel", "End a job. It can be retried while its data is kept.", "is being ended")
_acts("pause", "Stop a job and keep its place: later jobs of its model wait.", "is being paused")
_acts("resume", "Let a paused job go on, from its newest snapshot.", "goes on")


@command("retry", jobs)
@click.argument("job")
@RECIPE
@click.option("--detach", "-d", is_flag=True, help="Do not wait for the job.")
def retry(shell: Shell, job: str, recipe: Any, detach: bool) -> None:
    """Learn a job's task again in its place; '--recipe {}' takes the model's own recipe."""
    client = shell.client()
    handle = client.jobs.retry(job, recipe=recipe)
    if detach:
        shell.answer(
            handle.job, lambda: say(f"Follow the job with: perennial jobs watch {shell_word(handle.id)}")
        )
        return
    follow(shell, client, handle)
