"""HTML of responses in a notebook, and the bar that is drawn there during a wait.

The HTML contains its styles, in the colours of the page around it: light and dark. Every value is
escaped, also hostile names, and nothing is loaded from the network.
"""

from __future__ import annotations

import base64
import html
import importlib
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from perennial._types import Compare, Job, ListedModel, Metrics, Model, Version
from perennial.bars import compute_job_share_done, describe_job_state, describe_job_time_left
from perennial.text import format_count_with_noun, make_text_one_line
from perennial.words import format_action_command, replace_requests_by_commands

if TYPE_CHECKING:
    from perennial._types import Attention, GateCheck
    from perennial.comparison import Comparison

MOST_ROWS = 12
"""Most classes, checks and entries that a table shows."""
MOST_CHARS = 2000
"""Most characters that are shown of one value."""
MOST_CELLS = 30
"""Most rows and columns that a matrix shows; the last ones are shown."""
BETWEEN_S = 0.1
"""Shortest time between two drawings of a bar, in seconds."""
_BOX = "font-family:sans-serif;line-height:1.45;max-width:56em"
_TABLE = "border-collapse:collapse;margin:.4em 0"
_CELL = "padding:.15em .8em .15em 0;text-align:left;vertical-align:top;background:none"
_NUMBER = "padding:.15em .8em;text-align:right;font-variant-numeric:tabular-nums"
_QUIET = "opacity:.7"
_GOOD, _BAD, _WAITS = "#2e9e5b", "#d64545", "#c98a1b"
_FIGURE = "display:inline-block;width:9em;margin:0 .8em .8em 0;vertical-align:top;font-size:85%"
_IMAGE = "width:100%;image-rendering:pixelated;display:block"


def render_response_as_html(response: Any) -> str | None:
    """Render a model, version, job, comparison or matrix as HTML for notebooks; None for others."""
    for kind, show in _SHOWN.items():
        if isinstance(response, kind):
            return f'<div style="{_BOX}">{show(response)}</div>'
    return None


def render_comparison_as_html(comparison: Comparison) -> str:
    """Render a comparison of two versions as HTML, with pictures of the images that flipped."""
    a, b = comparison.compare.a.version, comparison.compare.b.version
    figures = []
    for image, content in zip(comparison.images, comparison.pictures, strict=True):
        source = f"data:image/png;base64,{base64.b64encode(content).decode()}"
        caption_lines = [
            f"<b>{_escape_and_shorten_html_text(image.label)}</b>",
            f"{a}: {_format_prediction(image.a.label, image.a.probability)}",
            f"{b}: {_format_prediction(image.b.label, image.b.probability)}",
        ]
        picture_html = f'<img src="{source}" alt="{_escape_and_shorten_html_text(image.label)}" style="{_IMAGE}">'
        figures.append(f'<div style="{_FIGURE}">{picture_html}{"<br>".join(caption_lines)}</div>')
    table = _render_version_comparison_as_html(comparison.compare)
    return f'<div style="{_BOX}">{table}<div>{"".join(figures)}</div></div>'


def is_running_in_notebook() -> bool:
    """Return True if the code runs in a notebook, which can show HTML."""
    ipython = sys.modules.get("IPython")
    # IPython may be imported without a notebook, as in its own shell; only a kernel shows HTML.
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class LiveHtml:
    """A display area below a notebook cell, whose HTML can be replaced repeatedly."""

    def __init__(self) -> None:
        # By name, because IPython is no dependency: only a notebook brings it.
        self._display = importlib.import_module("IPython.display")
        self._handle: Any = None
        self._drawn = 0.0

    def replace_html_at_limited_rate(self, content: str, *, is_last: bool = False) -> None:
        """Replace the HTML shown in a notebook, at most a few times per second."""
        now = time.monotonic()
        # Each drawing is a message from the kernel to the browser,
        # and chunks arrive far more often.
        if self._handle is not None and not is_last and now - self._drawn < BETWEEN_S:
            return
        self._drawn = now
        rendered = self._display.HTML(content)
        if self._handle is None:
            self._handle = self._display.display(rendered, display_id=True)
        else:
            self._handle.update(rendered)


