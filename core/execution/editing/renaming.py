"""The result of an edit that only renames classes: the head's parts under other names."""

import json
from pathlib import Path

from sqlalchemy import select

from core.contract.architecture import TaskHeadDescription
from core.contract.jobs.job_result import LearnJobResult, MeasuredMatrixCell, NewVersionPartFile
from core.contract.manifest import PER_TASK
from core.database.session import Database
from core.database.tables import VersionTaskResult
from core.execution.editing.edit_rows import RowsForEditJob
from core.storage import Blobs


def write_head_as_result_with_renamed_classes(
    db: Database, blobs: Blobs, facts: RowsForEditJob, out: Path
) -> LearnJobResult:
    """Write the lineage head as a job result with renamed classes, without learning.

    Nothing is learned or measured: its predictions are those of the head.

    Args:
        out: folder to write.
    """
    (out / "parts").mkdir(parents=True)
    parts = []
    for part in facts.parts:
        # Sums and features of tasks stay with the head, which the new version continues.
        if part.version_id == facts.head.id and part.type not in PER_TASK and not part.deleted_at:
            file = f"parts/{part.name}.safetensors"
            (out / file).hardlink_to(blobs.fetch_verified_file(part.sha256))
            parts.append(NewVersionPartFile(name=part.name, type=part.type, file=file))
    manifest = facts.head.manifest
    assert manifest.method is not None and manifest.environment is not None
    assert manifest.normalise is not None, "the head was taught a task"
    optional_fields = {
        "network": manifest.network,
        "temperature": manifest.temperature,
        "problem": manifest.problem,
    }
    document = LearnJobResult(
        parts=parts,
        classes=_apply_new_class_names(facts, manifest.classes or []),
        heads=[
            TaskHeadDescription(task=head.task, classes=_apply_new_class_names(facts, head.classes))
            for head in manifest.heads or []
        ],
        method=manifest.method,
        normalise=manifest.normalise,
        environment=manifest.environment,
        steps=0,
        results=_read_matrix_row_with_renamed_classes(db, facts),
        trainable=0,
        parameters=manifest.parameters or 0,
        images=0,
        **{name: value for name, value in optional_fields.items() if value is not None},
    )
    (out / "result.json").write_text(json.dumps(document.to_json(), ensure_ascii=False))
    return document


def _apply_new_class_names(facts: RowsForEditJob, names: list[str]) -> list[str]:
    renamed = [facts.changes.classes.get(name, name) for name in names]
    return [name for name in renamed if name is not None]


def _read_matrix_row_with_renamed_classes(
    db: Database, facts: RowsForEditJob
) -> list[MeasuredMatrixCell]:
    """Return the lineage head's row of the accuracy matrix with classes renamed."""
    query = select(VersionTaskResult).where(
        VersionTaskResult.model_id == facts.model.id,
        VersionTaskResult.version == facts.head.number,
        VersionTaskResult.task.in_(facts.taught),
    )
    with db.read() as session:
        return [
            MeasuredMatrixCell(
                version="new",
                task=cell.task,
                correct=cell.correct,
                total=cell.total,
                per_class={
                    facts.changes.classes.get(name) or name: counts
                    for name, counts in cell.per_class.items()
                },
            )
            for cell in session.scalars(query.order_by(VersionTaskResult.task))
        ]
