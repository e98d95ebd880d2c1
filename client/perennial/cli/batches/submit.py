"""Command `submit`: send a batch and follow its job."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import click

from perennial._formats import FORMATS
from perennial.bars import show_listing_bar
from perennial.cli.batches.following import follow_and_print_job, report_version_of_finished_job
from perennial.cli.batches.progress_lines import TransferStatusLines
from perennial.cli.batches.trials import parse_trials_option, print_trials
from perennial.cli.command import RECIPE, SECONDS, CommandContext, cli_command
from perennial.cli.output import Cell, print_fields, print_notice, print_text
from perennial.errors import NotFound, UndecidedBatch
from perennial.guard import quote_shell_word
from perennial.pack.remote.address import is_remote_address
from perennial.pack.remote.url_list import is_address_or_url_list
from perennial.shapes import convert_to_json
from perennial.text import make_text_one_line
from perennial.transfer import PackedSource, open_batch_as_transfer_source
from perennial.types import Report
from perennial.words import (
    describe_bad_entries,
    describe_repeated_batch,
    format_duration,
    replace_requests_by_commands,
    replace_requests_by_task_commands,
)

WORTH_SAYING_S = 10.0
"""Shortest expected wait, in seconds, of which a person is warned."""


@cli_command("submit", short_help="Send a batch of labelled images and follow its job.")
@click.argument("model")
@click.argument("batch", metavar="PATH|s3://…|-")
@click.option(
    "--name", metavar="NAME", help="Name of the batch; default: that of the file or folder."
)
@RECIPE
@click.option(
    "--drop-duplicates", is_flag=True, help="Keep only the first of equal images of a class."
)
@click.option(
    "--again",
    is_flag=True,
    help="Learn the batch again even if the model has it; its images then count twice.",
)
@click.option(
    "--trials",
    type=parse_trials_option,
    metavar="auto|JSON|@FILE",
    help="Learn the batch by several recipes and publish the best: auto, or a list of recipes.",
)
@click.option(
    "--choose",
    type=click.Choice(["best", "manual"]),
    help="Decision between trials: the best, or by you with 'perennial jobs choose'.",
)
@click.option(
    "--max-seconds",
    type=SECONDS,
    metavar="SECONDS",
    help="Seconds of the job after which no further trial begins; at least one is measured.",
)
@click.option(
    "--check", is_flag=True, help="Show how the batch would be read, without submitting it."
)
@click.option("--detach", "-d", is_flag=True, help="Do not wait for the job.")
@click.option("--timeout", type=SECONDS, metavar="SECONDS", help="Longest time to wait.")
@click.option(
    "--option",
    "-o",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option for reading the batch, such as layout=folders, one_class=true, classes=level:1, or "
    "one for a data set's format; can be repeated.",
)
@click.option(
    "--allow-private",
    is_flag=True,
    help="Allow private addresses such as 10.0.0.1 in a list of URLs.",
)
def run_submit_batch_command(
    shell: CommandContext,
    model: str,
    batch: str,
    name: str | None,
    recipe: Any,
    drop_duplicates: bool,
    again: bool,
    trials: Any,
    choose: Literal["best", "manual"] | None,
    max_seconds: float | None,
    check: bool,
    detach: bool,
    timeout: float | None,
    options: tuple[str, ...],
    allow_private: bool,
) -> None:
    """Send a batch of labelled images to MODEL and follow its job.

    PATH is an archive such as a zip, a folder of folders of images, a data set, or a list of
    https:// URLs and labels. With s3://bucket/prefix, gs:// or az://, it is a folder of a bucket,
    and - is an archive on standard input. Repeat the command to resume an interrupted batch of 64
    MiB or more.

    A batch that is sent again is not learned again. If MODEL has the same images under the same
    labels, the command follows the job that learns them, or reports the version that has.
    """
    client, is_shown = shell.create_client(), sys.stderr.isatty()
    with _open_source_or_standard_input(batch) as path:
        chosen = dict(_parse_reading_option(option) for option in options)
        keep_conflicts = _parse_conflicts_option(str(chosen.pop("conflicts", "reject")))
        if allow_private:
            chosen["allow_private"] = True
        # Only lists of URLs and buckets take `progress`; another kind would refuse the option.
        with show_listing_bar(
            is_shown and "kind" not in chosen and is_address_or_url_list(path)
        ) as progress:
            if progress is not None:
                chosen["progress"] = progress
            try:
                source = open_batch_as_transfer_source(path, **chosen)
            except UndecidedBatch:
                # Asked only for an ambiguous folder, because it reads the model's whole list of
                # batches.
                known_classes = client.tasks.known_classes(model)
                if not known_classes:
                    raise
                source = open_batch_as_transfer_source(path, known_classes=known_classes, **chosen)
        printed_warnings = (
            _print_source_summary(source) if isinstance(source, PackedSource) else set()
        )
        if check:
            with (
                nullcontext(True) if is_shown else TransferStatusLines() as transfer_progress,
                _add_create_hint_to_missing_model_error(model),
            ):
                report = client.tasks.check(
                    model,
                    source,
                    recipe=recipe,
                    again=again,
                    trials=trials,
                    progress=transfer_progress,
                )
            ignored = None if isinstance(source, PackedSource) else report.ignored
            shell.print_result(report, lambda: _print_check_report(model, report, ignored))
            return
        label = name or (None if batch == "-" else _derive_batch_name(batch))
        with (
            nullcontext(True) if is_shown else TransferStatusLines() as transfer_progress,
            _add_create_hint_to_missing_model_error(model),
        ):
            handle = client.submit(
                model,
                source,
                name=label,
                recipe=recipe,
                drop_duplicates=drop_duplicates,
                again=again,
                keep_conflicts=keep_conflicts,
                trials=trials,
                choose=choose,
                max_seconds=max_seconds,
                progress=transfer_progress,
            )
        if isinstance(source, PackedSource):  # warnings that were found while the batch was sent
            for warning in source.warnings:
                if warning not in printed_warnings:
                    print_notice(f"warning: {warning}")
    if handle.repeats is not None:
        print_notice(make_text_one_line(describe_repeated_batch(model, handle.repeats)))
        if handle.repeats.standing == "learned":
            report_version_of_finished_job(shell, client, handle)
            return
        # a finished job can be reported at once
        detach = detach and not (handle.job and handle.job.is_terminal)
    waits = (
        handle.job.waiting_for.detail
        if handle.job and handle.job.waiting_for and not detach
        else None
    )
    if handle.task is not None and handle.repeats is None:
        for warning in handle.task.warnings:
            if warning != waits:  # following the job prints that warning
                print_notice(
                    f"warning: {replace_requests_by_task_commands(warning, model, handle.task.number)}"
                )
    if handle.expected_s is not None and handle.expected_s >= WORTH_SAYING_S and not shell.is_json:
        print_notice(
            f"Once it begins, the job is expected to take about "
            f"{format_duration(handle.expected_s)}."
        )
    if not detach and choose != "manual":
        follow_and_print_job(shell, client, handle, timeout)
        if trials is not None and not shell.is_json:
            print_trials(shell, client.jobs.trials(handle.id))
        return
    number = handle.task.number if handle.task else "?"
    job = quote_shell_word(handle.id)
    verb = "trials" if choose == "manual" else "watch"
    sentence = f"Task {number} of {model} is job {job}. Follow it with: perennial jobs {verb} {job}"
    shell.print_result({"task": handle.task, "job": handle.job}, lambda: print_text(sentence))


@contextmanager
def _open_source_or_standard_input(batch: str) -> Iterator[Path | str]:
    """Yield the named source; standard input becomes a temporary file, since a retry may have to
    read it again."""
    if batch != "-":
        yield batch if is_remote_address(batch) else Path(batch)
        return
    with tempfile.TemporaryDirectory(prefix="perennial-") as folder:
        # The ending marks it as an archive; the service detects the format by the content.
        path = Path(folder) / "batch.tar"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield path


@contextmanager
def _add_create_hint_to_missing_model_error(model: str) -> Iterator[None]:
    """Add the command that creates the model to the error of a missing one, within the block."""
    try:
        yield
    except NotFound as error:
        if error.detail.startswith("There is no model"):
            error.add_note(f"Create it first: perennial models create {quote_shell_word(model)}")
        raise


def _parse_reading_option(option: str) -> tuple[str, Any]:
    """Split an option into name and value; the value is parsed as JSON (true, ["a", "b"]), else it
    is text."""
    name, is_pair, value = option.partition("=")
    if not is_pair or not name:
        raise click.UsageError(f"--option {option!r} is not NAME=VALUE.")
    try:
        return name, json.loads(value)
    # Values such as folder names need no quotes, so what is not JSON is a text.
    except ValueError:
        return name, value


def _parse_conflicts_option(text: str) -> bool:
    """Return True if images that occur under two labels are to be learned, too.

    Raises UsageError for other values.
    """
    if text not in ("keep", "reject"):
        raise click.UsageError(f"conflicts is {text!r}; possible are keep and reject.")
    return text == "keep"


def _print_source_summary(source: PackedSource) -> set[str]:
    """Print which files of a batch are sent and left out; return the warnings printed."""
    _ = source.size  # reading the size of every image finds the bad ones
    print_notice(source.describe())
    for warning in source.warnings:
        print_notice(f"warning: {warning}")
    return set(source.warnings)


def _derive_batch_name(batch: str) -> str:
    if is_remote_address(batch):
        return batch.rstrip("/").rpartition("/")[2]
    # Resolved, because “.” and “..” are no names.
    return FORMATS.strip_archive_ending(Path(batch).resolve().name)


def _print_check_report(model: str, report: Report, ignored: int | None) -> None:
    """Print the report of a check: problems that a submit of the batch would meet.

    Args:
        ignored: number of files that the service ignores in an archive; None: the client packed the
            batch without such files, and has named those that it left out.
    """
    classes = ", ".join(f"{label} {count}" for label, count in list(report.classes.items())[:20])
    rows: list[tuple[str, Cell]] = [
        ("usable", "yes" if report.valid else "no"),
        ("layout", report.layout),
        ("classes", f"{len(report.classes)}: {classes}"),
        ("images", f"{report.n_train} to learn, {report.n_test} held out by the archive"),
    ]
    if ignored is not None:
        rows.append(("ignored files", ignored))
    if report.expected_s is not None:
        rows.append(("expected to take", format_duration(report.expected_s)))
    data = report.report.data
    if data is not None and data.imbalance_ratio is not None:
        rows.append(("largest to smallest class", f"{data.imbalance_ratio:g} to 1"))
    if data is not None and data.few:
        rows.append(("fewer than 5 images", ", ".join(data.few[:20])))
    if report.report.bad_entries_count:
        rows.append(("entries left out", report.report.bad_entries_count))
    print_fields(rows)
    for one in report.trials or ():
        print_text(f"trial {one.trial}: {json.dumps(convert_to_json(one.recipe))}. {one.reason}")
    if report.repeats is not None:
        print_text(make_text_one_line(describe_repeated_batch(model, report.repeats)))
    not_seen = report.not_checked[:1]  # images, which only the job decodes
    notes = (
        make_text_one_line(note)
        for note in (*not_seen, *report.notes, *describe_bad_entries(report.report))
    )
    for text in (
        *notes,
        *(f"warning: {replace_requests_by_commands(one)}" for one in report.warnings),
    ):
        print_text(text)
