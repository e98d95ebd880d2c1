"""Command `metrics`: the accuracy matrix of a model."""

from __future__ import annotations

import click

from perennial.cli.command import DYNAMIC, CommandContext, cli_command
from perennial.cli.listing import ListingFormat
from perennial.cli.marks import EDITED, ProductionAndLatestVersions
from perennial.cli.models.accuracies import MeasuredAccuracy
from perennial.cli.output import Cell, is_stdout_terminal, print_fields, print_notice, print_text
from perennial.types import Metrics

FITTING = 6
"""Number of task columns that fit into a terminal of 80 columns."""


@cli_command(
    "metrics", columns=DYNAMIC, short_help="Show the accuracy of each version on each task."
)
@click.argument("model")
@click.option(
    "--version",
    "-v",
    default="latest",
    show_default=True,
    help="Version whose figures are shown: a number or alias.",
)
@click.option(
    "--last",
    "-n",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Number of versions, newest first.",
)
def run_show_accuracies_command(shell: CommandContext, model: str, version: str, last: int) -> None:
    """Show the accuracy of each version (row) on each task (column), and the figures of one
    version."""
    client = shell.create_client()
    matrix = client.metrics.retrieve(model, version)

    def print_accuracy_tables() -> None:
        columns = matrix.columns
        # Marks and fewer columns are for people; programs get plain numbers and all tasks.
        is_free = is_stdout_terminal() and shell.form == ListingFormat()
        shown_columns = columns[-FITTING:] if is_free else columns
        if len(shown_columns) < len(columns):
            print_notice(
                f"The newest {len(shown_columns)} of {len(columns)} tasks; --json has all."
            )
        pairs = list(zip(matrix.rows, matrix.accuracy_matrix, strict=True))[-last:]
        where = (
            ProductionAndLatestVersions.from_aliases(client.models.retrieve(model).aliases)
            if is_free
            else ProductionAndLatestVersions(None, None)
        )
        marked = {(mark.version, mark.task) for mark in matrix.marks or ()} if is_free else set()
        rows: list[tuple[Cell, ...]] = [
            (
                where.format_version_with_production_mark(row.version),
                row.status,
                *(
                    f"{cell:.3f}{EDITED}" if (row.version, column.task) in marked else cell
                    for column, cell in zip(columns, cells, strict=True)
                    if column in shown_columns
                ),
            )
            for row, cells in pairs
        ]
        headings = ("version", "status", *(f"task {column.task}" for column in shown_columns))
        if is_free and rows and shown_columns:
            rows.append(("images", None, *(column.n for column in shown_columns)))
        shell.form.print_rows(headings, rows, "Nothing was measured yet.")
        if not is_free:
            return
        summary = matrix.summary
        if marked:
            print_text(f"{EDITED} labels edited since this version was measured.")
        if where.format_table_legend():
            print_text(where.format_table_legend())
        print_text(f"Version {matrix.version}{where.describe_version_role(matrix.version)}:")
        print_fields(
            [
                ("mean accuracy (ACC)", _describe_mean_accuracy(matrix)),
                ("backward transfer", summary.bwt),
                ("mean forgetting", summary.forgetting),
                ("accuracy when learned", summary.learning_accuracy),
                ("wrong where its parent was right", summary.regression_rate),
            ]
        )

    shell.print_result(matrix, print_accuracy_tables)


def _describe_mean_accuracy(matrix: Metrics) -> str | None:
    """Format the mean accuracy with its number of held-out images, such as 0.931 (40 images)."""
    acc = matrix.summary.acc
    if acc is None:
        return None
    measured = {one.task for one in matrix.summary.per_task if one.now is not None}
    images = sum(column.n for column in matrix.columns if column.task in measured)
    return str(MeasuredAccuracy(acc, images))
