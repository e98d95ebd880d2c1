"""What became of a job, in sentences with the commands that go on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

from perennial.errors import BadAnswer
from perennial.guard import shell_word
from perennial.text import one_line

if TYPE_CHECKING:
    from perennial._types import Action, Attention, BatchReport, GateCheck, Job, Model, Repeats, Task, Version

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
COMMANDS = (
    (r"PUT /v1/models/[^/]+/aliases/production", 'promote {model} {version} --reason "WHY"'),
    (r"POST /v1/models/[^/]+/aliases/production/follow", "follow {model}"),
    (r"POST /v1/models/[^/]+/aliases/production/rollback", 'rollback {model} --to {version} --reason "WHY"'),
    (r"POST /v1/jobs/(?P<id>[^/]+)/retry", "jobs retry {id} --recipe '{{}}'"),
    (r"POST /v1/models/[^/]+/tasks/(?P<id>\d+)/relearn", "tasks relearn {model} {id}"),
    (
        r"POST /v1/models/[^/]+/tasks/(?P<id>\d+)/(?P<verb>continue|discard)",
        'tasks {verb} {model} {id} --reason "WHY"',
    ),
    (r"POST /v1/models/[^/]+/tasks", "submit {model} MENDED.zip"),
    (r"POST /v1/models/[^/]+/rebase", "models rebase {model} --base BASE"),
    (r"POST /v1/models/[^/]+/rebase/finish", "models rebase {model} --finish"),
    (r"DELETE /v1/models/[^/]+", "models rm {model}"),
)
"""Requests of the API, and the commands that make them."""
ATTENTION = (
    "The model's `attention` has the requests that settle it.",
    "`perennial status` tells what settles it.",
)
"""What the service says, and what one types for it."""
OPTIONS = (
    (r'give a reason: \{"version": \d+, "reason": "…"\}', 'give a reason: `--reason "WHY"`'),
    (
        r"PUT /v1/models/(?P<model>[^/\s]+)/aliases/production can",
        r"`perennial promote \g<model> VERSION` can",
    ),
    (
        r"POST /v1/models/(?P<model>[^/\s]+)/rebase/finish puts",
        r"`perennial models rebase \g<model> --back` puts",
    ),
    (r"GET /v1/models/(?P<model>[^/\s]+)/rebase\b", r"`perennial models rebase \g<model> --status`"),
    (r'send \{"missing": "allow"\}', "say `--allow-missing`"),
    (
        r"bring them again with POST /v1/jobs/(?P<model>[^/\s]+)/retry",
        r"bring them again with `perennial jobs retry \g<model>`",
    ),
    (r"\?task=", "--task"),
    (r"\btraining_data_days\b", "--training-data-days"),
    (r"send `Authorization: Bearer pk_…`", "keep one with `perennial login`"),
)
"""What the service says of parts of requests (regular expressions), and what one types for it."""
CREATED_WITH = ("architecture", "base", "description", "image", "recipe", "scenario")
"""Fields of a new model that are options of `models create`; a service may suggest no other option."""


def duration(seconds: float) -> str:
    """Return a duration of at least a second: "40 s", "3 min"."""
    return f"{max(1, round(seconds))} s" if seconds < 120 else f"{round(seconds / 60):,} min"


def repeated(model: str, repeats: Repeats) -> str:
    """Say that a model has a batch already, and where that stands."""
    version = f", version {repeats.version}" if repeats.version is not None else ""
    return (
        f"{model} has this batch: it is task {repeats.task} ({repeats.standing}{version}), and is not learned again. "
        "`--again` learns it once more."
    )


def held(model: Model, version: Version, entry: Attention | None, job: str) -> str:
    """Why a version is held, and how to go on. job: that made it."""
    production = model.aliases.get("production")
    first = one_line(
        f"Version {version.number} of {model.name} is held by the gate; production stays at version {production}."
    )
    waits = (
        "wait until you choose one of"
        if model.on_held == "stop"
        else "go on without it. You can choose one of"
    )
    rest = (
        [f"Later batches {waits}:", *_settle(model.name, entry)] if entry and entry.actions else _retry(job)
    )
    return "\n".join([first, *(f"  {reason}" for reason in reasons(version)), *rest])


def _retry(job: str) -> list[str]:
    try:
        return [
            f"Learn it again by the model's own recipe: perennial jobs retry {shell_word(job)} --recipe '{{}}'"
        ]
    except BadAnswer:  # an id that no shell may see
        return []


def lacks_base(job: Job) -> str | None:
    """Why a job waits on for the weights of its model's base, and what to do; None: they may still come."""
    why = job.waiting_for
    return one_line(why.detail) if why is not None and why.failed else None


def attention(model: str, entry: Attention | None) -> list[str]:
    """What waits for a person, and the commands that settle it."""
    if entry is None:
        return []
    settle = _settle(model, entry)
    return [by_commands(entry.detail), *(["To go on, one of:", *settle] if settle else [])]


def _settle(model: str, entry: Attention) -> list[str]:
    return [f"  {command(action, model)}\n      {one_line(action.title)}" for action in entry.actions]


def reasons(version: Version) -> Iterator[str]:
    """The checks that a version did not pass, each in words with its numbers."""
    for check in version.gate.checks:
        if not check.passed:
            yield one_line(f"{CHECKS.get(check.name, check.name)}{_numbers(check)}")
            for picture in check.pictures or []:
                yield "  " + one_line(f"{picture.label}, now called {picture.now}: {picture.image}")


