"""The trials of a learning job: each is learned, measured and stored, and one is published.

The trial under way lends the job its recipe, so that preparation, snapshots and resuming work as
for a single recipe. The result of a measured trial is stored until the job ends. The chosen one is
published from there, with the recipe of its trial: as if the batch had been sent with it alone.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.jobs.trial import TrialMeasurements
from core.database import job_log
from core.database.jobs import change_job_state
from core.database.session import Database
from core.database.states import JobAction
from core.database.tables import Job, Trial, TrialFile
from core.execution import snapshots
from core.execution.progress import count_seconds_job_was_claimed
from core.failpoints import hit_failpoint
from core.jobs.fence import JobClaim, lock_claimed_job
from core.retention import references, retention
from core.storage import Blobs, ObjectStorage
from core.trials.rows import (
    TrialState,
    delete_trial_file_rows,
    find_best_trial_number,
    read_trials,
    reset_trial_to_waiting,
)
from core.usage import stored_bytes

CHOOSE_S = 7 * 86_400.0
"""Seconds that a person may take to choose; then the best trial is chosen."""


@dataclass(frozen=True)
class ClaimedJobTrials:
    """The trials (candidate recipes) of a claimed job.

    Attributes:
        max_job_s: seconds that the job may run.
    """

    db: Database
    store: ObjectStorage
    blobs: Blobs
    claim: JobClaim
    max_job_s: float

    def begin_next_trial(self) -> int | None:
        """Start the job's next trial by giving the job its recipe; return its number, or None if
        none is left.

        Trials that would begin after the budget are skipped, as soon as one is measured.
        A trial that an earlier attempt began is resumed. Results of trials that were learned from
        another version than the job continues are forgotten.
        """
        with self.db.write() as session:
            job = lock_claimed_job(session, self.claim)
            trials = read_trials(session, job.id)
            if any(trial.parent not in (None, job.parent_version) for trial in trials):
                _requeue_outdated_trials(session, job, trials)
            if job.chosen_trial is not None:
                return None
            # Reversed, so that the first trial of each state is the one that remains in the dict.
            first = {trial.state: trial for trial in reversed(trials)}
            if TrialState.RUNNING in first:
                return first[TrialState.RUNNING].number
            if TrialState.WAITING not in first:
                return None
            trial, now = first[TrialState.WAITING], self.db.now(session)
            began_s = count_seconds_job_was_claimed(session, job.id, now, self.max_job_s)
            if TrialState.MEASURED in first and is_trial_time_used_up(job, began_s):
                _skip_waiting_trials(session, job, trials, now)
                return None
            trial.state, trial.parent = str(TrialState.RUNNING), job.parent_version
            trial.began_s = began_s
            _set_job_recipe_from_trial(job, trial)
            text = f"Trial {trial.number} of {len(trials)} begins. {trial.reason}"
            job_log.add_job_log_line(session, job.id, ("info", text), now)
            return trial.number

    def store_result(self, number: int, folder: Path, figures: TrialMeasurements) -> None:
        """Store a trial's result, record it as measured, and delete the job's snapshots."""
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        files = {str(path.relative_to(folder)): path for path in paths}
        stored = {name: self.blobs.put_file(path, link=True) for name, path in files.items()}
        hit_failpoint("trial-stored")
        with self.db.write() as session:
            # Until the transaction ends, no sweep deletes the blobs that it is about to name.
            references.lock_blob_references_against_deletion(session)
            for name, (sha256, _) in stored.items():
                # A sweep may have deleted it before the lock, while no row named it.
                if not self.blobs.has(sha256):
                    self.blobs.put_file(files[name])
            job = lock_claimed_job(session, self.claim)
            now = self.db.now(session)
            trial = session.get_one(Trial, (job.id, number))
            trial.state, trial.figures = str(TrialState.MEASURED), figures
            claimed_seconds = count_seconds_job_was_claimed(session, job.id, now, self.max_job_s)
            trial.seconds = round(max(0.0, claimed_seconds - (trial.began_s or 0.0)), 3)
            session.add_all(
                TrialFile(job_id=job.id, trial=number, name=name, sha256=sha256, bytes=size)
                for name, (sha256, size) in stored.items()
            )
            # Its snapshot is of no use to the next trial.
            _reset_state_of_previous_trial(job)
            text = f"Trial {number} is measured: {_format_trial_result_for_log(figures)}."
            job_log.add_job_log_line(session, job.id, ("info", text), now)
            session.flush()
            size = sum(size for _, size in stored.values())
            # At the end of the transaction, since it locks the owner's row.
            stored_bytes.add_stored_bytes(session, job.owner_id, size)
        hit_failpoint("trial-measured")
        # After the commit: if that failed, the job's row would name a deleted snapshot.
        for info in list(self.store.list(snapshots.build_snapshot_key_prefix(self.claim.job_id))):
            self.store.delete(info.key)

    def choose_trial(self) -> int | None:
        """Choose the trial to publish; return its number, or None if the job waits for a user's
        choice.

        The job gets the recipe of the chosen trial.
        """
        with self.db.write() as session:
            job = lock_claimed_job(session, self.claim)
            trials = read_trials(session, job.id)
            now = self.db.now(session)
            if job.chosen_trial is None:
                measured = [each for each in trials if each.state == TrialState.MEASURED]
                if job.choose == "manual" and len(measured) > 1:
                    job.choose_until = now + CHOOSE_S
                    change_job_state(session, job, JobAction.ASK, now)
                    return None
                job.chosen_trial = find_best_trial_number(trials)
            chosen = next(each for each in trials if each.number == job.chosen_trial)
            _set_job_recipe_from_trial(job, chosen)
            text = f"Trial {chosen.number} of {len(trials)} is chosen, and becomes the version."
            job_log.add_job_log_line(session, job.id, ("info", text), now)
            return chosen.number

    def copy_trial_result_to_folder(self, number: int, folder: Path) -> Path:
        """Copy the stored result of a trial to a folder, and return the folder.

        Raises:
            StoredObjectDamaged: a file is missing or damaged.
        """
        with self.db.read() as session:
            query = select(TrialFile.name, TrialFile.sha256).where(
                TrialFile.job_id == self.claim.job_id, TrialFile.trial == number
            )
            files = [(name, sha256) for name, sha256 in session.execute(query)]
        for name, sha256 in files:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.blobs.fetch_verified_file(sha256), path)
        return folder

    def list_trial_result_digests(self) -> list[str]:
        """Return the digests of all stored result files of the job's trials."""
        with self.db.read() as session:
            query = select(TrialFile.sha256).where(TrialFile.job_id == self.claim.job_id)
            return sorted(set(session.scalars(query)))

    def delete_unreferenced_trial_results(self, digests: list[str]) -> None:
        """Delete stored result files of trials that nothing refers to any more."""
        for start in range(0, len(digests), _LOOK_UP):
            retention.delete_unused_blobs(self.db, self.blobs, digests[start : start + _LOOK_UP])


