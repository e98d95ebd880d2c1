"""Following a job to its end and reporting its result."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

from perennial.cli.batches.progress_lines import JobStatusLines
from perennial.cli.command import CommandContext
from perennial.cli.exits import FollowInterrupted
from perennial.cli.models.accuracies import (
    explain_sign_of_unmeasured_accuracy,
    fetch_task_accuracies_of_version,
    format_accuracies_in_words,
)
from perennial.cli.output import print_json_document, print_json_line, print_notice, print_text
from perennial.errors import BaseUnavailable, ServiceUnreachable, Unavailable, WaitTimeout
from perennial.guard import quote_shell_word
from perennial.text import make_text_one_line
from perennial.words import (
    describe_compared_versions,
    describe_left_out_files_and_entries,
    explain_missing_base_weights,
    replace_requests_by_task_commands,
    summarise_findings_without_warning,
)

if TYPE_CHECKING:
    from perennial import JobHandle, Perennial
    from perennial.types import Job, Task

LOOK_S = 1.0
"""Seconds between two reads of a job that waits for its base."""


def follow_and_print_job(
    shell: CommandContext, client: Perennial, handle: JobHandle, timeout: float | None = None
) -> None:
    """Follow a job until it has ended, and print its result.

    Raises:
        JobEnded: the job did not end as it should; the printed output is complete.
        FollowInterrupted: Ctrl-C; the job continues.
        BaseUnavailable: the base of the model could not be fetched; a note says how to come back.
        ServiceUnreachable, Unavailable: no response for some minutes; a note says how to come back.
        WaitTimeout: the job continues; a note says how to come back.
    """
    job = wait_for_job(shell, handle, timeout)
    task = None if job.task is None else client.tasks.retrieve(job.model, job.task)
    warnings = _list_new_warnings(handle, job, task)
    # Commands in warnings name the model; without warnings, the request would be wasted.
    model = client.models.retrieve(job.model).name if warnings else job.model
    for warning in warnings:
        print_notice(f"warning: {replace_requests_by_task_commands(warning, model, job.task)}")
    if shell.is_json:
        print_json_document(job)
    error = handle.ending(job)
    if error is not None:
        raise error
    if not shell.is_json:
        print_job_outcome(client, job, task)


def wait_for_job(shell: CommandContext, handle: JobHandle, timeout: float | None = None) -> Job:
    """Wait for a job while showing its progress, and return it as it ended.

    Raises:
        FollowInterrupted, BaseUnavailable, ServiceUnreachable, Unavailable, WaitTimeout: as
        `follow_and_print_job`.
    """
    try:
        with nullcontext(True) if sys.stderr.isatty() else JobStatusLines() as progress:
            # check=False: the caller prints warnings and JSON before it raises the error.
            return handle.wait(timeout, progress=progress, check=False)
    except KeyboardInterrupt:
        raise FollowInterrupted(describe_interrupted_job(handle.id)) from None
    except BaseUnavailable as lacking:
        if shell.is_json and handle.job is not None:
            print_json_document(handle.job)
        lacking.add_note(_format_follow_and_cancel_commands(handle.id))
        raise
    except WaitTimeout as late:
        late.add_note(_format_commands_after_interruption(handle.id))
        raise
    except (ServiceUnreachable, Unavailable) as away:
        away.add_note(describe_interrupted_job(handle.id).strip())
        raise


def report_version_of_finished_job(
    shell: CommandContext, client: Perennial, handle: JobHandle
) -> None:
    """Print the result of a job whose version the model has learned, even if it was held at first."""
    job = handle.job or handle.refresh()
    task = handle.task
    shell.print_result(job, lambda: print_job_outcome(client, job, task))


def _list_new_warnings(handle: JobHandle, job: Job, task: Task | None) -> list[str]:
    """Return the warnings of a job and its batch that were not printed when it was submitted."""
    submit_warnings = handle.task.warnings if handle.task else []
    # A job and its batch may have the same warning, which is printed once.
    all_warnings = [
        *job.warnings,
        *(task.warnings + describe_left_out_files_and_entries(task.report) if task else []),
    ]
    return [text for text in dict.fromkeys(all_warnings) if text not in submit_warnings]


def print_job_events(shell: CommandContext, handle: JobHandle) -> None:
    """Print each event of a job as a JSON line until the job has ended.

    Raises:
        JobEnded, FollowInterrupted, BaseUnavailable: as `follow_and_print_job`.
    """
    try:
        _wait_for_model_base(handle)
        for event in handle.events():
            print_json_line(event)
    except KeyboardInterrupt:
        raise FollowInterrupted(describe_interrupted_job(handle.id)) from None
    except BaseUnavailable as lacking:
        lacking.add_note(_format_follow_and_cancel_commands(handle.id))
        raise
    # Events end with every final state, so ask for the one that the job is in.
    error = handle.ending(handle.refresh())
    if error is not None:
        raise error


def _wait_for_model_base(handle: JobHandle) -> None:
    """Wait until the model of a job has its base; until then the job has no events.

    Raises:
        BaseUnavailable: the base could not be fetched.
    """
    with JobStatusLines() as progress_lines:
        while (why := handle.refresh().waiting_for) is not None and why.kind == "base":
            job = handle.refresh()
            progress_lines(job)
            if (lacking := explain_missing_base_weights(job)) is not None:
                raise BaseUnavailable(lacking)
            time.sleep(LOOK_S)


def _format_follow_and_cancel_commands(job: str) -> str:
    """Return the commands that follow or cancel a job that waits for missing base weights."""
    word = quote_shell_word(job)
    return (
        f"Follow it then with: perennial jobs watch {word}\nOr end it with: perennial jobs "
        f"cancel {word}"
    )


def describe_interrupted_job(job: str) -> str:
    """Return the message after Ctrl-C: the job continues, and a command follows it again."""
    return f"\nJob {quote_shell_word(job)} goes on. {_format_commands_after_interruption(job)}"


def _format_commands_after_interruption(job: str) -> str:
    word = quote_shell_word(job)
    return f"Come back with: perennial jobs watch {word}\nEnd it with: perennial jobs cancel {word}"


def print_job_outcome(client: Perennial, job: Job, task: Task | None) -> None:
    """Print the result of a job that succeeded."""
    if job.version is None:
        print_text(make_text_one_line(f"Job {job.id} ({job.kind}) succeeded."))
        return
    model = client.models.retrieve(job.model)
    version = client.versions.retrieve(job.model, job.version)
    production = model.aliases.get("production")
    where = (
        "and in production"
        if production == job.version
        else f"production is at version {production}"
    )
    print_text(make_text_one_line(f"Version {job.version} of {model.name} is published, {where}."))
    accuracies = fetch_task_accuracies_of_version(client, job.model, version)
    if accuracies:
        print_text(f"  accuracy: {format_accuracies_in_words(accuracies)}")
    for text in explain_sign_of_unmeasured_accuracy(accuracies):
        print_text(f"  {text}")
    for text in describe_compared_versions(version):
        print_text(f"  {make_text_one_line(text)}")
    for text in summarise_findings_without_warning(task) if task else ():
        print_text(f"  data: {replace_requests_by_task_commands(text, model.name, job.task)}")
