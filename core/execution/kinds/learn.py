"""Learn a task: decode its archive, fetch what the learning process reads, let it run, publish the
version.
"""

import shutil

from core.database.kinds import Kind as Name
from core.database.states import State
from core.execution.kinds.kind import Kind, Work
from core.execution.prepare import prepare_job
from core.execution.validate import validate_archive
from core.failpoints import hit_failpoint
from core.ingest.ingest import Monitor, Stopped


def _run_learn_job(work: Work) -> None:
    if work.claim.state is State.VALIDATING:
        _decode_archive(work)
    # Fetching datasets and parts may take long, and a stopped job needs none.
    if work.must_stop():
        raise Stopped
    work.begin("prepare")
    spec = prepare_job(work.db, work.store, work.claim, work.settings, work.folder / "job")
    hit_failpoint("prepare-done")
    if work.must_stop():
        raise Stopped
    work.train(spec)


def _decode_archive(work: Work) -> None:
    folder = work.folder / "ingest"
    folder.mkdir()

    def report_progress(done: int, total: int) -> None:
        work.progress("validate", done, total)

    try:
        monitor = Monitor(report_progress, work.must_stop)
        validate_archive(work.db, work.store, work.claim, work.settings, folder, monitor)
    finally:
        # Before training, which may need the room on the disk.
        shutil.rmtree(folder, ignore_errors=True)


LEARN = Kind(
    str(Name.LEARN), priority=1, longest_s=lambda settings: settings.max_job_s, run=_run_learn_job
)
