"""Measure a classifier that came with its model: decode held-out images, and let it predict them."""

import shutil

from core.database.kinds import Kind as Name
from core.execution.kinds.kind import Kind, Work
from core.execution.measuring import decode_held_out, prepare_measurement
from core.ingest.ingest import Stopped


def _run_measure_job(work: Work) -> None:
    try:
        decode_held_out(work)
    finally:
        shutil.rmtree(work.folder / "ingest", ignore_errors=True)
    # Fetching parts may take long, and a stopped job needs none.
    if work.must_stop():
        raise Stopped
    work.begin("prepare")
    spec = prepare_measurement(work)
    if work.must_stop():
        raise Stopped
    work.train(spec)


MEASURE = Kind(
    str(Name.MEASURE),
    priority=1,
    longest_s=lambda settings: settings.max_job_s,
    run=_run_measure_job,
)
