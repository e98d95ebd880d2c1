"""Makes `docs/gpu.md` of the result files of `bench.gpu.check` and `bench.gpu.figures`.

    python -m bench.gpu.table [RESULT.json …] [--out docs/gpu.md]

Without files, those in `bench/gpu/results` are taken: commit the result of a GPU there. Of several
results of a step the last one counts, but one that ended well is not replaced by one that did not.
Dry runs (`--tiny`, or another device than `cuda`) show that the code runs, and are named as that.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from bench.gpu.result import GpuCheckResult, GpuCheckStepResult, read_gpu_check_results
from bench.gpu.steps import STEPS, GpuCheckStep, render_gpu_check_step_table

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "gpu.md"
TEMPLATE = Path(__file__).with_name("page.md")
RESULTS = Path(__file__).with_name("results")
PRINTED = "lines"
"""The figure that holds what a program has printed."""
CELL_CHARACTERS = 300
"""Longer cells of a table are cut: the whole text is in the result file."""


def main() -> int:
    """Write the page with the results of the GPU checks, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="*", type=Path, metavar="RESULT.json")
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    options.out.write_text(
        render_gpu_check_results_page(options.results or list_committed_gpu_check_results()),
        encoding="utf-8",
    )
    return 0


def list_committed_gpu_check_results() -> list[Path]:
    """Return the result files of GPU checks that are committed in the repository."""
    return sorted(RESULTS.glob("*.json"))


def render_gpu_check_results_page(files: Sequence[Path]) -> str:
    """Render the page with the results of the GPU checks in Markdown."""
    result = merge_gpu_check_step_outcomes([read_gpu_check_results(file) for file in files])
    template = TEMPLATE.read_text(encoding="utf-8")
    return template.replace("{shown}", _render_gpu_check_sections(result)).replace(
        "{plan}", render_gpu_check_step_table()
    )


def merge_gpu_check_step_outcomes(results: Sequence[GpuCheckResult]) -> GpuCheckResult:
    """Merge outcomes of GPU-check steps: the last of each step, but a success before failures."""
    merged = GpuCheckResult()
    for result in results:
        for name, step in result.steps.items():
            before = merged.steps.get(name)
            if before is None or before.status != "ok" or step.status == "ok":
                merged = merged.copy_with_step(name, step)
    return merged


def _render_gpu_check_sections(result: GpuCheckResult) -> str:
    """Render the outcomes of GPU-check steps as Markdown sections."""
    on_gpu = any(step.device == "cuda" and not step.tiny for step in result.steps.values())
    if not result.steps:
        return "No step has run on a GPU yet: every statement about CUDA rests on reading the code."
    lines = (
        []
        if on_gpu
        else ["These are dry runs: they show that the steps run, and nothing about a GPU.", ""]
    )
    lines += [
        *_render_machines(result),
        "",
        "| call | step | device | result | seconds |",
        "| --- | --- | --- | --- | ---: |",
    ]
    lines += [_render_outcome_row(step, result.steps.get(name)) for name, step in STEPS.items()]
    for name, step in STEPS.items():
        if name in result.steps:
            lines += ["", *_render_step_section(step, result.steps[name])]
    return "\n".join(lines)


def _render_machines(result: GpuCheckResult) -> list[str]:
    """Render a line for each machine on which GPU-check steps ran."""
    lines: dict[str, None] = {}
    for step in result.steps.values():
        if (machine := step.machine) is not None:
            versions = {"driver": machine.driver, "CUDA": machine.cuda, "cuDNN": machine.cudnn}
            parts = [f"{name} {value}" for name, value in versions.items() if value is not None]
            parts = [
                f"torch {machine.torch}",
                *parts,
                f"Python {machine.python}",
                f"{machine.cores} cores",
            ]
            lines[f"- {machine.device}: {machine.card}; {', '.join(parts)}."] = None
    return list(lines)


def _render_outcome_row(step: GpuCheckStep, outcome: GpuCheckStepResult | None) -> str:
    if outcome is None:
        return f"| `{step.program}` | {step.name} | – | **missing** | – |"
    size = ", dry run" if outcome.tiny else ""
    status = outcome.status if outcome.status == "ok" else f"**{outcome.status}**"
    return (
        f"| `{step.program}` | {step.name} | {outcome.device}{size} | {status} | "
        f"{outcome.seconds} |"
    )


def _render_step_section(step: GpuCheckStep, outcome: GpuCheckStepResult) -> list[str]:
    """Render one step of the GPU check: what it shows, its problems and its figures."""
    lines = [f"### {step.name[0].upper()}{step.name[1:]}", "", f"Shows: {step.shows}."]
    if outcome.error is not None:
        errors = [f"- {_escape_cell_text(line)}" for line in outcome.error.splitlines()]
        lines += ["", f"The step is **{outcome.status}**:", "", *errors]
    printed = outcome.figures.get(PRINTED)
    plain = {
        name: v
        for name, v in outcome.figures.items()
        if name != PRINTED and not _is_measurement_table(v)
    }
    if plain:
        lines += ["", "| figure | value |", "| --- | --- |"]
        lines += [
            f"| {_escape_cell_text(name)} | {_escape_cell_text(_format_measurement(value))} |"
            for name, value in plain.items()
        ]
    for name, value in outcome.figures.items():
        if isinstance(value, dict) and _is_measurement_table(value):
            lines += [
                "",
                f"{_escape_cell_text(name[0].upper() + name[1:])}:",
                "",
                *_render_measurement_table(value),
            ]
    if isinstance(printed, list):
        lines += ["", "```text", *map(str, printed), "```"]
    return lines


def _is_measurement_table(value: JsonValue) -> bool:
    """Return True if a figure is a table: rows by name, of which one has columns."""
    return isinstance(value, dict) and any(isinstance(row, dict) for row in value.values())


def _render_measurement_table(rows: Mapping[str, JsonValue]) -> list[str]:
    """Render a figure with rows by name as a Markdown table."""
    flat: dict[str, Mapping[str, JsonValue]] = {}
    for name, row in rows.items():
        if isinstance(row, dict) and row and all(isinstance(cell, dict) for cell in row.values()):
            flat |= {
                f"{name}, {kind}": inner for kind, inner in row.items() if isinstance(inner, dict)
            }
        else:
            flat[name] = row if isinstance(row, dict) else {"error": row}
    columns = list(dict.fromkeys(column for row in flat.values() for column in row))
    lines = [f"| | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
    for name, cells in flat.items():
        texts = [
            _escape_cell_text(_format_measurement(cells[column])) if column in cells else ""
            for column in columns
        ]
        lines.append(f"| {_escape_cell_text(name)} | {' | '.join(texts)} |")
    return lines


def _format_measurement(value: JsonValue) -> str:
    if isinstance(value, dict):
        return (
            ", ".join(f"{name}: {_format_measurement(item)}" for name, item in value.items())
            or "none"
        )
    if isinstance(value, list):
        return "; ".join(_format_measurement(item) for item in value) or "none"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _escape_cell_text(text: str) -> str:
    """Escape text for a cell or list item in Markdown."""
    escaped_text = " ".join(text.replace("|", "\\|").split())
    return (
        escaped_text
        if len(escaped_text) <= CELL_CHARACTERS
        else f"{escaped_text[:CELL_CHARACTERS]}…"
    )


if __name__ == "__main__":
    sys.exit(main())
