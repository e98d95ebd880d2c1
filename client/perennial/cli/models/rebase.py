"""The command models rebase: move a model to a better base."""

from __future__ import annotations

from typing import Literal

import click

from perennial import words
from perennial.cli.command import REASON, CommandContext, cli_command, parse_json_option
from perennial.cli.output import Cell, print_table, print_text, require_user_confirmation
from perennial.guard import quote_shell_word
from perennial.types import Rebase, RebaseTask, Share

SHORT_SHA = 12
"""Digits of an archive's SHA-256 shown for comparison by a person."""


@cli_command("rebase", short_help="Move a model to a better base.")
@click.argument("model")
@click.option(
    "--base", metavar="NAME|ID|JSON", help="Begin with this base, given as in `models create`."
)
@click.option(
    "--name", metavar="NAME", help="With --base: name of the new model. Default: MODEL-rebased."
)
@click.option(
    "--status", is_flag=True, help="Show what the new model has learned, and compare both models."
)
@click.option(
    "--finish", is_flag=True, help="Compare both and move production: the new model takes the name."
)
@click.option("--back", is_flag=True, help="Move production back to the old model.")
@click.option(
    "--allow-missing", is_flag=True, help="With --finish: move even if batches are missing."
)
@REASON
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def run_rebase_model_command(
    shell: CommandContext,
    model: str,
    base: str | None,
    name: str | None,
    status: bool,
    finish: bool,
    back: bool,
    allow_missing: bool,
    reason: str | None,
    yes: bool,
) -> None:
    """Move MODEL to a better base, by a new model beside it.

    The new model learns the batches whose images are retained; the others are sent again. Begin
    with --base, check with --status, and end with --finish. Production stays unchanged until then.
    MODEL is either of the two models.
    """
    if sum((base is not None, status, finish, back)) != 1:
        raise click.UsageError("Say one of --base BASE, --status, --finish and --back.")
    if base is not None:
        base_request = parse_json_option(base) if base.startswith("{") else base
        started_rebase = shell.create_client().models.rebase(model, base_request, name=name)
        shell.print_result(started_rebase, lambda: _print_started_rebase(started_rebase))
        return
    if status:
        progress = shell.create_client().models.rebase_status(model)
        shell.print_result(progress, lambda: _print_rebase_comparison(progress))
        return
    _confirm_and_finish_or_undo_rebase(
        shell, model, "allow" if allow_missing else "refuse", reason, is_back=back, yes=yes
    )


def _confirm_and_finish_or_undo_rebase(
    shell: CommandContext,
    model: str,
    missing: Literal["refuse", "allow"],
    reason: str | None,
    *,
    is_back: bool,
    yes: bool,
) -> None:
    """Show the comparison of a rebase, ask for confirmation, and move production there or back."""
    client = shell.create_client()
    progress = client.models.rebase_status(model)
    if not shell.is_json:
        _print_rebase_comparison(progress, with_next=False)
    comes, goes = (progress.old, progress.new) if is_back else (progress.new, progress.old)
    # Ask only if the request can succeed: otherwise the service refuses it and says what is
    # missing.
    is_possible = is_back or progress.ready or missing == "allow"
    if is_possible and not yes:
        require_user_confirmation(
            f"Give {comes.name} the name {goes.name}, by which clients ask for it"
        )
    # By id, because the request exchanges the names.
    moved = client.models.finish_rebase(comes.id, reason=reason, missing=missing)
    shell.print_result(moved, lambda: _print_finished_or_undone_rebase(moved, is_back=is_back))


def _print_started_rebase(move: Rebase) -> None:
    base = move.new.base if isinstance(move.new.base, str) else "another version"
    print_text(
        f"{move.new.name} is made beside {move.old.name}: it starts from {base} and reads images "
        f"of {move.new.image.size} pixels. Production stays with {move.old.name}."
    )
    columns = ("task", "name", "classes", "images", "what happens")
    rows: list[tuple[Cell, ...]] = [
        (
            one.task,
            one.name,
            ", ".join(one.classes),
            one.images,
            _describe_how_task_is_carried_over(one),
        )
        for one in move.tasks
    ]
    print_table(columns, rows, "There is no task.")
    for warning in move.warnings:
        print_text(f"warning: {words.replace_requests_by_commands(warning)}")
    _print_commands_to_resend_batches(move)
    print_text(
        f"Compare both at any time:\n  perennial models rebase {quote_shell_word(move.new.name)} --status"
    )


