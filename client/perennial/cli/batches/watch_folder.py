"""Command `watch-folder`: send batches that appear in a folder, and move each after its job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from perennial.cli.batches import inbox
from perennial.cli.batches.inbox import FAILED, HELD, LEARNED, FoundBatch
from perennial.cli.command import RECIPE, SECONDS, CommandContext, cli_command
from perennial.cli.exits import ExitStatus, choose_exit_status_for_error
from perennial.cli.models.accuracies import MeasuredAccuracy
from perennial.cli.output import print_json_line, print_notice, print_text
from perennial.errors import (
    ArchiveRejected,
    ConfigError,
    Conflict,
    GateHeld,
    Invalid,
    JobEnded,
    NoKey,
    PerennialError,
    ServiceUnreachable,
    TooLarge,
    TooManyRequests,
    Unavailable,
)
from perennial.retry import is_service_error_temporary
from perennial.text import make_text_one_line
from perennial.words import (
    explain_missing_base_weights,
    format_duration,
    replace_requests_by_commands,
    replace_requests_by_task_commands,
)

if TYPE_CHECKING:
    from perennial import JobHandle, Perennial
    from perennial.types import Job

T = TypeVar("T")
PATIENCE_S = 180.0
"""Longest time in seconds to wait for a service that is away while batches are under way."""
AWAY = (ServiceUnreachable, Unavailable, TooManyRequests)
"""Errors that are not the batch's fault: it is sent again later."""
OF_THE_BATCH = (ArchiveRejected, ConfigError, Conflict, Invalid, TooLarge)
"""Refusals that the same batch would meet again."""
STOPPED_BY = ("held", "failed", "rejected")
"""Standings of a task that stops a job until a person acts."""
WORST = (
    ExitStatus.ERROR,
    ExitStatus.FAILED,
    ExitStatus.REJECTED,
    ExitStatus.NO_BASE,
    ExitStatus.HELD,
    ExitStatus.CANCELLED,
    ExitStatus.UNAVAILABLE,
    ExitStatus.STILL_RUNNING,
)
"""Exit statuses from worst to best; that of several batches is the first that one of them has."""


@cli_command(
    "watch-folder", short_help="Send the batches that appear in a folder, one after another."
)
@click.argument(
    "folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False)
)
@click.argument("model")
@RECIPE
@click.option("--once", is_flag=True, help="End once all complete batches are processed; for cron.")
@click.option(
    "--quiet", "quiet_s", type=click.FloatRange(0), default=60.0, show_default=True, metavar="SECONDS",
    help="Time without a change after which a batch is complete.",
)  # fmt: skip
@click.option(
    "--every",
    "every_s",
    type=SECONDS,
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two checks of the folder.",
)
@click.option(
    "--timeout", type=SECONDS, metavar="SECONDS", help="With --once: longest time to run."
)
def run_watch_folder_command(
    shell: CommandContext,
    folder: Path,
    model: str,
    recipe: Any,
    once: bool,
    quiet_s: float,
    every_s: float,
    timeout: float | None,
) -> int:
    """Send each batch that appears in DIR to MODEL: an archive, or a folder of folders of images.

    A batch is sent when it has not changed for a minute, or when it is marked as complete. The mark
    is a file .done in its folder, or NAME.zip.done beside an archive. A learned batch moves to
    DIR/learned, a held one to DIR/held, and a failed one to DIR/failed. A text file beside it gives
    the reason. No batch blocks another. With --once, remaining batches are listed with the reason.
    Links are not followed.

    You can stop and restart the command at any time, since a batch that is sent again is not
    learned again. Only one process can watch DIR at a time. With --once, the exit status is that of
    the worst batch.
    """
    if timeout is not None and not once:
        raise click.UsageError("--timeout goes with --once.")
    with inbox.lock_watched_folder(folder), shell.create_client() as client:
        # a wrong name or key ends the command before any batch is sent
        client.models.retrieve(model)
        watch = FolderWatcher(shell, client, folder, model, recipe, quiet_s)
        until = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                watch.move_and_send_batches()
                is_late = until is not None and time.monotonic() > until
                if is_late or (once and watch.can_single_run_end):
                    watch.report_remaining_batches()
                    return watch.exit_status
                # A finished job should be noticed soon; new batches are less urgent.
                time.sleep(min(every_s, 1.0) if watch.sent else every_s)
        except KeyboardInterrupt:
            print_notice(f"\n{folder} is watched no more; jobs that were sent go on.")
            return ExitStatus.INTERRUPTED


@dataclass
class FollowedBatch:
    """A batch of the watched folder that was sent, with its job.

    Attributes:
        is_wait_reported: whether the wait for a base that cannot be fetched was reported.
    """

    batch: FoundBatch
    handle: JobHandle
    job: Job | None = None
    is_wait_reported: bool = False


