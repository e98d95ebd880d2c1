"""The results as one tidy CSV and as a summary in Markdown.

In the CSV a row is a run × stage × protocol × test set, with counts; everything in the summary follows from
it. In the summary figures are means ± standard deviations with the 95 % t-interval of the mean.
"""

import csv
import io
import statistics as stdlib
from collections.abc import Iterable, Sequence
from typing import Any

from bench.experiment import statistics
from bench.experiment.depths import DepthStudy, findings, show
from bench.experiment.grid import BaseRun, Cell, Run
from bench.experiment.outcomes import Outcome, by_cell, values
from bench.experiment.plan import Plan
from bench.experiment.runs import Store

READOUTS = {"task": "task-incremental", "class": "class-incremental"}
PERCENT = (
    "acc",
    "last",
    "average_incremental",
    "bwt",
    "forgetting",
    "learning_accuracy",
    "gap_to_joint",
    "source",
)
HEADINGS = {
    "acc": "ACC %",
    "last": "last %",
    "average_incremental": "AA %",
    "bwt": "BWT %",
    "forgetting": "forgetting %",
    "learning_accuracy": "when learned %",
    "update_norm": "update norm",
    "gap_to_joint": "below joint %",
    "source": "source %",
    "seconds": "s/task",
}
WITH_INTERVAL = ("acc", "forgetting", "source")
RUN_COLUMNS = (
    "key",
    "data",
    "scenario",
    "method",
    "depth",
    "order",
    "seed",
    "architecture",
    "base",
    "status",
)
STAGE_COLUMNS = (
    "stage", "seconds", "update_backbone", "update_head", "update_relative", "trainable", "parameters",
    "state_bytes",
)  # fmt: skip
TEST_COLUMNS = ("readout", "test", "correct", "total", "accuracy")


def to_csv(runs: Sequence[Run], store: Store) -> str:
    """The tidy table. `test` is a task's number or "source"; a failed run has a last row with its reason."""
    out = io.StringIO()
    columns = [*RUN_COLUMNS, *STAGE_COLUMNS, *TEST_COLUMNS, "reason"]
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    for run in runs:
        record = store.record(run.key)
        if record is None:
            continue
        known = {
            **{name: getattr(run, name) for name in RUN_COLUMNS[1:7]},
            "key": run.key,
            "architecture": run.config["architecture"]["name"],
            "base": run.base.name if run.base else "",
            "status": record["status"],
        }
        for stage in record["stages"]:
            norms = {f"update_{name}": value for name, value in stage["update_norm"].items()}
            facts = {name: stage[name] for name in STAGE_COLUMNS if not name.startswith("update_")}
            for row in stage["results"]:
                counts = {name: row[name] for name in ("readout", "test", "correct", "total")}
                accuracy = row["correct"] / row["total"] if row["total"] else None
                writer.writerow({**known, **facts, **norms, **counts, "accuracy": accuracy})
        if record["status"] == "failed":
            writer.writerow({**known, "reason": record["failure"]["reason"]})
    return out.getvalue()


def summary(
    plan: Plan,
    runs: Sequence[Run],
    bases: Sequence[BaseRun],
    store: Store,
    outcomes: Sequence[Outcome],
    failed: Sequence[tuple[Run, dict[str, Any]]],
) -> str:
    """The Markdown report."""
    done = len({o.run.key for o in outcomes})
    lines = [f"# {plan.name}", "", plan.description.strip(), ""]
    lines += [
        f"{done} of {len(runs)} runs done, {len(failed)} failed, {len(runs) - done - len(failed)} to do."
    ]
    lines += _environments(outcomes)
    lines += ["Values: mean ± standard deviation over orders and seeds [95 % t-interval of the mean].", ""]
    lines += _bases(bases, store)
    # Cells without a result have a row too.
    cells: dict[Cell, list[Outcome]] = {cell: [] for run in runs for cell in run.cells}
    for cell, found in by_cell(outcomes).items():
        cells[cell] = found
    references = [run.method for run in runs if run.reference and not run.joint]
    for section in dict.fromkeys(cell[:3] for cell in cells):
        data, scenario, readout = section
        lines += [f"## {data}, {scenario} scenario, {READOUTS[readout]}", ""]
        rows = {cell: found for cell, found in cells.items() if cell[:3] == section}
        lines += _table(rows, failed, references[0] if references else None)
        study = DepthStudy([o for o in outcomes if o.cell[:3] == section])
        if study.compares:
            lines += _depths(study)
    if plan.published:
        lines += _published(plan, cells)
    if failed:
        lines += ["## Failed runs", "", *_rows(["run", "kind", "reason"], [
            [run.name, record["failure"]["kind"], record["failure"]["reason"]] for run, record in failed
        ])]  # fmt: skip
    return "\n".join(lines)