def _print_rebase_comparison(move: Rebase, *, with_next: bool = True) -> None:
    columns = ("task", "name", "in the new model", "images", "old", "new", "worse", "better", "p")
    rows = [_build_rebase_row(one) for one in move.tasks]
    total = move.totals
    rows.append(
        (
            *("all", None, None, total.flips.n),
            *(_get_accuracy_or_none(total.old), _get_accuracy_or_none(total.new)),
            *(total.flips.negative, total.flips.positive, total.flips.mcnemar_p),
        )
    )
    print_table(columns, rows, "There is no task.")
    if total.old is not None and total.new is not None:
        print_text(
            f"On {total.flips.n} held-out images {move.old.name} (version {move.old.version}) is "
            f"right on {_format_accuracy_with_interval(total.old)} and {move.new.name} (version "
            f"{move.new.version}) on {_format_accuracy_with_interval(total.new)}: "
            f"{total.flips.negative} got worse, {total.flips.positive} better; p of no difference "
            f"{total.flips.mcnemar_p:.3g} (McNemar)."
        )
    for one in move.tasks:
        # The command for a batch that must be sent again follows with the others.
        if one.detail is not None and not (with_next and one.arrival == "send_again"):
            print_text(f"task {one.task}: {words.replace_requests_by_commands(one.detail)}")
    for warning in move.warnings:
        print_text(f"warning: {words.replace_requests_by_commands(warning)}")
    if with_next:
        _print_commands_to_resend_batches(move)
        print_text(words.replace_requests_by_commands(move.next))


def _print_finished_or_undone_rebase(move: Rebase, *, is_back: bool) -> None:
    current, replaced = (move.old, move.new) if is_back else (move.new, move.old)
    print_text(
        f"{current.name} is model {current.id} now, with version {current.version} in production."
    )
    print_text(f"The other one is {replaced.name}.")
    if not is_back:
        print_text(
            f"To go back:\n  perennial models rebase {quote_shell_word(current.name)} --back"
        )


def _print_commands_to_resend_batches(move: Rebase) -> None:
    """Print the commands that send again the batches whose images a rebase lacks."""
    missing_tasks = [one for one in move.tasks if one.arrival == "send_again"]
    if not missing_tasks:
        return
    print_text("Send these batches again, each as the file that was sent then:")
    for one in missing_tasks:
        named = "" if one.name is None else f" --name {quote_shell_word(one.name)}"
        drop = " --drop-duplicates" if one.duplicates_policy == "drop" else ""
        print_text(f"  perennial submit {quote_shell_word(move.new.name)} FILE{named}{drop}")
        print_text(f"      task {one.task}, sha256 {one.sha256[:SHORT_SHA]}…")


def _describe_how_task_is_carried_over(task: RebaseTask) -> str:
    if task.arrival == "relearned":
        return "learned from the images that are kept"
    return "its archive must be sent again" if task.arrival == "send_again" else "was sent again"


def _build_rebase_row(task: RebaseTask) -> tuple[Cell, ...]:
    where = "missing" if task.new_task is None else f"task {task.new_task}, {task.standing}"
    flips = task.flips
    return (
        *(task.task, task.name, where, None if task.old is None else task.old.total),
        *(_get_accuracy_or_none(task.old), _get_accuracy_or_none(task.new)),
        *(
            (None, None, None)
            if flips is None
            else (flips.negative, flips.positive, flips.mcnemar_p)
        ),
    )


def _get_accuracy_or_none(share: Share | None) -> float | None:
    return None if share is None else share.accuracy


def _format_accuracy_with_interval(share: Share) -> str:
    low, high = share.interval
    return f"{share.accuracy:.1%} ({low:.1%} to {high:.1%})"