_LOOK_UP = 200
"""Digests that one query looks up."""


def has_job_trials(db: Database, claim: JobClaim) -> bool:
    """Return True if a claimed job has trials (candidate recipes)."""
    with db.read() as session:
        return session.scalar(select(Job.choose).where(Job.id == claim.job_id)) is not None


def is_trial_time_used_up(job: Job, seconds: float) -> bool:
    """Return True if a job has used up its time for trials, so that no further one begins."""
    return job.trial_budget_s is not None and seconds >= job.trial_budget_s


def _skip_waiting_trials(session: Session, job: Job, trials: list[Trial], now: float) -> None:
    """Mark the trials of a job that have not begun as skipped."""
    waiting = [trial for trial in trials if trial.state == TrialState.WAITING]
    for trial in waiting:
        trial.state = str(TrialState.SKIPPED)
    numbers = ", ".join(str(trial.number) for trial in waiting)
    text = (
        f"The trials' budget of {job.trial_budget_s:g} s is used up, so these are not run: "
        f"{numbers}."
    )
    job_log.add_job_log_line(session, job.id, ("info", text), now)


def _set_job_recipe_from_trial(job: Job, trial: Trial) -> None:
    """Give a job the recipe of a trial, and reset its progress."""
    job.recipe, job.recipe_override = trial.recipe, trial.recipe_override
    job.progress = {}
    _reset_state_of_previous_trial(job)


def _reset_state_of_previous_trial(job: Job) -> None:
    """Forget the training states and failed attempts of a job's previous trial."""
    job.snapshot = job.anytime = job.resume_on = None
    job.strikes = job.out_of_memory = 0
    job.revision += 1


def _requeue_outdated_trials(session: Session, job: Job, trials: list[Trial]) -> None:
    """Queue a job's trials again, since the job now continues from another version."""
    delete_trial_file_rows(session, job.id)
    job.chosen_trial = None
    for trial in trials:
        reset_trial_to_waiting(trial)


def _format_trial_result_for_log(figures: TrialMeasurements) -> str:
    score = figures.score
    score_text = (
        "no image compares it"
        if score is None
        else f"score {score.value:.1%} ± {score.error:.1%} on {score.images:,} images"
    )
    return (
        score_text
        if figures.passed
        else f"{score_text}; its version would be held, since {figures.held}"
    )