def render_transfer_bar(title: str, done: int, total: int | None) -> str:
    """Render the progress of an upload or download as an HTML bar, in bytes."""
    amount = f"{_format_bytes(done)} of {_format_bytes(total)}" if total else _format_bytes(done)
    bar = _render_share_bar(done / total if total else 0.0, _GOOD)
    return f'<div style="{_BOX}">{_escape_and_shorten_html_text(title)}: {amount}{bar}</div>'


def _render_model_as_html(model: Model | ListedModel) -> str:
    production = model.aliases.get("production")
    where = "none yet" if production is None else f"version {production}"
    rows = [
        ("production", where if model.production_follows else f"{where}, put there by hand"),
        ("newest", "" if model.line_head is None else f"version {model.line_head}"),
        ("scenario", model.scenario),
        (
            "base",
            model.base
            if isinstance(model.base, str)
            else f"{model.base.model} {model.base.version}",
        ),
        (
            "images",
            f"{model.image.size} pixels, {model.image.channels} "
            f"channel{'s' * (model.image.channels != 1)}",
        ),
        ("tags", ", ".join(model.tags)),
    ]
    about = (
        f"<div>{_escape_and_shorten_html_text(model.description)}</div>"
        if model.description
        else ""
    )
    waits = "".join(
        _render_attention_as_html(entry, model.name) for entry in model.attention[:MOST_ROWS]
    )
    return f"{_render_heading('Model', model.name, model.id)}{about}{_render_html_pairs_table(rows)}{waits}"


def _render_attention_as_html(entry: Attention, model: str) -> str:
    """Render a decision that a model waits for as HTML, with the commands that make it."""
    commands = [
        f"<li><code>{_escape_and_shorten_html_text(format_action_command(action, model))}</code></li>"
        for action in entry.actions
    ]
    detail = _escape_and_shorten_html_text(replace_requests_by_commands(entry.detail))
    detail_html = f'<span style="color:{_WAITS}">●</span> {detail}'
    return f"<div>{detail_html}<ul>{''.join(commands)}</ul></div>"


def _render_version_as_html(version: Version) -> str:
    name = version.manifest.name or ""
    rows = [
        ("status", version.status),
        ("learned", "" if version.task is None else f"task {version.task}"),
        ("from", "" if version.parent is None else f"version {version.parent}"),
        ("size", f"{_format_bytes(version.bytes)}, {_format_bytes(version.bytes_new)} of them new"),
        ("accuracy", _format_mean_accuracy(version.accuracy)),
        ("note", version.note or ""),
    ]
    checks = [_build_gate_check_row(check) for check in version.gate.checks[:MOST_ROWS]]
    gate = _render_html_table(("gate", "found", "limit", ""), checks) if checks else ""
    warned = "".join(
        f"<div>{_escape_and_shorten_html_text(replace_requests_by_commands(one))}</div>"
        for one in version.warnings[:MOST_ROWS]
    )
    mark = _render_passed_mark(version.gate.passed)
    title = _render_heading(
        "Version", f"{version.number} of {name}" if name else str(version.number), version.id
    )
    verdict = f"<div>{mark} its gate {'passed' if version.gate.passed else 'failed'}</div>"
    return f"{title}{_render_html_pairs_table(rows)}{verdict}{gate}{warned}"


def _build_gate_check_row(check: GateCheck) -> tuple[str, str, str, str]:
    value = "not measured" if check.not_measured is not None else _format_number(check.value)
    return (
        _escape_and_shorten_html_text(check.name),
        _escape_and_shorten_html_text(value),
        _escape_and_shorten_html_text(_format_number(check.limit)),
        _render_passed_mark(check.passed),
    )


