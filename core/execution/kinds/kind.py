"""A kind of job, and the tools it works with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.contract.jobs.trial import TrialMeasurements
from core.contract.reports.report import BatchCheck, ExportReport
from core.database.job_log import Line
from core.database.session import Database
from core.jobs.fence import JobClaim
from core.settings import Settings
from core.storage import ObjectStorage


@dataclass(frozen=True)
class ClaimedJobContext:
    """One attempt of a worker at a claimed job: database, store, claim, and callbacks of the
    worker.

    Attributes:
        folder: scratch space of this attempt; the worker deletes it.
        must_stop: returns True if the attempt must stop now: cancelled, paused, taken away, out of
            time, or the worker shuts down. Call it often.
        progress: reports progress as (phase, done, total). Written at most once a second.
        begin: reports that a phase begins whose steps are not counted.
        train: runs the learning process on a specification file and publishes its result, or
            records how else it ended.
        process: runs a job process on a specification file; returns the folder with its result, or
            None if the end of the job is recorded already.
        publish: publishes the version in a result's folder.
        judge: returns what the version in a result's folder would be, without publishing it.
    """

    db: Database
    store: ObjectStorage
    settings: Settings
    claim: JobClaim
    folder: Path
    must_stop: Callable[[], bool]
    progress: Callable[[str, int, int], None]
    begin: Callable[[str], None]
    train: Callable[[Path], None]
    process: Callable[[Path], Path | None]
    publish: Callable[[Path], None]
    judge: Callable[[Path], TrialMeasurements]


@dataclass(frozen=True)
class JobOutcome:
    """The outcome of a job attempt: findings for the response, and last log lines.

    Attributes:
        report: findings in the job's response.
        log_lines: the last lines of its log.
    """

    report: BatchCheck | ExportReport | None
    log_lines: Sequence[Line] = ()


@dataclass(frozen=True)
class JobLimitAdvice:
    """Advice for the user about a job that reached its time or memory limit.

    The advice about time also names the setting of the limit.
    """

    time: str = (
        "(PERENNIAL_MAX_JOB_S; pauses do not count). Retry it with fewer epochs, or send "
        "smaller batches."
    )
    memory: str = (
        "Retry it with a smaller recipe.batch_size or another method, or start a model with a "
        "smaller architecture or image."
    )


@dataclass(frozen=True)
class JobKindDefinition:
    """A kind of job (learn, export …): its name, priority, time limit and function.

    Attributes:
        name: `Job.kind`, at most 12 characters.
        priority: jobs of an owner with the lowest number come first (`core.scheduling.turns`).
        longest_s: seconds that a job may run, over all its attempts; 0: no limit.
        run: does the work; returns None if the end of the job is recorded already. May raise
            `IngestStopped` when `must_stop` says so, `Rejected` for what the client sent, `JobPutOffSignal`
            to wait for its turn without a worker, and any other error: an outage puts the job off,
            a damaged object or a lost process counts as a lost attempt, all others fail it. Another
            attempt restarts the work.
        able: returns True if this worker has what the kind needs; else it leaves such jobs to
            others.
    """

    name: str
    priority: int
    longest_s: Callable[[Settings], float]
    run: Callable[[ClaimedJobContext], JobOutcome | None]
    able: Callable[[], bool] = lambda: True
    advice: JobLimitAdvice = JobLimitAdvice()
