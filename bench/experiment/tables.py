"""The summary in Markdown: figures as means ± standard deviations with the 95 % t-interval of the
mean.
"""

import statistics as stdlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from bench.experiment import statistics
from bench.experiment.depths import (
    NetworkDepthStudy,
    describe_depth_findings,
    format_statistic,
)
from bench.experiment.grid import BaseTrainingRun, Cell, ExperimentRun
from bench.experiment.outcomes import (
    RunOutcomeUnderProtocol,
    group_outcomes_by_table_cell,
    list_defined_outcome_figures,
)
from bench.experiment.plan import ExperimentPlan, PublishedAccuracy
from bench.experiment.runs import ExperimentResultStore

READOUTS = {
    "data": "one test set for all tasks",
    "task": "task-incremental",
    "class": "class-incremental",
}
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
    "new_megabytes": "MB/task",
    "kept_images": "images",
}
MEANINGS = {
    "acc": "mean accuracy over all tasks after the last one",
    "last": "accuracy over all test images after the last task",
    "average_incremental": "accuracy on the tasks so far, averaged over the stream",
    "bwt": "accuracy on earlier tasks at the end minus when learned",
    "forgetting": "best earlier accuracy on a task minus that at the end, mean over earlier tasks",
    "learning_accuracy": "accuracy on a task right after it",
    "update_norm": "Euclidean norm of a task's change of the weights that may move and were there "
    "before it, mean over tasks",
    "gap_to_joint": "accuracy of training on all data so far minus this one",
    "source": "accuracy on the base's classes at the end",
    "seconds": "time to learn a task, of the processor where it is learned on a CPU",
    "new_megabytes": "what a version stores that the one before does not have",
    "kept_images": "kept at the end",
}
WITH_INTERVAL = ("acc", "forgetting", "source")
SIGNS = (
    "`>`: the 95 % t-interval of the paired difference excludes 0; `≥`: it includes 0, or "
    "there is none."
)
NEAR = 2
"""Published standard deviations within which a figure counts as reproduced."""


def render_experiment_summary(
    plan: ExperimentPlan,
    runs: Sequence[ExperimentRun],
    bases: Sequence[BaseTrainingRun],
    store: ExperimentResultStore,
    outcomes: Sequence[RunOutcomeUnderProtocol],
    failed: Sequence[tuple[ExperimentRun, dict[str, Any]]],
) -> str:
    """Render the Markdown report of an experiment."""
    done = len({o.run.log_name for o in outcomes})  # runs that differ in name alone share a key
    lines = [f"# {plan.name}", "", plan.description.strip(), ""]
    lines += [
        f"{done} of {len(runs)} runs done, {len(failed)} failed, {len(runs) - done - len(failed)} "
        f"to do."
    ]
    lines += _render_environments(outcomes)
    lines += [
        "Values: mean ± standard deviation over orders and seeds [95 % t-interval of the mean].",
        "",
    ]
    lines += _render_base_accuracies(bases, store)
    # Cells without a result have a row too.
    cells: dict[Cell, list[RunOutcomeUnderProtocol]] = {
        cell: [] for run in runs for cell in run.table_cells
    }
    for cell, cell_outcomes in group_outcomes_by_table_cell(outcomes).items():
        cells[cell] = cell_outcomes
    references = [run.method for run in runs if run.reference and not run.joint]
    reference = references[0] if references else None
    for section in dict.fromkeys(cell[:3] for cell in cells):
        data, scenario, readout = section
        lines += [f"## {data}, {scenario} scenario, {READOUTS[readout]}", ""]
        rows = {cell: cell_outcomes for cell, cell_outcomes in cells.items() if cell[:3] == section}
        lines += _render_results_table(rows, failed, reference)
        study = NetworkDepthStudy([o for o in outcomes if o.table_cell_key[:3] == section])
        lines += (
            _render_depth_study(study, rows)
            if study.has_several_depths
            else _render_method_rankings(rows)
        )
    if plan.published:
        lines += _render_published_comparison(plan, cells, reference)
    if failed:
        lines += ["## Failed runs", "", *_render_markdown_table(["run", "kind", "reason", "file"], [
            [run.log_name, record["failure"]["kind"], record["failure"]["reason"],
             f"runs/{run.result_inputs_digest}.json"]
            for run, record in failed
        ]), ""]  # fmt: skip
    lines += _render_column_legend(cells)
    return "\n".join(lines)


def _render_environments(outcomes: Sequence[RunOutcomeUnderProtocol]) -> list[str]:
    environments = {
        _describe_environment(stage["environment"])
        for o in outcomes
        for stage in o.record["stages"]
    }
    return sorted(environments)


def _describe_environment(environment: dict[str, Any]) -> str:
    facts = {
        name: ", ".join(value) if isinstance(value, list) else value
        for name, value in environment.items()
    }
    return "; ".join(f"{name} {value}" for name, value in facts.items() if value != "") + "."


