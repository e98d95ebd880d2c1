"""tasks: list, show, continue, discard, relearn, delete-data."""

from __future__ import annotations

from typing import Any

import click

from perennial.cli.batches.following import follow_and_print_job
from perennial.cli.command import REASON, RECIPE, CommandContext, cli_command
from perennial.cli.groups import SuggestingCommandGroup
from perennial.cli.listing import ListingFormat
from perennial.cli.marks import ProductionAndLatestVersions
from perennial.cli.models.accuracies import MeasuredAccuracy
from perennial.cli.models.recipe import build_recipe_rows
from perennial.cli.output import (
    Cell,
    format_time,
    is_stdout_terminal,
    print_fields,
    print_text,
    require_user_confirmation,
)
from perennial.cli.states import STANDINGS, build_state_filter_option
from perennial.guard import quote_shell_word
from perennial.text import make_text_one_line
from perennial.types import Task
from perennial.words import (
    describe_left_out_files_and_entries,
    replace_requests_by_task_commands,
    summarise_findings_without_warning,
)

EMPTY = "No batch yet: `perennial submit`."


@click.group("tasks", cls=SuggestingCommandGroup)
def task_commands() -> None:
    """List and show the batches of a model, and settle those that wait."""


@cli_command(
    "list",
    task_commands,
    columns=(
        "task",
        "name",
        "standing",
        "classes",
        "images",
        "held out",
        "version",
        "learned",
        "now",
    ),
)
@click.argument("model")
@build_state_filter_option("--standing", "standing", STANDINGS)
def run_list_tasks_command(shell: CommandContext, model: str, standing: str | None) -> None:
    """List the batches of a model in order, with their accuracy when learned and with the newest
    version."""
    client = shell.create_client()
    matching_tasks = [one for one in client.tasks.list(model) if standing in (None, one.standing)]
    # Marks beside version numbers are for people, and cost another request.
    if shell.is_json or not is_stdout_terminal() or shell.form != ListingFormat():
        shell.print_rows(
            matching_tasks, (_build_task_row(one, one.version) for one in matching_tasks), EMPTY
        )
        return
    where = ProductionAndLatestVersions.from_aliases(client.models.retrieve(model).aliases)
    shell.print_rows(
        matching_tasks,
        (
            _build_task_row(one, where.format_version_with_production_mark(one.version))
            for one in matching_tasks
        ),
        EMPTY,
    )
    for text in filter(
        None, (where.format_table_legend(), where.explain_now_column()) if matching_tasks else ()
    ):
        print_text(text)


def _build_task_row(task: Task, version: Cell) -> tuple[Cell, ...]:
    accuracy = (task.accuracy_when_learned, task.accuracy_now)
    return (
        task.number,
        task.name,
        task.standing,
        len(task.classes),
        task.n_train,
        task.n_held_out,
        version,
        *accuracy,
    )


@cli_command("show", task_commands)
@click.argument("model")
@click.argument("task", type=int)
def run_show_task_command(shell: CommandContext, model: str, task: int) -> None:
    """Show one batch: its standing, its classes and the findings in it."""
    client = shell.create_client()
    task_details = client.tasks.retrieve(model, task)
    shell.print_result(
        task_details,
        # Called only for output to a person: JSON does not need the aliases.
        lambda: _print_task_fields(
            model,
            task_details,
            ProductionAndLatestVersions.from_aliases(client.models.retrieve(model).aliases),
        ),
    )


def _print_task_fields(model: str, task: Task, where: ProductionAndLatestVersions) -> None:
    classes = ", ".join(f"{label} {count}" for label, count in task.classes.items())
    rows = [
        ("task", task.number),
        ("name", task.name),
        ("standing", task.standing),
        ("job", task.job),
        # Programs get the number alone.
        (
            "version",
            task.version
            if not is_stdout_terminal()
            else _describe_task_version(task.version, where),
        ),
        ("classes", classes),
        ("images", f"{task.n_train} to learn, {task.n_held_out} held out"),
        ("accuracy when learned", _describe_accuracy(task.accuracy_when_learned, task)),
        ("accuracy now", _describe_accuracy(task.accuracy_now, task)),
        ("now is version", where.latest if task.accuracy_now is not None else None),
        ("production is version", where.production),
        *build_recipe_rows(task.recipe),
        ("sha256", task.sha256),
        ("training data until", format_time(task.training_data_until)),
    ]
    print_fields(rows)
    for note in task.report.notes or []:
        print_text(make_text_one_line(note))
    for warning in (*task.warnings, *describe_left_out_files_and_entries(task.report)):
        print_text(f"warning: {replace_requests_by_task_commands(warning, model, task.number)}")
    for text in summarise_findings_without_warning(task):
        print_text(f"data: {replace_requests_by_task_commands(text, model, task.number)}")


def _describe_accuracy(accuracy: float | None, task: Task) -> Cell:
    """Format an accuracy on a task; on a terminal, with its number of held-out images."""
    if accuracy is None or task.n_held_out is None or not is_stdout_terminal():
        return accuracy
    return str(MeasuredAccuracy(accuracy, task.n_held_out))


def _describe_task_version(version: int | None, where: ProductionAndLatestVersions) -> Cell:
    return None if version is None else f"{version}{where.describe_version_role(version)}"


@cli_command("continue", task_commands)
@click.argument("model")
@click.argument("task", type=int)
@REASON
def run_continue_without_task_command(
    shell: CommandContext, model: str, task: int, reason: str | None
) -> None:
    """Let the lineage continue without a task whose version is held."""
    skipped_task = shell.create_client().tasks.continue_without(model, task, reason=reason)
    shell.print_result(
        skipped_task,
        lambda: print_text(
            f"Task {task} is {skipped_task.standing}; later batches go on without it."
        ),
    )


@cli_command("discard", task_commands)
@click.argument("model")
@click.argument("task", type=int)
@REASON
def run_discard_task_command(
    shell: CommandContext, model: str, task: int, reason: str | None
) -> None:
    """Discard a task, so that nothing waits for it any longer."""
    discarded_task = shell.create_client().tasks.discard(model, task, reason=reason)
    shell.print_result(
        discarded_task, lambda: print_text(f"Task {task} is {discarded_task.standing}.")
    )


@cli_command("relearn", task_commands)
@click.argument("model")
@click.argument("task", type=int)
@RECIPE
@click.option("--detach", "-d", is_flag=True, help="Do not wait for the job.")
def run_relearn_task_command(
    shell: CommandContext, model: str, task: int, recipe: Any, detach: bool
) -> None:
    """Learn again a task that production lacks, before all waiting tasks."""
    client = shell.create_client()
    handle = client.tasks.relearn(model, task, recipe=recipe)
    if detach:
        shell.print_result(
            handle.job,
            lambda: print_text(
                f"Follow the job with: perennial jobs watch {quote_shell_word(handle.id)}"
            ),
        )
        return
    follow_and_print_job(shell, client, handle)


@cli_command("delete-data", task_commands)
@click.argument("model")
@click.argument("task", type=int)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def run_delete_task_data_command(shell: CommandContext, model: str, task: int, yes: bool) -> None:
    """Delete the images of a batch; the versions that learned it stay."""
    if not yes:
        require_user_confirmation(
            f"Remove all images of task {task} of {model}? It cannot be learned again"
        )
    shell.create_client().tasks.delete_data(model, task)
    shell.print_result(
        {"model": model, "task": task, "deleted": True},
        lambda: print_text(f"The images of task {task} are removed."),
    )