@dataclass
class FolderWatcher:
    """Progress of `watch-folder`: which batches were sent, settled or could not be moved.

    Attributes:
        sent: batches under way, by name.
        ends: exit statuses of settled batches.
        stuck: batches that could not be moved, as they were then; they stay until they change.
        away: the last error that was not a batch's fault; None: the service answers.
        heard: time of the service's last response, on the monotonic clock in seconds.
    """

    shell: CommandContext
    client: Perennial
    folder: Path
    model: str
    recipe: Any
    quiet_s: float
    sent: dict[str, FollowedBatch] = field(default_factory=dict)
    ends: set[ExitStatus] = field(default_factory=set)
    stuck: dict[str, FoundBatch] = field(default_factory=dict)
    away: PerennialError | None = None
    heard: float = field(default_factory=time.monotonic)

    @property
    def can_single_run_end(self) -> bool:
        """True if no batch continues by itself, so that a single run over the folder can end.

        An unavailable service is waited for while batches are under way, as `JobHandle.wait` does.
        A full quota is waited for as well, since a job that ends makes room.
        """
        if all(_does_job_need_decision(one.job) for one in self.sent.values()):
            return True
        return self.away is not None and time.monotonic() - self.heard > PATIENCE_S

    @property
    def exit_status(self) -> ExitStatus:
        """Exit status of the command: that of the batch with the worst outcome."""
        ends = set(self.ends)
        if self.away is not None:
            ends.add(choose_exit_status_for_error(self.away))
        if self.sent:
            lacking = any(
                one.job is not None and explain_missing_base_weights(one.job)
                for one in self.sent.values()
            )
            ends.add(ExitStatus.NO_BASE if lacking else ExitStatus.STILL_RUNNING)
        return next((one for one in WORST if one in ends), ExitStatus.DONE)

    def move_and_send_batches(self) -> None:
        """Move batches whose jobs have ended to their outcome folders, and send complete new ones."""
        self.away = None
        self._apply_to_batches_despite_temporary_errors(
            list(self.sent.values()), self._poll_sent_job
        )
        # Without a service, each batch would only repeat the failure.
        if not isinstance(self.away, ServiceUnreachable):
            self._apply_to_batches_despite_temporary_errors(
                [
                    batch
                    for batch in inbox.find_batches_in_folder(self.folder)
                    if self._is_batch_ready_to_send(batch)
                ],
                self._send_batch,
            )

    def report_remaining_batches(self) -> None:
        """Report each batch that remains in the watched folder, and why."""
        for batch in inbox.find_batches_in_folder(self.folder):
            self._report_batch_event(
                batch.path.name, "left", self._describe_why_batch_remains(batch)
            )

    def _describe_why_batch_remains(self, batch: FoundBatch) -> str:
        followed_batch = self.sent.get(batch.path.name)
        if followed_batch is not None:
            waits = "waits" if _does_job_need_decision(followed_batch.job) else "goes on"
            return f"job {followed_batch.handle.id} {waits}"
        if not self._is_batch_ready_to_send(batch):
            if self.stuck.get(batch.path.name) == batch:
                return "it cannot be read or moved"
            return f"changed less than {format_duration(self.quiet_s)} ago"
        return (
            "it was not sent: the service does not answer, or is full"
            if self.away
            else "it came just now"
        )

    def _apply_to_batches_despite_temporary_errors(
        self, items: Iterable[T], act: Callable[[T], None]
    ) -> None:
        """Call a function for each batch; report temporary errors, and try again in the next round.

        A temporary error is reported, and the item waits for the next round. An outage ends this
        round, since the other items would meet it too. Any other error is raised.
        """
        for item in items:
            try:
                act(item)
            except PerennialError as error:
                if not _is_temporary_error(error):
                    raise
                self.away = error
                self._report_batch_event(
                    "", "waits", f"the service does not answer, or is full: {error}"
                )
                if is_service_error_temporary(error):
                    return
            else:
                self.heard = time.monotonic()

    def _is_batch_ready_to_send(self, batch: FoundBatch) -> bool:
        name = batch.path.name
        return (
            name not in self.sent
            and self.stuck.get(name) != batch
            and batch.is_batch_complete(self.quiet_s)
        )

    def _poll_sent_job(self, one: FollowedBatch) -> None:
        one.job = one.handle.refresh()
        if one.job.is_terminal:
            error = one.handle.ending(one.job)
            # Before it is settled: a batch that was changed meanwhile stays, and is sent again.
            del self.sent[one.batch.path.name]
            self._move_finished_batch_or_leave_it(one.batch, error, one.job)
        else:
            self._report_missing_base_weights_once(one)

    def _report_missing_base_weights_once(self, one: FollowedBatch) -> None:
        """Report once that a sent batch waits for base weights that cannot be fetched."""
        lacking = None if one.job is None else explain_missing_base_weights(one.job)
        if lacking is not None and not one.is_wait_reported:
            one.is_wait_reported = True
            self._report_batch_event(
                one.batch.path.name, "waits", replace_requests_by_commands(lacking)
            )

    def _send_batch(self, batch: FoundBatch) -> None:
        path = batch.path
        try:
            if batch.problem is not None:
                raise inbox.UnsendableBatchError(batch.problem)
            handle = self.client.submit(
                self.model, path, name=_derive_safe_batch_name(path), recipe=self.recipe
            )
        # A ConfigError, but not the batch's fault: all others would fail in the same way.
        except NoKey:
            raise
        except OF_THE_BATCH as error:
            if _is_temporary_error(error):
                raise
            self._move_finished_batch_or_leave_it(batch, error, None)
            return
        except OSError as problem:
            self._leave_batch_until_changed(batch, "read", problem)
            return
        repeats = handle.repeats
        # An earlier run was ended between the job's end and the move.
        if repeats is not None and repeats.standing == "learned":
            self._move_finished_batch_or_leave_it(batch, None, handle.job)
            return
        self._report_batch_event(path.name, "sent", f"job {handle.id}")
        self.sent[path.name] = followed_batch = FollowedBatch(batch, handle, handle.job)
        self._report_missing_base_weights_once(followed_batch)

    def _move_finished_batch_or_leave_it(
        self, batch: FoundBatch, error: PerennialError | None, job: Job | None
    ) -> None:
        try:
            self._move_batch_by_job_outcome(batch, error, job)
        except OSError as problem:
            self._leave_batch_until_changed(batch, "moved", problem)

    def _leave_batch_until_changed(self, batch: FoundBatch, what: str, problem: OSError) -> None:
        """Report that a batch cannot be read or moved, and ignore it until its files change."""
        self.stuck[batch.path.name] = batch
        self.ends.add(ExitStatus.ERROR)
        print_notice(
            make_text_one_line(f"{batch.path} cannot be {what}: {problem.strerror or problem}.")
        )

    def _move_batch_by_job_outcome(
        self, batch: FoundBatch, error: PerennialError | None, job: Job | None
    ) -> None:
        # Somebody may have changed or removed the batch while its job ran.
        now = inbox.read_present_state_of_batch_files(batch.path)
        if now is None:
            self._report_batch_event(batch.path.name, "gone", "somebody has taken it away")
            return
        if now.state != batch.state:
            self._report_batch_event(
                batch.path.name, "changed", "it was changed after it was sent, and is sent again"
            )
            return
        if error is None:
            inbox.move_batch_to_outcome_folder(batch.path, LEARNED)
            self._report_batch_event(
                batch.path.name, LEARNED, self._describe_learned_batch(job) if job else ""
            )
            return
        outcome_folder = HELD if isinstance(error, GateHeld) else FAILED
        task = None if job is None else job.task
        reason = "\n".join(
            replace_requests_by_task_commands(text, self.model, task)
            if not text.startswith("  ")
            else text
            for text in str(error).split("\n")
        )
        about = f"job {error.job.id}\n" if isinstance(error, JobEnded) else ""
        where = inbox.move_batch_to_outcome_folder(batch.path, outcome_folder, f"{reason}\n{about}")
        status = choose_exit_status_for_error(error)
        # A batch that cannot be packed is a ConfigError, whose status would blame the command line.
        self.ends.add(
            ExitStatus.FAILED
            if status is ExitStatus.USAGE or status is ExitStatus.ERROR
            else status
        )
        self._report_batch_event(
            batch.path.name, outcome_folder, f"{reason.splitlines()[0]} See {where}.txt"
        )

    def _describe_learned_batch(self, job: Job) -> str:
        """Describe the version that learned a batch, with its accuracy on the batch."""
        try:
            task = None if job.task is None else self.client.tasks.retrieve(self.model, job.task)
        except PerennialError:  # the batch has been moved already; only its accuracy is missing
            task = None
        if task is None or task.accuracy_when_learned is None:
            return f"version {job.version}"
        accuracy = MeasuredAccuracy(task.accuracy_when_learned, task.n_held_out or 0)
        return f"version {job.version}, accuracy {accuracy}"

    def _report_batch_event(self, name: str, what: str, more: str) -> None:
        record = {"batch": name or None, "what": what, "more": more}
        if self.shell.is_json:
            print_json_line(record)
        else:
            print_text(make_text_one_line(": ".join(part for part in (name, what, more) if part)))


def _is_temporary_error(error: PerennialError) -> bool:
    """Return True for an error that may pass and is not the batch's fault, such as an outage."""
    return (
        isinstance(error, AWAY)
        or is_service_error_temporary(error)
        or _is_error_of_request_in_flight(error)
    )


def _is_error_of_request_in_flight(error: PerennialError) -> bool:
    """Return True if the service is still processing an earlier attempt of the same request."""
    return isinstance(error, Conflict) and error.code == "idempotency-in-flight"


def _does_job_need_decision(job: Job | None) -> bool:
    if job is None or job.waiting_for is None:
        return False
    return job.waiting_for.kind in STOPPED_BY or explain_missing_base_weights(job) is not None


def _derive_safe_batch_name(path: Path) -> str:
    from perennial.cli.batches.submit import _derive_batch_name

    return make_text_one_line(
        _derive_batch_name(str(path))
    )  # a name that is not UTF-8 cannot be sent as it is