def _render_job_as_html(job: Job) -> str:
    state_word, progress = describe_job_state(job), job.progress
    color = {
        "held": _WAITS,
        "waiting": _WAITS,
        "paused": _WAITS,
        "choosing": _WAITS,
        "failed": _BAD,
        "rejected": _BAD,
    }
    numbers = []
    if progress.step is not None and progress.total_steps:
        numbers.append(f"step {progress.step:,} of {progress.total_steps:,}")
    if progress.images_per_s is not None and not job.is_terminal:
        numbers.append(f"{progress.images_per_s:,.0f} images/s")
    if describe_job_time_left(job):
        numbers.append(describe_job_time_left(job))
    kind = f"({job.kind})" if job.task is None else f"({job.kind}, task {job.task})"
    rows = [
        ("state", ", ".join([state_word, *numbers])),
        ("version", "" if job.version is None else f"{job.version} ({job.outcome})"),
        ("waits", replace_requests_by_commands(job.waiting_for.detail) if job.waiting_for else ""),
        ("error", job.error.detail if job.error else ""),
    ]
    bar = _render_share_bar(compute_job_share_done(job), color.get(state_word, _GOOD))
    return f"{_render_heading('Job', kind, job.id)}{bar}{_render_html_pairs_table(rows)}"


def _render_version_comparison_as_html(compare: Compare) -> str:
    a, b, total = compare.a.version, compare.b.version, compare.totals
    rows = [
        ("images", f"{total.n:,}"),
        ("both right", f"{total.both_right:,}"),
        (f"only {a} right", f"{total.negative:,}"),
        (f"only {b} right", f"{total.positive:,}"),
        ("both wrong", f"{total.both_wrong:,}"),
        ("p that they are equally good", _format_number(total.mcnemar_p)),
    ]
    classes = [
        (
            _escape_and_shorten_html_text(one.label),
            _escape_and_shorten_html_text(one.n),
            _escape_and_shorten_html_text(one.negative),
            _escape_and_shorten_html_text(one.positive),
        )
        for one in compare.classes[:MOST_ROWS]
    ]
    more = compare.classes_total - len(classes)
    further_classes = f'<div style="{_QUIET}">and {more:,} more classes</div>' if more > 0 else ""
    left_out_notes = "".join(
        f'<div style="{_QUIET}">{_escape_and_shorten_html_text(one.detail)}</div>'
        for one in compare.left_out[:MOST_ROWS]
    )
    table = (
        _render_html_table(("class", "images", f"only {a} right", f"only {b} right"), classes)
        + further_classes
        if classes
        else ""
    )
    heading = _render_heading("Versions", f"{a} and {b}", compare.model)
    return f"{heading}{_render_html_pairs_table(rows)}{table}{left_out_notes}"


def _render_accuracy_matrix_as_html(metrics: Metrics) -> str:
    columns = metrics.columns[-MOST_CELLS:]
    head = "".join(
        f'<th style="{_NUMBER}" title="{_escape_and_shorten_html_text(column.name or "")}">task {column.task}</th>'
        for column in columns
    )
    rows = []
    edited = {(mark.version, mark.task) for mark in metrics.marks or ()}
    # The last rows and columns: the newest versions and tasks.
    for row, cells in [*zip(metrics.rows, metrics.accuracy_matrix, strict=False)][-MOST_CELLS:]:
        named_cells = zip(columns, cells[-len(columns) :] if columns else [], strict=False)
        cells_html = "".join(
            _render_accuracy_cell(cell, is_edited=(row.version, column.task) in edited)
            for column, cell in named_cells
        )
        rows.append(f'<tr><th style="{_CELL}">version {row.version}</th>{cells_html}</tr>')
    table = (
        f'<table style="{_TABLE}"><tr><th style="{_CELL}"></th>{head}</tr>{"".join(rows)}</table>'
    )
    return f"{_render_heading('Accuracy', f'up to version {metrics.version}', '')}{table}"