def _environments(outcomes: Sequence[Outcome]) -> list[str]:
    found = {tuple(stage["environment"].items()) for o in outcomes for stage in o.record["stages"]}
    return ["; ".join(f"{name} {value}" for name, value in one) + "." for one in sorted(found)]


def _bases(bases: Sequence[BaseRun], store: Store) -> list[str]:
    lines = []
    for base in bases:
        facts = store.base_facts(base.key)
        if facts is not None:
            row = facts["results"][0]
            lines.append(
                f"Base {base.name} ({base.config['architecture']['name']}): "
                f"{100 * row['correct'] / row['total']:.2f} % on its {len(row['per_class'])} classes."
            )
    return [*lines, ""] if lines else []


def _table(
    cells: dict[Cell, list[Outcome]], failed: Sequence[tuple[Run, dict[str, Any]]], reference: str | None
) -> list[str]:
    """A row per method and depth; columns that no row has are left out."""
    same = {"last"} if next(iter(cells))[2] == "task" else set()  # it is ACC there
    shown = [f for f in HEADINGS if f not in same and any(values(found, f) for found in cells.values())]
    against = [f"ACC − {reference}, paired %"] if reference else []
    head = ["method", "depth", "moving", "n", "failed", *(HEADINGS[f] for f in shown), *against]
    rows = []
    for cell, found in cells.items():
        row = [cell[3], str(cell[4]), _moving(found), str(len(found))]
        row.append(str(sum(cell in run.cells for run, _ in failed)))
        row += [_mean(values(found, f), f in PERCENT, interval=f in WITH_INTERVAL) for f in shown]
        if reference:
            twin = {o.repetition: o for o in cells.get((*cell[:3], reference, cell[4]), [])}
            pairs = [
                (o.figures["acc"], twin[o.repetition].figures["acc"]) for o in found if o.repetition in twin
            ]
            gains = [a - b for a, b in pairs if a is not None and b is not None]
            row.append("" if cell[3] == reference else _mean(gains, True, interval=True))
        rows.append(row)
    return [*_rows(head, rows), ""]


def _moving(found: Sequence[Outcome]) -> str:
    """|S| at the last task, and its share of all parameters."""
    if not found:
        return "–"
    last = found[0].record["stages"][-1]
    return f"{last['trainable']:,} ({100 * last['trainable'] / last['parameters']:.1f} %)"


def _mean(found: Sequence[float], percent: bool, *, interval: bool) -> str:
    if not found:
        return "–"
    factor = 100 if percent else 1
    deviation, limits = statistics.sd(found), statistics.t_interval(found)
    text = f"{factor * stdlib.fmean(found):.2f}"
    text += f" ± {factor * deviation:.2f}" if deviation is not None else ""
    if interval and limits:
        text += f" [{factor * limits[0]:.2f}, {factor * limits[1]:.2f}]"
    return text


def _depths(study: DepthStudy) -> list[str]:
    lines = ["### Depths", ""]
    for finding in findings(study):
        lines += [finding, ""]
    rows = []
    for i, depth in enumerate(study.depths):
        pearson, spearman = (study.correlation(i, c) for c in (statistics.pearson, statistics.spearman))
        rows.append([str(depth), show(study.updates(i)), str(study.points(i)), show(pearson), show(spearman)])
    lines += _rows(["depth", "update norm", "n", "Pearson r, forgetting ~ update", "Spearman"], rows)
    pairs = [
        [f"{study.depths[a]}, {study.depths[b]}", show(figure)]
        for (a, b), figure in study.agreements().items()
    ]
    lines += ["", *_rows(["depths", "Kendall tau-b of the methods' ranks by ACC"], pairs), ""]
    lines += ["Intervals of correlations and tau: bootstrap over orders and seeds.", ""]
    return lines


def _published(plan: Plan, cells: dict[Cell, list[Outcome]]) -> list[str]:
    assert plan.published is not None
    rows = []
    for value in plan.published.values:
        for cell, found in cells.items():
            _, scenario, readout, method, depth = cell
            ours = values(found, "acc")
            if (scenario, readout, method) != (value.scenario, value.scenario, value.method) or not ours:
                continue
            off = (100 * stdlib.fmean(ours) - value.mean) / value.sd
            mean = f"{value.mean:.2f} ± {value.sd:.2f}"
            rows.append(
                [
                    method,
                    scenario,
                    str(depth),
                    str(len(ours)),
                    _mean(ours, True, interval=True),
                    mean,
                    f"{off:+.2f}",
                ]
            )
    head = ["method", "scenario", "depth", "n", "ACC %", "published ACC %", "gap in published sd"]
    return ["## Against published results", "", f"{plan.published.source}.", "", *_rows(head, rows), ""]


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return [line(head), "|" + " --- |" * len(head), *(line(row) for row in rows)]
