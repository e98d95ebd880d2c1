"""The command compare: two versions on the same images."""

from __future__ import annotations

from collections.abc import Iterable

import click

from perennial.cli.command import DYNAMIC, CommandContext, cli_command
from perennial.cli.listing import ListingFormat
from perennial.cli.output import (
    is_stdout_terminal,
    print_json_line,
    print_notice,
    print_table,
    print_text,
)
from perennial.types import Compare, ComparedImage

CLASSES = 20
"""Maximum number of classes in a table on a terminal."""
KINDS = ("negative", "positive", "both_wrong")


@cli_command(
    "compare", columns=DYNAMIC, short_help="Compare two versions on the same held-out images."
)
@click.argument("model")
@click.argument("a")
@click.argument("b", default="production")
@click.option("--task", "-t", type=click.IntRange(1), metavar="N", help="Only images of this task.")
@click.option(
    "--images", "kind", type=click.Choice(KINDS), help="List the images of this kind instead."
)
@click.option("--class", "label", metavar="LABEL", help="With --images: only this class.")
def run_compare_versions_command(
    shell: CommandContext,
    model: str,
    a: str,
    b: str,
    task: int | None,
    kind: str | None,
    label: str | None,
) -> None:
    """Compare version B with version A on the same held-out images; each is a number or alias.

    Negative flips are images that A predicts correctly and B incorrectly.
    """
    if kind is not None:
        images = shell.create_client().versions.compare_images(
            model, a, b, kind=kind, task=task, label=label
        )
        _print_flipped_images(shell, images)
        return
    if label is not None:
        raise click.UsageError("--class is for --images.")
    comparison = shell.create_client().versions.compare(model, a, b, task=task)
    shell.print_result(comparison, lambda: _print_comparison(shell, comparison))


def _print_comparison(shell: CommandContext, compared: Compare) -> None:
    # Programs get every column; a terminal of 80 columns has room for fewer.
    if not is_stdout_terminal() or shell.form != ListingFormat():
        columns = (
            "task",
            "images",
            "both right",
            "worse",
            "better",
            "both wrong",
            "nfr",
            "low",
            "high",
            "p",
        )
        shell.print_rows(
            compared,
            _build_task_comparison_rows(compared),
            "There is no task on which both were measured.",
            columns,
        )
        return
    total = compared.totals
    if total.nfr is None or total.nfr_interval is None:
        print_text("There is no task on which both were measured.")
    else:
        print_text(
            f"Version {compared.b.version} beside version {compared.a.version} on {total.n} images: "
            f"{total.negative} got worse, {total.positive} better."
        )
        low, high = total.nfr_interval
        print_text(
            f"Negative flip rate {total.nfr:.4f} (95 %: {low:.4f} to {high:.4f}); p of no "
            f"difference {total.mcnemar_p:.3g} (McNemar)."
        )
        tasks = [(*row[:2], *row[3:5], *row[6:]) for row in _build_task_comparison_rows(compared)]
        print_table(("task", "images", "worse", "better", "nfr", "low", "high", "p"), tasks, "")
        changed = [one for one in compared.classes if one.negative or one.positive]
        rows = [
            (one.label, one.task, one.n, one.negative, one.positive) for one in changed[:CLASSES]
        ]
        print_table(("class", "task", "images", "worse", "better"), rows, "No image flipped.")
        if len(changed) > CLASSES:
            print_notice(f"And {len(changed) - CLASSES} more classes; --json has all.")
    for left_task in compared.left_out:
        print_notice(f"Left out: task {left_task.task}. {left_task.detail}")
    for one in compared.recipe:
        print_text(f"recipe.{one.path}: {one.a} → {one.b}")


def _build_task_comparison_rows(compared: Compare) -> list[tuple[int | float | None, ...]]:
    return [
        (
            *(one.task, one.n, one.both_right, one.negative, one.positive, one.both_wrong, one.nfr),
            *(one.nfr_interval or (None, None)),
            one.mcnemar_p,
        )
        for one in compared.tasks
    ]


def _print_flipped_images(shell: CommandContext, images: Iterable[ComparedImage]) -> None:
    if shell.is_json:
        # One line per image, so that a long list is printed while it is read.
        for one in images:
            print_json_line(one)
        return
    columns = ("task", "image", "class", "a says", "a sure", "b says", "b sure", "picture")
    rows = (
        (
            *(one.task, one.index, one.label, one.a.label, one.a.probability),
            *(one.b.label, one.b.probability, one.image),
        )
        for one in images
    )
    shell.print_rows(None, rows, "There is none.", columns)
