"""jobs: list, show, watch, logs, trials, choose, cancel, pause, resume, retry."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from perennial import words
from perennial.bars import compute_job_share_done, describe_job_state, describe_job_time_left
from perennial.cli.batches.following import (
    describe_interrupted_job,
    follow_and_print_job,
    print_job_events,
)
from perennial.cli.batches.trials import TRIAL_COLUMNS, print_trials
from perennial.cli.command import RECIPE, SECONDS, CommandContext, cli_command
from perennial.cli.exits import FollowInterrupted
from perennial.cli.groups import SuggestingCommandGroup
from perennial.cli.models.recipe import build_recipe_rows
from perennial.cli.output import format_short_time, format_time, print_fields, print_text
from perennial.cli.states import JOBS, build_state_filter_option
from perennial.guard import quote_shell_word
from perennial.text import make_text_one_line
from perennial.types import Job


@click.group("jobs", cls=SuggestingCommandGroup)
def job_commands() -> None:
    """List, follow, pause, cancel and retry jobs."""


@cli_command(
    "list", job_commands, columns=("job", "kind", "task", "state", "version", "created UTC")
)
@click.option("--model", "-m", metavar="MODEL", help="Only jobs of this model.")
@build_state_filter_option("--state", "wanted", JOBS)
@click.option(
    "--kind",
    metavar="KIND",
    help="Only this kind: learn, edit, validate, fetch, measure or export.",
)
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1),
    default=30,
    show_default=True,
    help="Largest number of rows.",
)
def run_list_jobs_command(
    shell: CommandContext, model: str | None, wanted: str | None, kind: str | None, limit: int
) -> None:
    """List jobs, newest first."""
    client, service_state = shell.create_client(), None if wanted is None else JOBS[wanted]
    # Shown states are finer than the service's: it filters coarsely, and the loop below exactly.
    every = client.jobs.list(model=model, state=service_state, kind=kind)
    matching_jobs = list(
        islice(
            (one for one in every if wanted in (None, one.state, describe_job_state(one))), limit
        )
    )
    rows = [
        (
            one.id,
            one.kind,
            one.task,
            describe_job_state(one),
            one.version,
            format_short_time(one.created_at),
        )
        for one in matching_jobs
    ]
    shell.print_rows(matching_jobs, rows, "No job.")


@cli_command("show", job_commands)
@click.argument("job")
def run_show_job_command(shell: CommandContext, job: str) -> None:
    """Show one job: its progress, what it waits for, and how it ended."""
    job_details = shell.create_client().jobs.retrieve(job)
    shell.print_result(job_details, lambda: _print_job_fields(job_details))


def _print_job_fields(job: Job) -> None:
    rows = [
        ("job", job.id),
        ("kind", job.kind),
        ("model", job.model),
        ("task", job.task),
        ("state", describe_job_state(job)),
        ("done", f"{compute_job_share_done(job):.0%}"),
        ("to go", describe_job_time_left(job) or None),
        ("version", job.version),
        *build_recipe_rows(job.recipe),
        ("created", format_time(job.created_at)),
        ("finished", format_time(job.finished_at)),
    ]
    print_fields(rows)
    if job.waiting_for is not None:
        print_text(f"It waits: {words.replace_requests_by_commands(job.waiting_for.detail)}")
    if job.error is not None:
        print_text(words.replace_requests_by_commands(job.error.detail))
    for warning in job.warnings:
        print_text(
            f"warning: {words.replace_requests_by_task_commands(warning, job.model, job.task)}"
        )
    if job.outcome == "held":
        show_command = f"perennial models show {quote_shell_word(job.model)}"
        print_text(f"Its version is held: `{show_command}` says why, and how to go on.")


@cli_command("watch", job_commands)
@click.argument("job")
@click.option("--timeout", type=SECONDS, metavar="SECONDS", help="Longest time to wait.")
def run_watch_job_command(shell: CommandContext, job: str, timeout: float | None) -> None:
    """Follow a job to its end; --json prints each event as a line. Ctrl-C does not stop the job."""
    client = shell.create_client()
    handle = client.job(job)
    handle.refresh()
    if shell.is_json:
        print_job_events(shell, handle)
    else:
        follow_and_print_job(shell, client, handle, timeout)


@cli_command("logs", job_commands)
@click.argument("job")
@click.option(
    "--follow", "-f", "is_followed", is_flag=True, help="Follow the log until the job has ended."
)
def run_job_log_command(shell: CommandContext, job: str, is_followed: bool) -> None:
    """Print the log of a job."""
    try:
        for one in shell.create_client().job(job).logs(follow=is_followed):
            mark = "" if one.level == "info" else f" {one.level}:"
            message = words.replace_requests_by_commands(one.message)
            text = f"{make_text_one_line(f'{(one.at or str())[11:19]}{mark}')} {message}"
            shell.print_one_result(one, lambda text=text: print_text(text))  # type: ignore[misc]
    except KeyboardInterrupt:
        raise FollowInterrupted(describe_interrupted_job(job)) from None


@cli_command("trials", job_commands, columns=TRIAL_COLUMNS)
@click.argument("job")
def run_show_trials_command(shell: CommandContext, job: str) -> None:
    """Show the recipes that a job compares, their figures, and why they lost."""
    print_trials(shell, shell.create_client().jobs.trials(job))


@cli_command("choose", job_commands, columns=TRIAL_COLUMNS)
@click.argument("job")
@click.argument("trial", type=click.IntRange(1, 8))
def run_choose_trial_command(shell: CommandContext, job: str, trial: int) -> None:
    """Choose the trial of a waiting job whose result becomes the version."""
    print_trials(shell, shell.create_client().jobs.choose(job, trial))


def _add_job_action_command(verb: str, text: str, done: str) -> None:
    @cli_command(verb, job_commands, help=text)
    @click.argument("job")
    def run_job_action(shell: CommandContext, job: str) -> None:
        changed_job = getattr(shell.create_client().jobs, verb)(job)
        shell.print_result(
            changed_job, lambda: print_text(f"Job {job} {done}: it is {changed_job.state}.")
        )


_add_job_action_command(
    "cancel", "Cancel a job. It can be retried while its data is stored.", "is being ended"
)
_add_job_action_command(
    "pause", "Stop a job and keep its place: later jobs of its model wait.", "is being paused"
)
_add_job_action_command("resume", "Resume a paused job from its newest snapshot.", "goes on")


@cli_command("retry", job_commands)
@click.argument("job")
@RECIPE
@click.option("--detach", "-d", is_flag=True, help="Do not wait for the job.")
def run_retry_job_command(shell: CommandContext, job: str, recipe: Any, detach: bool) -> None:
    """Learn a job's task again in its place; '--recipe {}' uses the model's own recipe."""
    client = shell.create_client()
    handle = client.jobs.retry(job, recipe=recipe)
    if detach:
        shell.print_result(
            handle.job,
            lambda: print_text(
                f"Follow the job with: perennial jobs watch {quote_shell_word(handle.id)}"
            ),
        )
        return
    follow_and_print_job(shell, client, handle)
