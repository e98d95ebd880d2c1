"""Results of jobs in sentences, with the commands that come next."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from perennial.errors import BadAnswer
from perennial.guard import quote_shell_word
from perennial.steps import (
    ApiRequestForAdvice,
    keep_cli_form_of_options,
    render_query_parameters_in_text,
    replace_requests_in_sentence,
)
from perennial.text import format_count_with_noun, make_text_one_line

if TYPE_CHECKING:
    from perennial._types import (
        Action,
        Attention,
        BatchReport,
        GateCheck,
        Job,
        Model,
        Repeats,
        Task,
        Version,
    )

CHECKS = {
    "max_forgetting": "it forgot more than the gate allows",
    "min_new_task": "it learned the new batch less well than the gate asks",
    "min_acc": "its mean accuracy is below what the gate asks",
    "max_predicted_loss_rise": "its method forecasts a greater loss than the gate allows",
    "min_coverage": "it answers fewer images surely than the gate asks for",
    "max_negative_flips": "it gets more wrong that production gets right than the gate allows",
    "forgotten": "it forgot images of earlier tasks",
    "confused": "it calls known images by the new classes",
    "class_lost": "it lost a class",
    "drifted": "it drifted away from the best of the last versions",
    "learned_nothing": "it learned nothing of the new batch",
    "features_collapsed": "its features have collapsed",
    "lost_tasks": "it lacks what the model has learned",
    "parent_rolled_back": "it was learned from a version that was rolled back",
}
ATTENTION = (
    "The model's `attention` has the requests that settle it.",
    "`perennial status` tells what settles it.",
)
"""Phrases of the service, and the command line's form of each."""
ISSUES = "perennial issues MODEL TASK"
"""Command that lists the findings in a batch, where a sentence cannot name the model and task."""
SAID = (
    (r'give a reason: \{"version": \d+, "reason": "…"\}', 'give a reason: `--reason "WHY"`'),
    (r'send \{"missing": "allow"\}', "say `--allow-missing`"),
    (r'send \{"merge": \{.*\}\}', "use `perennial classes merge`"),
    (
        r"bring them again with POST /v1/jobs/(?P<model>[^/\s]+)/retry",
        r"bring them again with `perennial jobs retry \g<model>`",
    ),
    (
        r"report\.data\.suspects of the task, and pictures on its page",
        f"`{ISSUES}`, and pictures on the task's page",
    ),
    (r"\?task=", "--task"),
    (r"\btraining_data_days\b", "--training-data-days"),
    (r"send `Authorization: Bearer pk_…`", "keep one with `perennial login`"),
)
"""Parts of requests in the service's sentences (regular expressions), and their command-line
form."""
_LAST_CREATE = re.compile(r" ?`(perennial models create [^`]*)`\.?\Z")
_BACK = re.compile(r"POST /v1/models/(?P<model>[^/\s]+)/rebase/finish puts")
"""Finds the use of `rebase/finish` that takes a move back; the same request also finishes a
move."""


def format_duration(seconds: float) -> str:
    """Return a duration in words, at least a second: "40 s", "3 min"."""
    return f"{max(1, round(seconds))} s" if seconds < 120 else f"{round(seconds / 60):,} min"


def describe_repeated_batch(model: str, repeats: Repeats) -> str:
    """Tell that a model has learned the same batch before, as which task."""
    version = f", version {repeats.version}" if repeats.version is not None else ""
    return (
        f"{model} has this batch: it is task {repeats.task} ({repeats.standing}{version}), and is "
        "not learned again. `--again` learns it once more."
    )


def describe_held_version(
    model: Model, version: Version, entry: Attention | None, job: str, url: str
) -> str:
    """Explain why the gate holds a version, and how to continue.

    Args:
        job: the job that made the version.
        url: of the service.
    """
    production = model.aliases.get("production")
    first = make_text_one_line(
        f"Version {version.number} of {model.name} is held by the gate; production stays at "
        f"version {production}."
    )
    waits = (
        "wait until you choose one of"
        if model.on_held == "stop"
        else "go on without it. You can choose one of"
    )
    next_steps = (
        [f"Later batches {waits}:", *_format_attention_commands(model.name, entry)]
        if entry and entry.actions
        else _suggest_retry_command(job)
    )
    reasons = [
        *describe_failed_checks(version),
        *format_version_comparison_page_hint(url, model.name, version),
    ]
    return "\n".join([first, *(f"  {reason}" for reason in reasons), *next_steps])


def _suggest_retry_command(job: str) -> list[str]:
    try:
        return [
            f"Learn it again by the model's own recipe: perennial jobs retry {quote_shell_word(job)} "
            f"--recipe '{{}}'"
        ]
    except BadAnswer:  # the id contains characters that no shell may receive
        return []


def explain_missing_base_weights(job: Job) -> str | None:
    """Explain why a job cannot get its base weights; None if they may still arrive."""
    why = job.waiting_for
    return make_text_one_line(why.detail) if why is not None and why.failed else None


def describe_attention_item(model: str, entry: Attention | None) -> list[str]:
    """Describe a decision that a model waits for, and the commands that make it."""
    if entry is None:
        return []
    settle = _format_attention_commands(model, entry)
    return [
        replace_requests_by_task_commands(entry.detail, model, entry.task),
        *(["To go on, one of:", *settle] if settle else []),
    ]


def _format_attention_commands(model: str, entry: Attention) -> list[str]:
    return [
        f"  {format_action_command(action, model)}\n      {make_text_one_line(action.title)}"
        for action in entry.actions
    ]


