"""The command compare: two versions on the same images."""

from __future__ import annotations

import click

from perennial.cli.command import DYNAMIC, Shell, command
from perennial.cli.listing import Form
from perennial.cli.output import complain, is_terminal, line, say, table
from perennial.types import Compare

CLASSES = 20
"""Maximum number of classes in a table on a terminal."""
KINDS = ("negative", "positive", "both_wrong")


@command("compare", columns=DYNAMIC, short_help="What a version gets wrong that another gets right.")
@click.argument("model")
@click.argument("a")
@click.argument("b", default="production")
@click.option("--task", "-t", type=click.IntRange(1), metavar="N", help="Only on the images of this task.")
@click.option("--images", "kind", type=click.Choice(KINDS), help="List the images of this kind instead.")
@click.option("--class", "label", metavar="LABEL", help="With --images: only those of this class.")
def compare(
    shell: Shell, model: str, a: str, b: str, task: int | None, kind: str | None, label: str | None
) -> None:
    """Compare version B with version A on the same held-out images; each is a number or alias.

    Negative flips are images that A predicts correctly and B incorrectly.
    """
    if kind is not None:
        _images(shell, model, a, b, task, kind, label)
        return
    if label is not None:
        raise click.UsageError("--class is for --images.")
    comparison = shell.client().versions.compare(model, a, b, task=task)
    shell.answer(comparison, lambda: _show(shell, comparison))


def _show(shell: Shell, found: Compare) -> None:
    if not is_terminal() or shell.form != Form():
        columns = ("task", "images", "both right", "worse", "better", "both wrong", "nfr", "low", "high", "p")
        shell.rows(found, _tasks(found), "There is no task on which both were measured.", columns)
        return
    total = found.totals
    if total.nfr is None or total.nfr_interval is None:
        say("There is no task on which both were measured.")
    else:
        say(
            f"Version {found.b.version} beside version {found.a.version} on {total.n} images: "
            f"{total.negative} got worse, {total.positive} better."
        )
        low, high = total.nfr_interval
        say(
            f"Negative flip rate {total.nfr:.4f} (95 %: {low:.4f} to {high:.4f}); p of no difference "
            f"{total.mcnemar_p:.3g} (McNemar)."
        )
        tasks = [(*row[:2], *row[3:5], *row[6:]) for row in _tasks(found)]
        table(("task", "images", "worse", "better", "nfr", "low", "high", "p"), tasks, "")
        changed = [one for one in found.classes if one.negative or one.positive]
        rows = [(one.label, one.task, one.n, one.negative, one.positive) for one in changed[:CLASSES]]
        table(("class", "task", "images", "worse", "better"), rows, "No image flipped.")
        if len(changed) > CLASSES:
            complain(f"And {len(changed) - CLASSES} more classes; --json has all.")
    for left_task in found.left_out:
        complain(f"Left out: task {left_task.task}. {left_task.detail}")
    for one in found.recipe:
        say(f"recipe.{one.path}: {one.a} → {one.b}")


def _tasks(found: Compare) -> list[tuple[int | float | None, ...]]:
    return [
        (
            *(one.task, one.n, one.both_right, one.negative, one.positive, one.both_wrong, one.nfr),
            *(one.nfr_interval or (None, None)),
            one.mcnemar_p,
        )
        for one in found.tasks
    ]


def _images(shell: Shell, model: str, a: str, b: str, task: int | None, kind: str, label: str | None) -> None:
    image_pages = shell.client().versions.compare_images(model, a, b, kind=kind, task=task, label=label)
    if shell.is_json:
        for one in image_pages:
            line(one)
        return
    columns = ("task", "image", "class", "a says", "a sure", "b says", "b sure", "picture")
    rows = (
        (
            *(one.task, one.index, one.label, one.a.label, one.a.probability),
            *(one.b.label, one.b.probability, one.image),
        )
        for one in image_pages
    )
    shell.rows(None, rows, "There is none.", columns)