def _render_base_accuracies(
    bases: Sequence[BaseTrainingRun], store: ExperimentResultStore
) -> list[str]:
    lines = []
    for base in bases:
        facts = store.read_base_record(base.result_inputs_digest)
        if facts is not None:
            row = facts["results"][0]
            lines.append(
                f"Base {base.name} ({base.config['architecture']['name']}): "
                f"{100 * row['correct'] / row['total']:.2f} % on its {len(row['per_class'])} "
                f"classes."
            )
    return [*lines, ""] if lines else []


def _render_results_table(
    cells: dict[Cell, list[RunOutcomeUnderProtocol]],
    failed: Sequence[tuple[ExperimentRun, dict[str, Any]]],
    reference: str | None,
) -> list[str]:
    """Return a results table with a row per method and depth; columns that no row has are left out."""
    shown = _list_metrics_with_values(cells)
    against = [f"ACC − {reference}, paired %"] if reference else []
    head = ["method", "depth", "moving", "n", "failed", *(HEADINGS[f] for f in shown), *against]
    rows = []
    for cell, cell_outcomes in cells.items():
        row = [
            cell[3],
            str(cell[4]),
            _format_trained_parameters(cell_outcomes),
            str(len(cell_outcomes)),
        ]
        row.append(str(sum(cell in run.table_cells for run, _ in failed)))
        row += [
            _format_mean(
                list_defined_outcome_figures(cell_outcomes, f),
                f in PERCENT,
                interval=f in WITH_INTERVAL,
            )
            for f in shown
        ]
        if reference:
            twin = {o.order_and_seed: o for o in cells.get((*cell[:3], reference, cell[4]), [])}
            pairs = [
                (o.figures["acc"], twin[o.order_and_seed].figures["acc"])
                for o in cell_outcomes
                if o.order_and_seed in twin
            ]
            gains = [a - b for a, b in pairs if a is not None and b is not None]
            row.append("" if cell[3] == reference else _format_mean(gains, True, interval=True))
        rows.append(row)
    return [*_render_markdown_table(head, rows), ""]


def _list_metrics_with_values(cells: Mapping[Cell, Sequence[RunOutcomeUnderProtocol]]) -> list[str]:
    """Return the figures that some cell of a results table has."""
    return [
        figure
        for figure in HEADINGS
        if any(
            list_defined_outcome_figures(cell_outcomes, figure)
            for cell, cell_outcomes in cells.items()
            if (figure, cell[2]) != ("last", "task")
        )
    ]


def _render_column_legend(cells: Mapping[Cell, Sequence[RunOutcomeUnderProtocol]]) -> list[str]:
    meanings = [
        f"{HEADINGS[figure].removesuffix(' %')}: {MEANINGS[figure]}"
        for figure in _list_metrics_with_values(cells)
    ]
    return [
        "## Columns",
        "",
        "; ".join([*meanings, "moving: weights that the last task may move"]) + ".",
    ]


def _format_trained_parameters(outcomes: Sequence[RunOutcomeUnderProtocol]) -> str:
    """Format the number of trained parameters at the last task, and its share of all parameters."""
    if not outcomes:
        return "–"
    last = outcomes[0].record["stages"][-1]
    return f"{last['trainable']:,} ({100 * last['trainable'] / last['parameters']:.1f} %)"


def _format_mean(values: Sequence[float], percent: bool, *, interval: bool) -> str:
    if not values:
        return "–"
    factor = 100 if percent else 1
    deviation, limits = (
        statistics.compute_standard_deviation(values),
        statistics.compute_t_interval(values),
    )
    text = f"{factor * stdlib.fmean(values):.2f}"
    text += f" ± {factor * deviation:.2f}" if deviation is not None else ""
    if interval and limits:
        text += f" [{factor * limits[0]:.2f}, {factor * limits[1]:.2f}]"
    return text


def format_method_ranking(
    methods: Mapping[str, Sequence[RunOutcomeUnderProtocol]], figure: str
) -> str:
    """Rank methods by mean, with ">" for a significant difference to the next and "≥" otherwise."""
    figures_by_method = {
        name: {o.order_and_seed: o.figures[figure] for o in method_results}
        for name, method_results in methods.items()
    }
    means = {
        name: stdlib.fmean(method_results)
        for name in methods
        if (method_results := list_defined_outcome_figures(methods[name], figure))
    }
    names = sorted(means, key=lambda name: -means[name])
    text = names[0] if names else "–"
    for above, below in pairwise(names):
        pairs = [
            (value, figures_by_method[below].get(repetition))
            for repetition, value in figures_by_method[above].items()
        ]
        limits = statistics.compute_t_interval(
            [a - b for a, b in pairs if a is not None and b is not None]
        )
        text += f" {'>' if limits and limits[0] > 0 else '≥'} {below}"
    return text


