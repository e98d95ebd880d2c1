"""watch-folder: send the batches that appear in a folder, and put them away when it is known what became of them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perennial.cli import inbox
from perennial.cli.command import RECIPE, SECONDS, Shell, command
from perennial.cli.exits import Exit, status_of
from perennial.cli.inbox import FAILED, HELD, LEARNED, Found
from perennial.cli.output import complain, line, say
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
from perennial.text import one_line
from perennial.words import by_commands, lacks_base

if TYPE_CHECKING:
    from perennial import JobHandle, Perennial
    from perennial.types import Job

AWAY = (ServiceUnreachable, Unavailable, TooManyRequests)
"""Not the batch's fault: it is sent again later."""
OF_THE_BATCH = (ArchiveRejected, ConfigError, Conflict, Invalid, TooLarge)
"""Refusals that a batch would meet again."""
STOPPED_BY = ("held", "failed", "rejected")
"""What a job waits for that only a person settles."""
WORST = (
    Exit.ERROR,
    Exit.FAILED,
    Exit.REJECTED,
    Exit.NO_BASE,
    Exit.HELD,
    Exit.CANCELLED,
    Exit.UNAVAILABLE,
    Exit.STILL_RUNNING,
)
"""The exit status of several batches is the first of these that one of them has."""


@command("watch-folder", short_help="Send the batches that appear in a folder, one after the other.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("model")
@RECIPE
@click.option("--once", is_flag=True, help="End when all that is whole now is settled: for cron.")
@click.option(
    "--quiet", "quiet_s", type=click.FloatRange(0), default=60.0, show_default=True, metavar="SECONDS",
    help="Unchanged for so long a batch is whole.",
)  # fmt: skip
@click.option(
    "--every",
    "every_s",
    type=SECONDS,
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Look so often.",
)
@click.option("--timeout", type=SECONDS, metavar="SECONDS", help="With --once: end after so long at most.")
def watch_folder(
    shell: Shell,
    folder: Path,
    model: str,
    recipe: Any,
    once: bool,
    quiet_s: float,
    every_s: float,
    timeout: float | None,
) -> int:
    """Send each batch that appears in DIR to MODEL: an archive, or a folder of folders of images.

    One is taken when it has not changed for a minute, or is marked: by a file .done in its folder, or NAME.zip.done
    beside an archive. What was learned moves to DIR/learned, what is held to DIR/held and what failed to DIR/failed,
    with the reason in a text beside it; none blocks another. No link is followed.

    It can be ended and begun again at any time, since a batch that is sent again is not learned again. One process has
    DIR at a time. With --once the exit status is that of the worst batch.
    """
    if timeout is not None and not once:
        raise click.UsageError("--timeout goes with --once.")
    with inbox.locked(folder), shell.client() as client:
        client.models.retrieve(model)  # a wrong name or key is told at once
        watch = Watch(shell, client, folder, model, recipe, quiet_s)
        until = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                watch.look()
                if once and watch.is_settled:
                    return watch.status
                if until is not None and time.monotonic() > until:
                    return watch.status
                time.sleep(min(every_s, 1.0) if watch.sent else every_s)
        except KeyboardInterrupt:
            complain(f"\n{folder} is watched no more; jobs that were sent go on.")
            return Exit.INTERRUPTED


@dataclass
class Sent:
    """A batch that is under way, as it was when it was sent. is_told: whether it was told that its base is missing."""

    batch: Found
    handle: JobHandle
    job: Job | None = None
    is_told: bool = False


@dataclass
class Watch:
    """What is known of a folder.

    Attributes:
        sent: batches under way, by name.
        ends: exit statuses of those that are settled.
        stuck: batches that could not be moved, as they were then; they are left until they change.
        away: the last error that was not a batch's fault; None: the service answers.
    """

    shell: Shell
    client: Perennial
    folder: Path
    model: str
    recipe: Any
    quiet_s: float
    sent: dict[str, Sent] = field(default_factory=dict)
    ends: set[Exit] = field(default_factory=set)
    stuck: dict[str, Found] = field(default_factory=dict)
    away: PerennialError | None = None

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left that goes on by itself."""
        return self.away is not None or all(_waits_for_person(one.job) for one in self.sent.values())

    @property
    def status(self) -> Exit:
        """The worst that became of a batch."""
        ends = set(self.ends)
        if self.away is not None:
            ends.add(status_of(self.away))
        if self.sent:
            lacking = any(one.job is not None and lacks_base(one.job) for one in self.sent.values())
            ends.add(Exit.NO_BASE if lacking else Exit.STILL_RUNNING)
        return next((one for one in WORST if one in ends), Exit.DONE)

    def look(self) -> None:
        """Send what is whole, and put away what is settled."""
        self.away = None
        try:
            for batch in inbox.find_batches(self.folder):
                name = batch.path.name
                if name not in self.sent and self.stuck.get(name) != batch and batch.is_whole(self.quiet_s):
                    self._send(batch)
            for name, one in list(self.sent.items()):
                one.job = one.handle.refresh()
                if one.job.is_terminal:
                    del self.sent[name]
                    self._settle(one.batch, one.handle.ending(one.job), one.job)
                elif (lacking := lacks_base(one.job)) is not None and not one.is_told:
                    one.is_told = True
                    self._tell(name, "waits", by_commands(lacking))
        except AWAY as error:
            self.away = error
            self._tell("", "waits", f"the service does not answer, or is full: {error}")

    def _send(self, batch: Found) -> None:
        path = batch.path
        try:
            if batch.problem is not None:
                raise inbox.Unsendable(batch.problem)
            handle = self.client.submit(self.model, path, name=_name_of(path), recipe=self.recipe)
        except NoKey:
            raise
        except OF_THE_BATCH as error:
            self._settle(batch, error, None)
            return
        repeats = handle.repeats
        if repeats is not None and repeats.standing == "learned":
            self._settle(batch, None, handle.job)
            return
        self._tell(path.name, "sent", f"job {handle.id}")
        self.sent[path.name] = Sent(batch, handle, handle.job)

    def _settle(self, batch: Found, error: PerennialError | None, job: Job | None) -> None:
        try:
            self._put_away(batch, error, job)
        except OSError as problem:
            self.stuck[batch.path.name] = batch
            self.ends.add(Exit.ERROR)
            complain(one_line(f"{batch.path} cannot be moved: {problem.strerror or problem}."))

    def _put_away(self, batch: Found, error: PerennialError | None, job: Job | None) -> None:
        now = inbox.look_at(batch.path)
        if now is None:
            self._tell(batch.path.name, "gone", "somebody has taken it away")
            return
        if now.state != batch.state:
            self._tell(batch.path.name, "changed", "it was changed after it was sent, and is sent again")
            return
        if error is None:
            inbox.put_away(batch.path, LEARNED)
            self._tell(batch.path.name, LEARNED, f"version {job.version}" if job else "")
            return
        place = HELD if isinstance(error, GateHeld) else FAILED
        reason = "\n".join(
            by_commands(text) if not text.startswith("  ") else text for text in str(error).split("\n")
        )
        about = f"job {error.job.id}\n" if isinstance(error, JobEnded) else ""
        where = inbox.put_away(batch.path, place, f"{reason}\n{about}")
        status = status_of(error)
        self.ends.add(Exit.FAILED if status is Exit.USAGE or status is Exit.ERROR else status)
        self._tell(batch.path.name, place, f"{reason.splitlines()[0]} See {where}.txt")

    def _tell(self, name: str, what: str, more: str) -> None:
        said = {"batch": name or None, "what": what, "more": more}
        if self.shell.is_json:
            line(said)
        else:
            say(one_line(": ".join(part for part in (name, what, more) if part)))


def _waits_for_person(job: Job | None) -> bool:
    if job is None or job.waiting_for is None:
        return False
    return job.waiting_for.kind in STOPPED_BY or lacks_base(job) is not None


def _name_of(path: Path) -> str:
    from perennial.cli.submit import _label

    return _label(str(path))
