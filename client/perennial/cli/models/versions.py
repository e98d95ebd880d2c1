"""The commands versions list, show, note, diff."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from perennial import words
from perennial.cli.command import DYNAMIC, CommandContext, cli_command
from perennial.cli.groups import SuggestingCommandGroup
from perennial.cli.listing import ListingFormat
from perennial.cli.models.accuracies import (
    explain_sign_of_unmeasured_accuracy,
    fetch_task_accuracies_of_version,
    format_accuracies_in_words,
)
from perennial.cli.models.recipe import build_recipe_rows
from perennial.cli.output import (
    Cell,
    format_bytes,
    format_short_time,
    format_time,
    print_fields,
    print_text,
)
from perennial.cli.states import VERSIONS, build_state_filter_option
from perennial.types import Version

if TYPE_CHECKING:
    from perennial import Perennial


@click.group("versions", cls=SuggestingCommandGroup)
def version_commands() -> None:
    """List, show and compare versions."""


@cli_command(
    "list",
    version_commands,
    columns=(
        *("version", "task", "status", "parent", "accuracy", "images"),
        *("bytes", "created UTC"),
    ),
)
@click.argument("model")
@build_state_filter_option("--status", "status", VERSIONS)
def run_list_versions_command(shell: CommandContext, model: str, status: str | None) -> None:
    """List all versions of a model, including held ones; `images` are the held-out images that the
    accuracy rests on.
    """
    matching = [
        one for one in shell.create_client().versions.list(model) if status in (None, one.status)
    ]
    rows = [
        (
            *(one.number, one.task, one.status, one.parent, one.mean_accuracy, one.images),
            *(format_bytes(one.bytes), format_short_time(one.created_at)),
        )
        for one in matching
    ]
    shell.print_rows(matching, rows, "No version.")


@cli_command("show", version_commands)
@click.argument("model")
@click.argument("version", default="production")
def run_show_version_command(shell: CommandContext, model: str, version: str) -> None:
    """Show one version: its gate, accuracy on each task, and bytes. VERSION is a number or
    alias.
    """
    client = shell.create_client()
    details = client.versions.retrieve(model, version)
    shell.print_result(details, lambda: _print_version(client, model, details))


def _print_version(client: Perennial, model: str, version: Version) -> None:
    accuracies = fetch_task_accuracies_of_version(client, model, version)
    rows: list[tuple[str, Cell]] = [
        ("version", version.number),
        ("status", version.status),
        ("parent", version.parent),
        ("task", version.task),
        ("job", version.job),
        ("taught", ", ".join(str(task) for task in version.tasks)),
        ("accuracy", format_accuracies_in_words(accuracies)),
        ("gate", "passed" if version.gate.passed else "not passed"),
        ("bytes", f"{format_bytes(version.bytes)}, of which new {format_bytes(version.bytes_new)}"),
        *build_recipe_rows(version.manifest.to_dict().get("recipe")),
        ("created", format_time(version.created_at)),
        ("note", version.note),
    ]
    print_fields(rows)
    for text in explain_sign_of_unmeasured_accuracy(accuracies):
        print_text(f"  {text}")
    for reason in words.describe_failed_checks(version):
        print_text(f"  {reason}")
    for text in words.format_version_comparison_page_hint(client.connection.url, model, version):
        print_text(f"  {text}")
    for text in words.describe_unmeasured_checks(version):
        print_text(f"  {text}")
    for warning in version.warnings:
        print_text(f"warning: {words.replace_requests_by_commands(warning)}")


@cli_command("note", version_commands)
@click.argument("model")
@click.argument("version")
@click.argument("text", required=False)
def run_set_version_note_command(
    shell: CommandContext, model: str, version: str, text: str | None
) -> None:
    """Set the note of a version; without TEXT remove it."""
    client = shell.create_client()
    details = client.versions.update(model, version, note=text)
    shell.print_result(details, lambda: _print_version(client, model, details))


@cli_command("diff", version_commands, columns=DYNAMIC)
@click.argument("model")
@click.argument("before")
@click.argument("after")
def run_version_diff_command(shell: CommandContext, model: str, before: str, after: str) -> None:
    """Show the differences between two versions: accuracy by task, classes, bytes, recipe.
    `images` are the held-out images of the task.
    """
    client = shell.create_client()
    old, new = client.versions.retrieve(model, before), client.versions.retrieve(model, after)
    # One matrix has the rows of both versions.
    by_task = client.metrics.retrieve(model, "latest")
    cells = {
        row.version: cells for row, cells in zip(by_task.rows, by_task.accuracy_matrix, strict=True)
    }
    columns = by_task.columns
    empty: list[float | None] = [None] * len(columns)
    pairs = list(
        zip(columns, cells.get(old.number, empty), cells.get(new.number, empty), strict=True)
    )
    tasks: list[dict[str, Any]] = [
        {
            "task": column.task,
            "classes": column.classes,
            "before": a,
            "after": b,
            "change": _compute_accuracy_change(a, b),
            "images": column.n,
        }
        for column, a, b in pairs
        if a is not None or b is not None
    ]
    lost_tasks = sorted(set(old.tasks) - set(new.tasks))
    recipe = find_json_differences_by_path(
        old.manifest.to_dict().get("recipe") or {}, new.manifest.to_dict().get("recipe") or {}
    )
    result = {
        "before": old.number,
        "after": new.number,
        "tasks": tasks,
        "lost_tasks": lost_tasks,
        "bytes": {"before": old.bytes, "after": new.bytes},
        "recipe": recipe,
    }

    def print_differences() -> None:
        """Print the differences between two versions as tables."""
        headings = ("task", str(old.number), str(new.number), "change", "images")
        rows = [
            (
                *(task_change["task"], task_change["before"], task_change["after"]),
                *(_format_accuracy_change(task_change["change"]), task_change["images"]),
            )
            for task_change in tasks
        ]
        shell.form.print_rows(headings, rows, "No task.")
        # Options such as --csv are for programs, which read rows alone.
        if shell.form != ListingFormat():
            return
        if lost_tasks:
            print_text(
                f"Version {new.number} was not taught task {', '.join(map(str, lost_tasks))}."
            )
        for name, (was, now) in recipe.items():
            print_text(f"recipe.{name}: {was} → {now}")

    shell.print_result(result, print_differences)


def _compute_accuracy_change(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _format_accuracy_change(change: float | None) -> str | None:
    return None if change is None else f"{change:+.3f}"


def find_json_differences_by_path(
    before: Any, after: Any, way: str = ""
) -> dict[str, tuple[Any, Any]]:
    """Return the values that differ between two JSON documents, by dotted path such as
    `method.name`.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        differences = {}
        for name in sorted({*before, *after}):
            differences.update(
                find_json_differences_by_path(
                    before.get(name), after.get(name), f"{way}.{name}" if way else name
                )
            )
        return differences
    return {} if before == after else {way: (before, after)}
