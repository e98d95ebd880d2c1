"""Learn a task: decode its archive, fetch what the learning process reads, let it run, publish the
version.

A job with trials learns the task once for each of them, and publishes one result.
"""

import shutil
from pathlib import Path

from core.database.kinds import JobKind as Name
from core.database.states import JobState
from core.execution.kinds.kind import ClaimedJobContext, JobKindDefinition
from core.execution.prepare import fetch_job_inputs_and_write_spec
from core.execution.trials import ClaimedJobTrials, has_job_trials
from core.execution.validate import decode_archive_and_start_job
from core.failpoints import hit_failpoint
from core.ingest.ingest import DecodingCallbacks, IngestStopped
from core.retention.damage import DatabaseDamageMarks
from core.storage import Blobs


def _run_learn_job(work: ClaimedJobContext) -> None:
    if work.claim.state is JobState.VALIDATING:
        _decode_archive_and_start_learn_job(work)
    # Fetching datasets and parts may take long, and a stopped job needs none.
    if work.must_stop():
        raise IngestStopped
    if has_job_trials(work.db, work.claim):
        _learn_trials_and_publish_choice(work)
    else:
        work.train(_fetch_inputs_and_write_spec(work, work.folder / "job"))


def _fetch_inputs_and_write_spec(work: ClaimedJobContext, folder: Path) -> Path:
    """Fetch a learning job's inputs and write its spec to a folder; return the path."""
    work.begin("prepare")
    spec = fetch_job_inputs_and_write_spec(work.db, work.store, work.claim, work.settings, folder)
    hit_failpoint("prepare-done")
    if work.must_stop():
        raise IngestStopped
    return spec


def _learn_trials_and_publish_choice(work: ClaimedJobContext) -> None:
    """Learn and measure the remaining trials of a job, and publish the chosen one."""
    blobs = Blobs(
        work.store, work.settings.make_folder("cache"), marks=DatabaseDamageMarks(work.db)
    )
    trials = ClaimedJobTrials(work.db, work.store, blobs, work.claim, work.settings.max_job_s)
    while (number := trials.begin_next_trial()) is not None:
        hit_failpoint("trial-begun")
        folder = work.folder / f"trial-{number}"
        result_folder = work.process(_fetch_inputs_and_write_spec(work, folder))
        # The end of the attempt is recorded; another one continues with the next trial.
        if result_folder is None:
            return
        trials.store_result(number, result_folder, work.judge(result_folder))
        shutil.rmtree(folder, ignore_errors=True)
        if work.must_stop():
            raise IngestStopped
    chosen = trials.choose_trial()
    if chosen is None:
        return
    hit_failpoint("trial-chosen")
    digests = trials.list_trial_result_digests()
    work.publish(trials.copy_trial_result_to_folder(chosen, work.folder / "chosen"))
    trials.delete_unreferenced_trial_results(digests)


def _decode_archive_and_start_learn_job(work: ClaimedJobContext) -> None:
    folder = work.folder / "ingest"
    folder.mkdir()

    def report_progress(done: int, total: int) -> None:
        work.progress("validate", done, total)

    try:
        monitor = DecodingCallbacks(report_progress, work.must_stop)
        decode_archive_and_start_job(
            work.db, work.store, work.claim, work.settings, folder, monitor
        )
    finally:
        # Before training, which may need the room on the disk.
        shutil.rmtree(folder, ignore_errors=True)


LEARN = JobKindDefinition(
    str(Name.LEARN), priority=1, longest_s=lambda settings: settings.max_job_s, run=_run_learn_job
)
