"""Export job: a process writes and checks a download, and the worker packs and stores it.

A lost attempt starts over. The same version gives the same bytes, so two attempts store one file.
"""

import json
import time
from pathlib import Path

from sqlalchemy import delete

from core.contract.jobs.export_job import ExportResult
from core.contract.reports.report import ExportReport
from core.database.kinds import JobKind as Name
from core.database.states import JobAction, find_next_job_state
from core.database.tables import ExportedDownload, Model
from core.errors import Unavailable
from core.execution import exporters
from core.execution.exporting import (
    ExportJobInputs,
    fetch_export_inputs_and_write_spec,
    read_export_job_inputs,
)
from core.execution.kinds.kind import (
    ClaimedJobContext,
    JobKindDefinition,
    JobLimitAdvice,
    JobOutcome,
)
from core.export.format import VersionPartFileToExport, VersionToExport
from core.export.registry import FORMATS
from core.failpoints import hit_failpoint
from core.ingest.ingest import IngestStopped
from core.jobs.fence import lock_claimed_job
from core.recipe.catalogue import load_recipe_catalogue
from core.retention import damage, references
from core.storage import Blobs
from core.telemetry import EXPORT_BYTES, EXPORT_SECONDS
from core.usage import stored_bytes

ADVICE = JobLimitAdvice(
    time="(PERENNIAL_MAX_EXPORT_S). The version can be had as format=safetensors.",
    memory="Raise it, or take the version as format=safetensors.",
)


def _run_export_job(work: ClaimedJobContext) -> JobOutcome | None:
    """Run a claimed export job, unless too many are exporting."""
    exporters.begin_export_or_raise_put_off(work.db, work.claim, work.settings.max_exports)
    try:
        return _export_version_to_download(work)
    # Also after an error, so that exports that wait look again at once.
    finally:
        exporters.end_export_and_release_waiting(work.db, work.claim)


def _export_version_to_download(work: ClaimedJobContext) -> JobOutcome | None:
    """Export a version to a download file and return the report; None if the export was stopped."""
    begin = time.monotonic()
    order = read_export_job_inputs(work.db, work.claim)
    blobs = Blobs(
        work.store, work.settings.make_folder("cache"), marks=damage.DatabaseDamageMarks(work.db)
    )
    spec = fetch_export_inputs_and_write_spec(work.db, blobs, work.settings, order, work.folder)
    # Fetching may take long, and the process that follows takes even longer.
    if work.must_stop():
        raise IngestStopped
    out = work.process(spec)
    if out is None:
        return None
    result = ExportResult.from_json(json.loads((out / "result.json").read_text()))
    sha256, size = _store_version_download(work, blobs, order, out)
    EXPORT_SECONDS.observe(time.monotonic() - begin)
    EXPORT_BYTES.inc(size)
    report: ExportReport = {
        "version": order.number,
        "format": order.format,
        "sha256": sha256,
        "bytes": size,
        "opset": result.opset,
        "max_difference": result.max_difference,
        "tolerance": result.tolerance,
        "batches": result.batches,
        "images": result.images,
        "held_out_images": result.held_out_images,
        "exporter": result.exporter.to_json(),
    }
    summary = (
        f"Version {order.number} can be downloaded as {order.format}: {size:,} bytes. No "
        f"probability differs from the version's by more than {result.max_difference:.1e}, over "
        f"{result.images + result.held_out_images} images."
    )
    return JobOutcome(report, [("info", summary)])


def _store_version_download(
    work: ClaimedJobContext, blobs: Blobs, order: ExportJobInputs, export_folder: Path
) -> tuple[str, int]:
    """Zip an export's output, store and register it, and return its digest and size in bytes.

    Raises:
        LeaseLost: the job belongs to another worker by now.
        WrongState: a stop was requested; nothing was registered.
    """
    form = FORMATS[order.format]
    file = work.folder / f"export.{form.suffix}"
    parts = [
        VersionPartFileToExport(name, blobs.fetch_verified_file(sha256), sha256)
        for name, _, sha256 in order.parts
    ]
    form.write_download(
        file,
        VersionToExport(
            order.manifest, parts, load_recipe_catalogue(work.settings), export_folder, order.sure
        ),
    )
    sha256, size = blobs.put_file(file, move=True)
    hit_failpoint("export-stored")
    with work.db.write() as session:
        job = lock_claimed_job(session, work.claim)
        # Raises if a stop was requested, before anything is registered.
        find_next_job_state(job.state, JobAction.FINISH)
        # Until the transaction ends, no sweep deletes the blob that it is about to name.
        references.lock_blob_references_against_deletion(session)
        if not blobs.has(sha256):  # deleted as unused after it was stored
            raise Unavailable("The download was removed before anything named it.")
        mine = (
            ExportedDownload.version_id == order.version_id,
            ExportedDownload.format == order.format,
        )
        # An earlier download of this version may still have its row.
        session.execute(delete(ExportedDownload).where(*mine))
        now = work.db.now(session)
        session.add(
            ExportedDownload(
                version_id=order.version_id,
                format=order.format,
                sha256=sha256,
                bytes=size,
                created_at=now,
            )
        )
        # The owner's row is locked last, so the other rows are written before.
        session.flush()
        stored_bytes.add_stored_bytes(
            session, session.get_one(Model, order.model_id).owner_id, size
        )
    hit_failpoint("export-made")
    return sha256, size


EXPORT = JobKindDefinition(
    str(Name.EXPORT),
    priority=2,
    longest_s=lambda settings: settings.max_export_s,
    run=_run_export_job,
    able=exporters.has_onnx_export_packages,
    advice=ADVICE,
)
