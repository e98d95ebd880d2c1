"""Preparation of an export process: a folder with the specification and local files."""

import json
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from core.contract.jobs.export_job import ExportSpec, TaskHeldOutDatasetPath
from core.contract.jobs.job_spec import LocalVersionPartFile
from core.contract.manifest import Manifest
from core.contract.part_types import list_inference_part_types
from core.contract.responses.versions.sure import SureOut
from core.database.session import Database
from core.database.tables import ExportJob, Model, Task, Version, VersionPart
from core.errors import Invalid
from core.jobs.fence import JobClaim
from core.lineage.confident_predictions import choose_threshold_for_promised_precision
from core.lineage.coverage import list_taught_tasks
from core.retention import damage
from core.settings import Settings
from core.storage import Blobs

MAX_TASKS = 64
"""Maximum number of tasks, the newest, whose held-out images a graph is checked on."""
SPEC = "export.json"


@dataclass(frozen=True)
class ExportJobInputs:
    """A requested export: version, format, parts needed for prediction, and held-out images."""

    version_id: str
    number: int
    format: str
    model_id: str
    manifest: Manifest
    parts: list[tuple[str, str, str]]  # name, type, sha256
    held_out: list[tuple[int, str]]  # task, sha256
    sure: SureOut | None = None


def read_export_job_inputs(db: Database, claim: JobClaim) -> ExportJobInputs:
    """Read the version and format that a claimed export job has to export.

    Raises:
        Invalid: the download is now made by another job.
        StoredObjectDamaged: a part is known to be damaged.
    """
    with db.read() as session:
        export_job = session.scalar(select(ExportJob).where(ExportJob.job_id == claim.job_id))
        if export_job is None:
            raise Invalid("Another job makes this download. Ask for it: GET …/download.")
        version = session.get_one(Version, export_job.version_id)
        query = select(VersionPart).where(
            VersionPart.version_id == version.id, VersionPart.deleted_at.is_(None)
        )
        types = list_inference_part_types(version.manifest)
        rows = session.scalars(query.order_by(VersionPart.position, VersionPart.name))
        parts = [(part.name, part.type, part.sha256) for part in rows if part.type in types]
        # At once, instead of after minutes of work that ends in a wrong file.
        damage.require_undamaged_version_parts(
            session, version, {Blobs.make_blob_key(sha256): name for name, _, sha256 in parts}
        )
        held_out = _list_newest_held_out_datasets(session, version)
        return ExportJobInputs(
            version.id,
            version.number,
            export_job.format,
            version.model_id,
            version.manifest,
            parts,
            held_out,
            choose_threshold_for_promised_precision(
                session, session.get_one(Model, version.model_id), version.number
            ),
        )


def _list_newest_held_out_datasets(session: Session, version: Version) -> list[tuple[int, str]]:
    """Return (task, digest) of the held-out datasets of a version's newest tasks."""
    query = (
        select(Task.number, Task.held_out_sha256)
        .where(
            Task.model_id == version.model_id,
            Task.number.in_(list_taught_tasks(version.manifest)),
            Task.held_out_sha256.is_not(None),
            Task.held_out_deleted_at.is_(None),
            Task.data_deleted_at.is_(None),
            Task.n_held_out > 0,
        )
        .order_by(Task.number.desc())
        .limit(MAX_TASKS)
    )
    return [(number, sha256) for number, sha256 in session.execute(query) if sha256 is not None]


def fetch_export_inputs_and_write_spec(
    db: Database, blobs: Blobs, settings: Settings, order: ExportJobInputs, folder: Path
) -> Path:
    """Fetch the input files of an export process, and write its spec.

    Return the file.

    Raises:
        StoredObjectDamaged: a part or a dataset is missing or damaged.
    """
    with damage.reword_damage_errors_of_model(db, order.model_id):
        spec = ExportSpec(
            work="export",
            manifest=order.manifest,
            parts=[
                LocalVersionPartFile(name=name, type=type_, path=blobs.fetch_verified_file(sha256))
                for name, type_, sha256 in order.parts
            ],
            held_out=[
                TaskHeldOutDatasetPath(task=task, path=blobs.fetch_verified_file(sha256))
                for task, sha256 in order.held_out
            ],
            out=folder / "out",
            threads=settings.threads,
            sure_from=None if order.sure is None else order.sure["threshold"],
        )
    path = folder / SPEC
    path.write_text(json.dumps(spec.to_json(), ensure_ascii=False))
    return path
