"""The command issues: images of a batch whose label or similarity a person should check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from perennial.cli.command import CommandContext, cli_command
from perennial.cli.listing import ListingFormat
from perennial.cli.output import Cell, is_stdout_terminal, print_notice, print_text
from perennial.errors import BadAnswer, Conflict, Forbidden, Invalid, NotFound
from perennial.guard import quote_shell_word
from perennial.types import NearPair, Task
from perennial.words import replace_requests_by_task_commands

if TYPE_CHECKING:
    from perennial import Perennial

COLUMNS = ("kind", "image", "path", "label", "suggested", "score", "like", "where")
KINDS = ("suspect", "near_duplicate", "duplicate", "conflict", "rejected")
Row = tuple[Cell, ...]


@cli_command(
    "issues",
    columns=COLUMNS,
    short_help="List images of a batch to check, such as suspect labels.",
)
@click.argument("model")
@click.argument("task", type=int)
@click.option("--kind", type=click.Choice(KINDS), help="Only this kind.")
def run_list_issues_command(shell: CommandContext, model: str, task: int, kind: str | None) -> None:
    """List images of a batch to check, one per row, as far as the service lists them.

    A suspect has a label that looks wrong; `suggested` is `score` times as probable. The commands
    that correct it are printed below the table, and are `command` in JSON. If the service refuses
    to correct labels of this batch, the reason and what to do are printed instead. A near_duplicate
    looks the same as another image (`like`), in the batch or in an earlier task. A duplicate has
    the same bytes as another image of its class, and a conflict the same bytes as one of another
    class. A rejected image could not be used; `where` gives the reason.
    """
    client = shell.create_client()
    batch = client.tasks.retrieve(model, task)
    rows = [row for row in list_finding_rows(batch) if kind in (None, row[0])]
    # Options such as --csv are for programs, which read rows alone.
    is_for_person = not shell.is_json and is_stdout_terminal() and shell.form == ListingFormat()
    refusal = (
        _explain_refused_relabelling(client, model, batch, rows)
        if is_for_person or shell.is_json
        else None
    )
    commands = [None if refusal else _build_relabel_command(model, batch, row) for row in rows]
    items = [
        {**dict(zip(COLUMNS, row, strict=True)), "command": one}
        for row, one in zip(rows, commands, strict=True)
    ]
    shell.print_rows(items, rows, "Nothing of this batch is to be looked at.")
    if is_for_person:
        for text in _suggest_relabel_commands(refusal, list(filter(None, commands))):
            print_text(text)
    for name, listed, count in iterate_finding_counts_by_kind(batch):
        if kind in (None, name) and listed < count:
            print_notice(f"{name}: {listed:,} of {count:,} are listed.")


def _explain_refused_relabelling(
    client: Perennial, model: str, task: Task, rows: list[Row]
) -> str | None:
    """Explain why the service would refuse to correct a task's suspicious labels; None if it would
    not.
    """
    suspect = next((row for row in rows if row[0] == "suspect"), None)
    if suspect is None:
        return None
    if task.standing != "learned":
        return (
            f"Task {task.number} is {task.standing.replace('_', ' ')}. Correct the labels in the "
            "batch, and send it again."
        )
    _, image, _, _, suggested, *_ = suspect
    try:
        # One image stands for all: the conditions of an edit are those of its task.
        client.edits.plan(
            model, [{"relabel": {"task": task.number, "image": image, "label": suggested}}]
        )
    except (Conflict, Invalid, NotFound) as refused:
        return replace_requests_by_task_commands(refused.detail, model, task.number)
    except Forbidden:  # somebody with another key may correct it
        return None
    return None


def _build_relabel_command(model: str, task: Task, row: Row) -> str | None:
    """Return the command that relabels a suspicious image as suggested; None for other findings."""
    kind, image, _, _, suggested, *_ = row
    if kind != "suspect":
        return None
    try:
        words = [quote_shell_word(str(word)) for word in (model, task.number, image)]
        return f"perennial images relabel {' '.join(words)} --to {quote_shell_word(str(suggested))}"
    except BadAnswer:  # a name contains characters that no shell may receive
        return None


def _suggest_relabel_commands(refusal: str | None, commands: list[str]) -> Iterator[str]:
    """Yield the commands that correct suspicious labels, or why they cannot be corrected."""
    if refusal:
        yield refusal
    elif commands:
        yield "Look at each image. If the suggested label is the right one, run:"
        yield from (f"  {command}" for command in commands)


def list_finding_rows(task: Task) -> Iterator[Row]:
    """Yield a table row for each finding in a batch, such as duplicates and suspicious labels."""
    report = task.report
    if report.data is not None:
        for one in report.data.suspects or []:
            path = one.path or f"train {one.index}"
            yield ("suspect", one.index, path, one.label, one.suggested, one.score, None, "train")
        near = report.data.near_duplicates
        if near is not None:
            # A pair may be in both lists; it is printed once, as the leak that it is.
            held_out = {(pair.path, pair.like) for pair in near.held_out.examples}
            within = [
                pair for pair in near.within.examples if (pair.path, pair.like) not in held_out
            ]
            yield from _build_near_duplicate_rows(within, "batch")
            yield from _build_near_duplicate_rows(near.held_out.examples, "held out and learned")
            for earlier in near.earlier:
                yield from _build_near_duplicate_rows(earlier.examples, f"task {earlier.task}")
    for copy in report.duplicate_paths or []:
        yield ("duplicate", None, copy.path, None, None, None, copy.same_as, "batch")
    for conflict in report.conflicts or []:
        # Each further copy is listed beside the first one, whose label contradicts its own.
        first, *further_paths = zip(conflict.paths, conflict.labels, strict=False)
        for path, label in further_paths:
            yield ("conflict", None, path, label, first[1], None, first[0], "batch")
    for file in report.rejected or []:
        yield ("rejected", None, file.path, None, None, None, None, file.reason)


def _build_near_duplicate_rows(pairs: list[NearPair], where: str) -> Iterator[Row]:
    for pair in pairs:
        yield ("near_duplicate", None, pair.path, None, None, None, pair.like, where)


def iterate_finding_counts_by_kind(task: Task) -> Iterator[tuple[str, int, int]]:
    """Yield the kind of each list of findings in a batch, its length, and the total count."""
    report, data = task.report, task.report.data
    if data is not None:
        yield "suspect", len(data.suspects or []), data.suspects_count or 0
        near = data.near_duplicates
        if near is not None:
            for one in (near.within, near.held_out):
                yield "near_duplicate", len(one.examples), one.count
            for earlier in near.earlier:
                yield "near_duplicate", len(earlier.examples), earlier.count
    yield "duplicate", len(report.duplicate_paths or []), report.duplicates or 0
    yield "conflict", len(report.conflicts or []), report.conflicts_count or 0
    yield "rejected", len(report.rejected or []), report.rejected_count or 0