def describe_failed_checks(version: Version) -> Iterator[str]:
    """Describe each gate check that a version failed, with its numbers."""
    for check in version.gate.checks:
        if not check.passed:
            yield make_text_one_line(
                f"{CHECKS.get(check.name, check.name)}{_format_numbers_of_gate_check(check)}"
            )


def format_version_comparison_page_hint(url: str, model: str, version: Version) -> Iterator[str]:
    """Yield the URL of the page that shows the images on which failed checks lost, if any."""
    if version.parent and any(check.pictures for check in version.gate.checks):
        page = f"{url}/ui/models/{quote(model, safe='')}/compare"
        yield f"Look at these images: {page}?a={version.parent}&b={version.number}"


def describe_compared_versions(version: Version) -> Iterator[str]:
    """Describe which versions a published version was compared with; nothing for a first one."""
    if version.gate.visible is not None:
        yield version.gate.visible.detail
    elif version.parent:
        for check in version.gate.checks:
            if check.name == "forgotten" and check.not_measured is not None:
                yield f"Not compared with the version before: {check.not_measured}."


def describe_unmeasured_checks(version: Version) -> Iterator[str]:
    """Describe gate checks that were not measured, and which losses the others can detect."""
    for check in version.gate.checks:
        if check.not_measured is not None:
            yield f"{check.name}: not measured, {check.not_measured}"
    if version.gate.visible is not None:
        yield version.gate.visible.detail


def _format_numbers_of_gate_check(check: GateCheck) -> str:
    if check.name == "lost_tasks":
        tasks = ", ".join(str(task) for task in check.tasks or [])
        classes = ", ".join(check.classes or [])
        return f": task {tasks}" + (f"; it cannot answer {classes}" if classes else "")
    if check.detail is not None:
        return f". {check.detail}"
    value = "undefined" if check.value is None else f"{check.value:.4g}"
    return f": {value}" + ("" if check.limit is None else f", the limit is {check.limit:.4g}")


def format_action_command(action: Action, model: str) -> str:
    """Format an API request as a command of the command line, if one exists."""
    body = {} if action.body is None else action.body.to_dict()
    step = ApiRequestForAdvice(action.method, action.path, body=body)
    return _find_command_of_request(step, model) or make_text_one_line(
        f"{action.method} {action.path}"
    )


def replace_requests_by_task_commands(text: str, model: str, task: int | None) -> str:
    """Replace API requests in a sentence about a task by commands of the command line.

    Args:
        model, task: name or id of the model, and the number of the batch's task; None: unknown.
    """
    text = replace_requests_by_commands(text)
    if task is None:
        return text
    try:
        return text.replace(ISSUES, f"perennial issues {quote_shell_word(model)} {task}")
    except BadAnswer:  # the name contains characters that no shell may receive
        return text


def replace_requests_by_commands(text: str) -> str:
    """Replace API requests and query parameters in a sentence by commands and options.

    A command that makes a model moves to a line of its own at the end, so that it can be copied.
    """
    # Cleaned first, because parts of it become commands that a person copies.
    text = keep_cli_form_of_options(make_text_one_line(text).replace(*ATTENTION))
    # Before other requests are replaced, because the same request also finishes a move.
    text = _BACK.sub(_format_rebase_back_command, text)
    for pattern, typed in SAID:
        text = re.sub(pattern, typed, text)

    def render_request_as_command(step: ApiRequestForAdvice) -> str | None:
        pattern = _find_command_of_request(step, None)
        return None if pattern is None else f"`{pattern}`"

    text = replace_requests_in_sentence(text, render_request_as_command)
    text = render_query_parameters_in_text(
        text, lambda name, value: f"-o {name}={quote_shell_word(value)}"
    )
    # Last, because the steps before it write the command that is moved.
    return _LAST_CREATE.sub(r"\n  \1", text)


def _format_rebase_back_command(match: re.Match[str]) -> str:
    try:
        # The name is percent-encoded in the path, and a command takes it as it is.
        return f"`perennial models rebase {quote_shell_word(unquote(match['model']))} --back` puts"
    except BadAnswer:
        return match[0]


def _find_command_of_request(step: ApiRequestForAdvice, model: str | None) -> str | None:
    try:
        return step.format_as_command(quote_shell_word, model)
    except BadAnswer:  # the name contains characters that no shell may receive: keep the request
        return None


def describe_left_out_files_and_entries(report: BatchReport) -> list[str]:
    """Describe the files and table entries of a batch that could not be used."""
    if not report.rejected_count:
        return describe_bad_entries(report)
    examples = "; ".join(f"{one.path} ({one.reason})" for one in (report.rejected or [])[:3])
    more = ", …" if report.rejected_count > 3 else ""
    files = format_count_with_noun(report.rejected_count, "file")
    return [f"{files} could not be used: {examples}{more}", *describe_bad_entries(report)]


def describe_bad_entries(report: BatchReport) -> list[str]:
    """Describe the label-table entries of a batch that were left out, if there are any."""
    if not report.bad_entries_count:
        return []
    examples = "; ".join(f"{one.where}: {one.reason}" for one in (report.bad_entries or [])[:3])
    more = "; …" if report.bad_entries_count > 3 else ""
    entries = format_count_with_noun(report.bad_entries_count, "entry", "entries")
    return [f"{entries} of the label table left out: {examples}{more}"]


def summarise_findings_without_warning(task: Task) -> list[str]:
    """Summarise findings in a batch's images that its warnings do not mention, in two lines at
    most.
    """
    findings = (task.report.data.findings if task.report.data else None) or []
    texts = [one.text for one in findings if one.text not in task.warnings]
    more = len(texts) - 1
    return (
        texts
        if more < 2
        else [texts[0], f"{more} more findings: report.data.findings of the task, or its page"]
    )