def compared(version: Version) -> Iterator[str]:
    """Say in a sentence what a published version was compared with; nothing of a first one."""
    if version.gate.visible is not None:
        yield version.gate.visible.detail
    elif version.parent:
        for check in version.gate.checks:
            if check.name == "forgotten" and check.not_measured is not None:
                yield f"Not compared with the version before: {check.not_measured}."


def unmeasured(version: Version) -> Iterator[str]:
    """The checks beside production that had nothing to compare, and the losses that the others could have seen."""
    for check in version.gate.checks:
        if check.not_measured is not None:
            yield f"{check.name}: not measured, {check.not_measured}"
    if version.gate.visible is not None:
        yield version.gate.visible.detail


def _numbers(check: GateCheck) -> str:
    if check.name == "lost_tasks":
        tasks = ", ".join(str(task) for task in check.tasks or [])
        classes = ", ".join(check.classes or [])
        return f": task {tasks}" + (f"; it cannot answer {classes}" if classes else "")
    if check.detail is not None:
        return f". {check.detail}"
    value = "undefined" if check.value is None else f"{check.value:.4g}"
    return f": {value}" + ("" if check.limit is None else f", the limit is {check.limit:.4g}")


def command(action: Action, model: str) -> str:
    """The command that makes a request; one that there is no command for stays a request."""
    asked = f"{action.method} {action.path}"
    version = action.body.version if action.body is not None else None
    return _command(asked, model, version) or one_line(asked)


def _command(asked: str, model: str, version: int | None) -> str | None:
    for pattern, text in COMMANDS:
        found = re.fullmatch(pattern, asked)
        if found and ("{version}" not in text or version is not None):
            try:
                words = {name: shell_word(unquote(value)) for name, value in found.groupdict().items()}
                if "{model}" in text:
                    words["model"] = shell_word(model)
                return "perennial " + text.format(version=version, **words)
            except BadAnswer:  # a name that no shell may see: the request stays as it is
                return None
    return None


def by_commands(text: str) -> str:
    """A sentence of the service with commands in the place of the requests that it names, on a line of its own."""
    text = one_line(text).replace(*ATTENTION)
    for said, typed in OPTIONS:
        text = re.sub(said, _typed(typed), text)
    text = re.sub(r"(?P<before>:?) POST /v1/models (?P<body>\{.*\})\.?", _create, text)

    def put(found: re.Match[str]) -> str:
        said = _command(found["asked"], unquote(found["model"] or ""), None)
        return f"`{said}`" if said else found["asked"]

    return re.sub(
        r"(?P<asked>(?:POST|PUT|DELETE) /v1/(?:models/(?P<model>[^/\s).,;]+)|jobs)[\w/%-]*)", put, text
    )


def _typed(template: str) -> Callable[[re.Match[str]], str]:
    """Fill in what one types, with names as words of a shell; one that is no name leaves the text as it is."""

    def fill(found: re.Match[str]) -> str:
        name = found.groupdict().get("model")
        try:
            return template if name is None else template.replace(r"\g<model>", shell_word(unquote(name)))
        except BadAnswer:
            return found[0]

    return fill


def _create(found: re.Match[str]) -> str:
    """On a line of its own, to be copied."""
    try:
        fields = json.loads(found["body"])
        words = [shell_word(fields.pop("name", "NAME"))]
        for name, value in fields.items():
            word = shell_word(value if isinstance(value, str) else json.dumps(value))
            # `--url` would send the key to another service, and `@FILE` a file of this machine.
            if name not in CREATED_WITH or str(value).startswith("@"):
                return found[0]
            words.append(f"--{name} {word}")
    except (ValueError, BadAnswer):  # more than one object, or an ellipsis; a name that is none
        return found[0]
    return f"{found['before']}\n  perennial models create {' '.join(words)}"


def left_out(found: BatchReport) -> list[str]:
    """List the files and entries of a batch that could not be used, in a sentence each at most."""
    if not found.rejected_count:
        return bad_entries_of(found)
    shown = "; ".join(f"{one.path} ({one.reason})" for one in (found.rejected or [])[:3])
    more = ", …" if found.rejected_count > 3 else ""
    files = "1 file" if found.rejected_count == 1 else f"{found.rejected_count:,} files"
    return [f"{files} could not be used: {shown}{more}", *bad_entries_of(found)]


def bad_entries_of(found: BatchReport) -> list[str]:
    """List the entries of a batch's label table that were left out, in a sentence at most."""
    if not found.bad_entries_count:
        return []
    shown = "; ".join(f"{one.where}: {one.reason}" for one in (found.bad_entries or [])[:3])
    more = "; …" if found.bad_entries_count > 3 else ""
    entries = "1 entry" if found.bad_entries_count == 1 else f"{found.bad_entries_count:,} entries"
    return [f"{entries} of the label table left out: {shown}{more}"]


def found_in(task: Task) -> list[str]:
    """What was found in the images of a batch and is no warning already, in two lines at most."""
    findings = (task.report.data.findings if task.report.data else None) or []
    texts = [one.text for one in findings if one.text not in task.warnings]
    more = len(texts) - 1
    return (
        texts
        if more < 2
        else [texts[0], f"{more} more findings: report.data.findings of the task, or its page"]
    )
