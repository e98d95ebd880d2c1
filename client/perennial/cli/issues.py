"""issues: images of a batch whose label or likeness a person should look at."""

from __future__ import annotations

from collections.abc import Iterator

import click

from perennial.cli.command import Shell, command
from perennial.cli.output import Cell, complain
from perennial.types import NearPair, Task

COLUMNS = ("kind", "path", "label", "suggested", "score", "like", "where")
KINDS = ("suspect", "near_duplicate", "duplicate", "conflict", "rejected")
Row = tuple[Cell, ...]


@command(
    "issues", columns=COLUMNS, short_help="Images of a batch to look at: suspect labels, near duplicates."
)
@click.argument("model")
@click.argument("task", type=int)
@click.option("--kind", type=click.Choice(KINDS), help="Only those.")
def issues(shell: Shell, model: str, task: int, kind: str | None) -> None:
    """Images of a batch to look at, a row each, as far as the service lists them.

    suspect: its label looks wrong; `suggested` is `score` times as probable. near_duplicate: it looks the same as
    another one (`like`), in the batch or in an earlier task. duplicate, conflict: its bytes are those of another one,
    of the same class or of another. rejected: it could not be used, and `where` says why.
    """
    found = shell.client().tasks.retrieve(model, task)
    rows = [row for row in rows_of(found) if kind in (None, row[0])]
    items = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    shell.rows(items, rows, "Nothing of this batch is to be looked at.")
    for name, count in counts_of(found).items():
        listed = sum(row[0] == name for row in rows)
        if kind in (None, name) and listed < count:
            complain(f"{name}: {listed:,} of {count:,} are listed.")


def rows_of(task: Task) -> Iterator[Row]:
    """Yield the cells of `COLUMNS` of what was found in a batch, by kind."""
    report = task.report
    if report.data is not None:
        for one in report.data.suspects or []:
            path = one.path or f"train {one.index}"
            yield ("suspect", path, one.label, one.suggested, one.score, None, "train")
        near = report.data.near_duplicates
        if near is not None:
            yield from _alike(near.within.examples, "batch")
            yield from _alike(near.held_out.examples, "train and held out")
            for earlier in near.earlier:
                yield from _alike(earlier.examples, f"task {earlier.task}")
    for copy in report.duplicate_paths or []:
        yield ("duplicate", copy.path, None, None, None, copy.same_as, "batch")
    for conflict in report.conflicts or []:
        first, *others = zip(conflict.paths, conflict.labels, strict=False)
        for path, label in others:
            yield ("conflict", path, label, first[1], None, first[0], "batch")
    for file in report.rejected or []:
        yield ("rejected", file.path, None, None, None, None, file.reason)


def _alike(pairs: list[NearPair], where: str) -> Iterator[Row]:
    for pair in pairs:
        yield ("near_duplicate", pair.path, None, None, None, pair.like, where)


def counts_of(task: Task) -> dict[str, int]:
    """Return how many there are of each kind; lists are shorter where there are many."""
    report, data = task.report, task.report.data
    near = None if data is None else data.near_duplicates
    alike = (
        0
        if near is None
        else near.within.count + near.held_out.count + sum(one.count for one in near.earlier)
    )
    return {
        "suspect": (data.suspects_count or 0) if data is not None else 0,
        "near_duplicate": alike,
        "duplicate": report.duplicates or 0,
        "conflict": report.conflicts_count or 0,
        "rejected": report.rejected_count or 0,
    }
