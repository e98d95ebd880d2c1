"""edits: list, show, undo, purge; and the way of every command that edits a model: show, ask, send, wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from perennial import words
from perennial.cli.batches.following import (
    describe_interrupted_job,
    print_job_outcome,
    wait_for_job,
)
from perennial.cli.command import REASON, SECONDS, CommandContext, cli_command
from perennial.cli.groups import SuggestingCommandGroup
from perennial.cli.output import (
    Cell,
    format_short_time,
    format_time,
    print_fields,
    print_json_document,
    print_notice,
    print_text,
    require_user_confirmation,
)
from perennial.guard import quote_shell_word
from perennial.text import format_count_with_noun, make_text_one_line
from perennial.types import Edit, EditPlan

if TYPE_CHECKING:
    from perennial import Perennial

Work = TypeVar("Work", bound=Callable[..., Any])
WAYS = {
    "recompute": "kept features are added up again, no image is needed",
    "relearn": "tasks are learned again from their kept images",
    "rename": "only names change, nothing is learned",
    "patch": "rows of its classifier change, no image or feature is kept to learn from",
}
"""Meaning of each way."""
SHOWN_TASKS = 20
"""Numbers of tasks that a sentence lists."""


@click.group("edits", cls=SuggestingCommandGroup)
def edit_commands() -> None:
    """List, show and undo edits of a model: changed labels, images and classes."""


@dataclass(frozen=True)
class EditSendingOptions:
    """Options shared by all commands that edit a model: reason, confirmation, waiting."""

    reason: str | None
    is_confirmed: bool
    is_detached: bool
    timeout: float | None


def add_edit_sending_options(work: Work) -> Work:
    """Add the options shared by commands that edit a model (`EditSendingOptions`) to a command."""
    for option in (
        click.option("--timeout", type=SECONDS, metavar="SECONDS", help="Longest time to wait."),
        click.option("--detach", "-d", is_flag=True, help="Do not wait for the job."),
        click.option("--yes", "-y", is_flag=True, help="Do not ask."),
        REASON,
    ):
        work = option(work)
    return work


def collect_edit_sending_options(values: Mapping[str, Any]) -> EditSendingOptions:
    """Return the values of the options that `add_edit_sending_options` has added to a command."""
    return EditSendingOptions(values["reason"], values["yes"], values["detach"], values["timeout"])


def confirm_and_send_edit(
    shell: CommandContext,
    model: str,
    operations: Sequence[Mapping[str, Any]],
    sending: EditSendingOptions,
) -> None:
    """Show the plan of an edit, ask for confirmation, send it, and report the resulting version.

    Raises:
        PerennialError: the person declined, or the service refused.
        JobEnded: the job did not end as it should.
    """
    client = shell.create_client()
    plan = client.edits.plan(model, operations)
    if not (shell.is_json and sending.is_confirmed):
        for text in describe_edit_plan(plan):
            print_notice(text)
    if not sending.is_confirmed:
        require_user_confirmation(f"Edit {model} so")
    # With the version of the plan: the service refuses the edit if image numbers have changed
    # since the person saw it.
    edit = client.edits.create(model, operations, reason=sending.reason, parent=plan.parent)
    if sending.is_detached:
        shell.print_result(edit, lambda: print_text(describe_interrupted_job(edit.job).strip()))
        return
    _wait_for_edit_and_print_result(shell, client, model, edit, sending.timeout)


def describe_edit_plan(plan: EditPlan) -> list[str]:
    """Describe in sentences what an edit would change."""
    relearning = (
        f" Learned again: {_format_task_numbers(plan.learned_again)}."
        if plan.way == "relearn"
        else ""
    )
    sentences = [
        f"It changes the data of {_format_task_numbers(plan.tasks)}, by "
        f"{format_count_with_noun(plan.operations, 'operation')}.",
        f"Way: {plan.way}; {WAYS.get(plan.way, 'the service knows it')}.{relearning}",
        *([] if plan.approximation is None else [f"Approximate: {plan.approximation}"]),
        f"Classes: {plan.classes_before:,} before, {plan.classes_after:,} after.",
        "It can be undone later, as long as no later task was learned on it."
        if plan.can_undo
        else "It cannot be undone: images that it removes are not restored.",
    ]
    return [make_text_one_line(sentence) for sentence in sentences]


def _format_task_numbers(numbers: Sequence[int]) -> str:
    listed = ", ".join(str(number) for number in numbers[:SHOWN_TASKS])
    more = f" and {len(numbers) - SHOWN_TASKS} more" if len(numbers) > SHOWN_TASKS else ""
    return f"task{'' if len(numbers) == 1 else 's'} {listed}{more}"


def _wait_for_edit_and_print_result(
    shell: CommandContext,
    client: Perennial,
    model: str,
    submitted_edit: Edit,
    timeout: float | None,
) -> None:
    """Wait for the job of an edit, then print its result."""
    handle = client.job(submitted_edit.job)
    job = wait_for_job(shell, handle, timeout)
    for warning in job.warnings:
        print_notice(
            f"warning: {words.replace_requests_by_task_commands(warning, model, job.task)}"
        )
    edit = client.edits.retrieve(model, submitted_edit.number)
    if shell.is_json:
        print_json_document(edit)
    error = handle.ending(job)
    if error is not None:
        # The gate may hold the version of an edit, and even then the edit can be undone.
        if edit.version is not None and edit.undo_until is not None:
            error.add_note(f"To take the edit back: {_format_undo_command(model, edit)}")
        raise error
    if not shell.is_json:
        print_job_outcome(client, job, None)
        for text in _describe_finished_edit(model, edit):
            print_text(text)


def _describe_finished_edit(model: str, edit: Edit) -> list[str]:
    images = edit.images
    # An edit of classes alone changes the label of no image.
    counts = [
        f"{format_count_with_noun(count, 'image')} {what}"
        for count, what in (
            (images.relabelled or 0, "relabelled"),
            (images.removed or 0, "removed"),
        )
        if count
    ]
    lines = [f"Edit {edit.number} is done{': ' if counts else ''}{', '.join(counts)}."]
    if edit.still_in_versions:
        older_versions = ", ".join(str(number) for number in edit.still_in_versions[:SHOWN_TASKS])
        lines.append(
            f"Older versions still hold features or images of these tasks: {older_versions}. To delete "
            f"them:\n  perennial edits purge {quote_shell_word(model)} {edit.number}"
        )
    if edit.undo_until is None:
        return [*lines, "It cannot be undone."]
    until = format_time(edit.undo_until)
    return [*lines, f"To undo it, until {until}:\n  {_format_undo_command(model, edit)}"]


def _format_undo_command(model: str, edit: Edit) -> str:
    return f"perennial edits undo {quote_shell_word(model)} {edit.number}"


def describe_edit_state(edit: Edit) -> str:
    """Return the state of an edit in one word: that of its job, or undone."""
    return edit.state if edit.undone_at is None else "undone"


@cli_command(
    "list",
    edit_commands,
    columns=(
        *("edit", "state", "version", "way", "tasks", "relabelled", "removed"),
        *("created UTC", "reason"),
    ),
)
@click.argument("model")
def run_list_edits_command(shell: CommandContext, model: str) -> None:
    """List the edits of a model, newest first."""
    edits = list(shell.create_client().edits.list(model))
    rows = [
        (
            *(one.number, describe_edit_state(one), one.version, one.way),
            ", ".join(str(task) for task in one.tasks),
            *(one.images.relabelled, one.images.removed),
            *(format_short_time(one.created_at), one.reason),
        )
        for one in edits
    ]
    shell.print_rows(edits, rows, "No edit.")


@cli_command("show", edit_commands)
@click.argument("model")
@click.argument("edit", type=int)
def run_show_edit_command(shell: CommandContext, model: str, edit: int) -> None:
    """Show one edit: its job and version, what it changed, and until when it can be undone."""
    details = shell.create_client().edits.retrieve(model, edit)
    shell.print_result(details, lambda: _print_edit(details))


def _print_edit(edit: Edit) -> None:
    rows: list[tuple[str, Cell]] = [
        ("edit", edit.number),
        ("state", describe_edit_state(edit)),
        ("job", edit.job),
        ("version", edit.version),
        ("made from version", edit.parent),
        ("operations", edit.operations),
        ("way", edit.way),
        ("tasks", ", ".join(str(task) for task in edit.tasks)),
        ("images with another label", edit.images.relabelled),
        ("images removed", edit.images.removed),
        ("still in versions", ", ".join(map(str, edit.still_in_versions)) or None),
        ("reason", edit.reason),
        ("created", format_time(edit.created_at)),
        ("can be undone until", format_time(edit.undo_until)),
        ("undone", format_time(edit.undone_at)),
    ]
    print_fields(rows)


@cli_command("undo", edit_commands)
@click.argument("model")
@click.argument("edit", type=int)
@REASON
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def run_undo_edit_command(
    shell: CommandContext, model: str, edit: int, reason: str | None, yes: bool
) -> None:
    """Go back to the version before an edit, and restore its labels."""
    client = shell.create_client()
    if not yes:
        edit_to_undo = client.edits.retrieve(model, edit)
        require_user_confirmation(
            f"Go back to version {edit_to_undo.parent} of {model}, with the labels before edit {edit}"
        )
    undone = client.edits.undo(model, edit, reason=reason)
    shell.print_result(undone, lambda: _print_undone_edit(client, model, undone))


def _print_undone_edit(client: Perennial, model: str, edit: Edit) -> None:
    aliases = client.models.retrieve(model).aliases
    print_text(
        f"Edit {edit.number} is undone: its labels are as before. {model} continues from version "
        f"{edit.parent}; production is at version {aliases.get('production')}."
    )


@cli_command("purge", edit_commands)
@click.argument("model")
@click.argument("edit", type=int)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def run_purge_removed_images_command(
    shell: CommandContext, model: str, edit: int, yes: bool
) -> None:
    """Delete from older versions the features and images of tasks from which an edit removed
    images.
    """
    client = shell.create_client()
    if not yes:
        versions = client.edits.retrieve(model, edit).still_in_versions
        named = ", ".join(map(str, versions[:SHOWN_TASKS])) or "none"
        require_user_confirmation(
            f"Delete what versions hold of these images ({named})? This cannot be undone"
        )
    purged = client.edits.purge(model, edit)
    shell.print_result(
        purged,
        lambda: print_text(
            "No older version holds features or images of the edited tasks. All versions go on "
            "predicting."
        ),
    )
