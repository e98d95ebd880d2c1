"""Models with versions, made without training: parts go straight into the store, rows into the
database.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from starlette.testclient import TestClient

from core.contract.figures import VersionFigures
from core.contract.jobs.job_result import MeasuredMatrixCell
from core.contract.manifest import Manifest
from core.database.measurements import replace_manifest_figures_by_null
from core.database.session import Database
from core.database.tables import Alias, AliasMove, Model, Task, Version, VersionPart
from core.ids import new_id
from core.publishing.job_measurements import NewVersionMeasurements, store_version_measurements
from core.storage import Blobs
from tests.api.conftest import create_model

Publish = Callable[..., int]


@pytest.fixture
def model(client: TestClient) -> str:
    """A class-scenario model called `birds`, with version 0."""
    return create_model(client, "birds")


@pytest.fixture
def publish(client: TestClient, tmp_path: Path) -> Publish:
    """Publishes the next version of a model from arrays:
    `publish("birds", {"head": {"head.weight": …}})`.
    """
    return make_publisher(client, tmp_path)


def make_publisher(client: TestClient, folder: Path) -> Publish:
    """Return the function that `publish` gives tests, which writes its files in this folder."""
    db: Database = client.app.state.database  # type: ignore[attr-defined]
    blobs: Blobs = client.app.state.blobs  # type: ignore[attr-defined]

    def publish_version(
        name: str,
        parts: dict[str, dict[str, np.ndarray]] | None = None,
        *,
        types: dict[str, str] | None = None,
        passed: bool = True,
        cells: dict[int, tuple[int, int]] | None = None,
        per_class: dict[int, dict[str, list[int]]] | None = None,
        manifest: dict[str, Any] | None = None,
    ) -> int:
        stored = []
        for part, tensors in (parts or build_default_parts()).items():
            path = folder / f"{new_id('ver')}.safetensors"
            save_file(tensors, path)
            sha256, size = blobs.put_file(path, move=True)
            kind = (types or {}).get(part, part.partition(".")[0])
            stored.append({"name": part, "type": kind, "sha256": sha256, "bytes": size})
        with db.write() as session:
            row = session.query(Model).filter_by(name=name).one()
            now = db.now(session)
            number = row.next_version
            row.next_version += 1
            learned = row.next_task
            row.next_task += 1
            task = _build_task(row, learned, now)
            task.standing, task.standing_at, task.stops = (
                ("learned" if passed else "held"),
                now,
                not passed,
            )
            session.add(task)
            session.flush()
            parent = session.query(Version).filter_by(model_id=row.id, number=row.head).one()
            line = {"task": learned, "tasks": [*parent.manifest.tasks, learned]}
            line |= {"format": 1, "model": row.id, "version": number, "parent": number - 1}
            network = {
                "scenario": row.scenario,
                "architecture": row.architecture,
                "image": row.image,
            }
            known = {"normalise": None, "classes": ["cat", "dog"], "heads": [], "parts": stored}
            document = Manifest.from_json({**line, **network, **known, **(manifest or {})})
            version = Version(
                id=new_id("ver"),
                model_id=row.id,
                number=number,
                parent=row.head,
                task_number=learned,
                status="published" if passed else "held",
                gate={"passed": passed, "checks": []},
                manifest=replace_manifest_figures_by_null(document),
                bytes=sum(p["bytes"] for p in stored),
                bytes_new=0,
                created_at=now,
            )
            session.add(version)
            session.flush()
            for position, part in enumerate(stored):
                session.add(VersionPart(version_id=version.id, position=position, **part))
            split = per_class or {}
            measured = [
                MeasuredMatrixCell(
                    version="new", task=of, correct=right, total=total, per_class=split.get(of, {})
                )
                for of, (right, total) in (cells or {}).items()
            ]
            store_version_measurements(
                session,
                row,
                version,
                NewVersionMeasurements(
                    measured, VersionFigures(**document.get_explicitly_set_field_values()), {}
                ),
                (),
            )
            if passed:
                alias = session.get_one(Alias, (row.id, "production"))
                move = {"alias": "production", "cause": "publish", "version": number, "at": now}
                session.add(AliasMove(model_id=row.id, previous=alias.version, **move))
                alias.version = row.head = number
        return number

    return publish_version


def build_default_parts(seed: int = 0) -> dict[str, dict[str, np.ndarray]]:
    draw = np.random.default_rng(seed)
    return {
        "backbone.1": {"backbone.conv1.weight": draw.normal(size=(4, 3, 3, 3)).astype(np.float32)},
        "head": {
            "head.weight": draw.normal(size=(2, 5)).astype(np.float32),
            "head.bias": np.zeros(2, np.float32),
        },
    }


def _build_task(model: Model, number: int, now: float) -> Task:
    return Task(
        id=new_id("tsk"),
        model_id=model.id,
        number=number,
        name=f"week {number}",
        sha256="0" * 64,
        bytes=10,
        media_type="zip",
        classes={"cat": 3, "dog": 4},
        n_train=6,
        n_held_out=1,
        report={},
        warnings=[],
        created_at=now,
    )