def _render_method_rankings(cells: Mapping[Cell, Sequence[RunOutcomeUnderProtocol]]) -> list[str]:
    """Render the rankings of methods that start from the same base."""
    groups: dict[str, dict[str, list[RunOutcomeUnderProtocol]]] = {}
    for outcome in (o for outcomes in cells.values() for o in outcomes):
        base = outcome.run.base.name if outcome.run.base else ""
        groups.setdefault(base, {}).setdefault(outcome.run.method, []).append(outcome)
    lines = []
    for base, methods in groups.items():
        for figure in ("acc", "source"):
            outcomes = {
                name: one
                for name, one in methods.items()
                if list_defined_outcome_figures(one, figure)
            }
            if len(outcomes) > 1:
                start = f"From {base}, by" if base else "By"
                lines.append(
                    f"- {start} {HEADINGS[figure].removesuffix(' %')}: {format_method_ranking(outcomes, figure)}"
                )
    return [*lines, "", SIGNS, ""] if lines else []


def _render_depth_study(
    study: NetworkDepthStudy, cells: Mapping[Cell, Sequence[RunOutcomeUnderProtocol]]
) -> list[str]:
    lines = ["### Depths", ""]
    for finding in describe_depth_findings(study):
        lines += [finding, ""]
    rows = []
    for i, depth in enumerate(study.depths):
        pearson, spearman = (
            study.correlate_forgetting_with_update_norm(i, c)
            for c in (
                statistics.compute_pearson_correlation,
                statistics.compute_spearman_correlation,
            )
        )
        figures = (study.compute_mean_update_norm(i), study.compute_mean_forgetting(i))
        rows.append(
            [
                str(depth),
                *map(format_statistic, figures),
                str(study.count_measured_runs(i)),
                *map(format_statistic, (pearson, spearman)),
            ]
        )
    head = ["depth", "update norm", "forgetting", "n", "Pearson r, forgetting ~ update", "Spearman"]
    lines += [*_render_markdown_table(head, rows), ""]
    ranks = []
    for depth in study.depths:
        outcomes_by_method = {
            cell[3]: one
            for cell, one in cells.items()
            if cell[4] == depth and cell[3] in study.methods
        }
        ranks.append([str(depth), format_method_ranking(outcomes_by_method, "acc")])
    lines += [*_render_markdown_table(["depth", "methods by ACC"], ranks), "", SIGNS]
    pairs = [
        [f"{study.depths[a]}, {study.depths[b]}", format_statistic(figure)]
        for (a, b), figure in study.compute_ranking_agreements().items()
    ]
    lines += [
        "",
        *_render_markdown_table(["depths", "Kendall tau-b of the methods' ranks by ACC"], pairs),
        "",
    ]
    lines += ["Update norm and forgetting: means over methods [95 % t-interval over orders and "
              "seeds]. n: runs correlated. Intervals of correlations and tau: bootstrap over "
              "orders and seeds.",
              ""]  # fmt: skip
    return lines


def _render_published_comparison(
    plan: ExperimentPlan,
    cells: Mapping[Cell, Sequence[RunOutcomeUnderProtocol]],
    reference: str | None,
) -> list[str]:
    """Render a table of our results beside published ones."""
    assert plan.published is not None
    theirs: dict[tuple[str, str], PublishedAccuracy] = {
        (value.scenario, value.method): value for value in plan.published.values
    }
    rows, gaps = [], []
    for (data, scenario, readout, method, depth), cell_outcomes in cells.items():
        value = theirs.get((scenario, method))
        if value is None or readout != scenario:
            continue
        ours = list_defined_outcome_figures(cell_outcomes, "acc")
        row = [
            data,
            method,
            scenario,
            str(depth),
            str(len(ours)),
            _format_mean(ours, True, interval=True),
        ]
        row += [f"{value.mean:.2f} ± {value.sd:.2f}", "–"]
        if ours:
            gap = (100 * stdlib.fmean(ours) - value.mean) / value.sd
            gaps.append((abs(gap), f"{method} in the {scenario} scenario, {gap:+.2f}"))
            row[-1] = f"{gap:+.2f}"
        if reference:
            plain = list_defined_outcome_figures(
                cells.get((data, scenario, readout, reference, depth), []), "acc"
            )
            reference_value = theirs.get((scenario, reference))
            gains = [
                f"{100 * (stdlib.fmean(ours) - stdlib.fmean(plain)):+.2f}"
                if ours and plain
                else "–",
                f"{value.mean - reference_value.mean:+.2f}" if reference_value else "–",
            ]
            row.append("" if method == reference else " / ".join(gains))
        rows.append(row)
    head = [
        "data",
        "method",
        "scenario",
        "depth",
        "n",
        "ACC %",
        "published ACC %",
        "gap in published sd",
    ]
    head += [f"ACC − {reference} %, ours / published"] if reference else []
    lines = ["## Against published results", "", f"{plan.published.source}.", ""]
    if gaps:
        near = sum(gap <= NEAR for gap, _ in gaps)
        lines.append(
            f"**{near} of {len(gaps)} figures are within {NEAR} published standard deviations.** "
            f"Farthest: {max(gaps)[1]}."
        )
        lines.append("")
    return [*lines, *_render_markdown_table(head, rows), ""]


def _render_markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    def format_table_line(cells: Sequence[str]) -> str:
        return (
            "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
        )

    return [
        format_table_line(head),
        "|" + " --- |" * len(head),
        *(format_table_line(row) for row in rows),
    ]