def _render_accuracy_cell(accuracy: float | None, *, is_edited: bool) -> str:
    if accuracy is None:
        return f'<td style="{_NUMBER};{_QUIET}">–</td>'
    shade = f"background:rgba(46,158,91,{0.6 * min(1.0, max(0.0, accuracy)):.2f})"
    mark = ' title="labels edited"' if is_edited else ""
    return f'<td style="{_NUMBER};{shade}"{mark}>{accuracy:.3f}{"*" if is_edited else ""}</td>'


def _escape_and_shorten_html_text(value: object) -> str:
    """Escape a value for HTML text and attributes, on one line and shortened."""
    # Cut before it is escaped, so that no entity is cut in two.
    text = make_text_one_line(str(value)[:MOST_CHARS])
    return html.escape(text if len(str(value)) <= MOST_CHARS else f"{text}…", quote=True)


def _format_bytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:,.1f} kB"


def _format_mean_accuracy(accuracy: Sequence[float | None]) -> str:
    """Format the mean of a version's measured accuracies."""
    measured = [one for one in accuracy if one is not None]
    tasks = format_count_with_noun(len(measured), "task")
    return f"{sum(measured) / len(measured):.3f} over {tasks}" if measured else ""


def _format_number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _format_prediction(label: str, probability: float | None) -> str:
    return (
        _escape_and_shorten_html_text(label)
        if probability is None
        else f"{_escape_and_shorten_html_text(label)} ({probability:.2f})"
    )


def _render_heading(kind: str, name: str, id_: str) -> str:
    name_html = (
        f"<b>{_escape_and_shorten_html_text(kind)} {_escape_and_shorten_html_text(name)}</b>"
    )
    return (
        f'<div>{name_html} <span style="{_QUIET}">{_escape_and_shorten_html_text(id_)}</span></div>'
    )


def _render_passed_mark(passed: bool) -> str:
    color, sign, label = (_GOOD, "✓", "passed") if passed else (_BAD, "✗", "failed")
    return f'<span style="color:{color}" title="{label}">{sign}</span>'


def _render_share_bar(share: float, color: str) -> str:
    # The share comes from the service: above 1, the bar would grow out of its frame.
    percent = 100 * min(1.0, max(0.0, share))
    inner = (
        f'<div style="width:{percent:.0f}%;height:100%;background:{color};border-radius:3px"></div>'
    )
    frame = "display:inline-block;width:24em;max-width:80%;height:.7em;border-radius:3px"
    outer = f'<div style="{frame};background:rgba(128,128,128,.25)">{inner}</div>'
    return f"<div>{outer} {percent:.0f} %</div>"


def _render_html_pairs_table(rows: Iterable[tuple[str, str]]) -> str:
    """Render names and values as an HTML table, without empty values."""
    row_texts = [
        f'<tr><td style="{_CELL};{_QUIET}">{_escape_and_shorten_html_text(name)}</td><td '
        f'style="{_CELL}">{_escape_and_shorten_html_text(value)}</td></tr>'
        for name, value in rows
        if value
    ]
    return f'<table style="{_TABLE}">{"".join(row_texts)}</table>' if row_texts else ""


def _render_html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render an HTML table from cells of HTML; all columns but the first are figures."""
    styles = [_CELL] + [_NUMBER] * (len(head) - 1)
    names = "".join(
        f'<th style="{style}">{_escape_and_shorten_html_text(name)}</th>'
        for style, name in zip(styles, head, strict=True)
    )
    row_cells = [
        "".join(f'<td style="{style}">{cell}</td>' for style, cell in zip(styles, row, strict=True))
        for row in rows
    ]
    return f'<table style="{_TABLE}"><tr>{names}</tr>{"".join(f"<tr>{cells}</tr>" for cells in row_cells)}</table>'


_SHOWN: dict[type[Any], Callable[[Any], str]] = {
    Model: _render_model_as_html,
    ListedModel: _render_model_as_html,
    Version: _render_version_as_html,
    Job: _render_job_as_html,
    Compare: _render_version_comparison_as_html,
    Metrics: _render_accuracy_matrix_as_html,
}
