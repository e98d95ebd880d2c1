"""The files that `bench.service.million` reads: parts with a replay buffer, a base and an anytime
state.
"""

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from sqlalchemy import select, update

from bench.service.fill import MANIFEST
from bench.service.series import GeneratedRowCounts, make_generated_row_id
from core.contract.jobs.snapshot import StoredBestState
from core.database.session import Database
from core.database.tables import Alias, Job, UploadedBase, Version, VersionPart
from core.settings import Settings
from core.storage import Blobs, ObjectStorage

BASE = make_generated_row_id("bas", 0)
ANYTIME_JOB = make_generated_row_id("job", 0)
"""The first model's first job, made to look as if it were paused with a validated state."""


def store_real_files_for_reads(
    db: Database, store: ObjectStorage, settings: Settings, size: GeneratedRowCounts
) -> None:
    """Store real files for the first model's newest version, a job's best state and a base."""
    draw = np.random.default_rng(0)
    parts: dict[str, dict[str, npt.NDArray[Any]]] = {
        "backbone": {"backbone.conv1.weight": draw.normal(size=(64, 3, 3, 3)).astype(np.float32)},
        "head": {
            "head.weight": draw.normal(size=(2, 64)).astype(np.float32),
            "head.bias": np.zeros(2, np.float32),
        },
        "buffer": {
            "images": np.zeros((200, 8, 8, 3), np.uint8),
            "labels": np.arange(200, dtype=np.int64) % 2,
            "tasks": np.ones(200, np.int64),
        },
    }
    blobs = Blobs(store, settings.make_folder("cache"))
    with tempfile.TemporaryDirectory() as folder, db.write() as session:
        model = make_generated_row_id("mdl", 0)
        newest = session.scalars(
            select(Alias.version).where(Alias.model_id == model, Alias.name == "latest")
        ).one()
        version = session.scalars(
            select(Version).where(Version.model_id == model, Version.number == newest)
        ).one()
        described, files = [], {}
        for position, (name, tensors) in enumerate(parts.items()):
            path = Path(folder) / name
            save_file(tensors, path)
            data = path.read_bytes()
            store.put_bytes(f"anytime/{ANYTIME_JOB}/1-1/{name}.safetensors", data)
            files[f"{name}.safetensors"] = (hashlib.sha256(data).hexdigest(), len(data))
            sha256, length = blobs.put_file(path)
            described.append({"name": name, "type": name, "sha256": sha256, "bytes": length})
            row = session.get(VersionPart, (version.id, name))
            if row is None:
                session.add(VersionPart(version_id=version.id, position=position, **described[-1]))
            elif name != "backbone":  # which stays the blob of a base that many versions share
                row.sha256, row.bytes = sha256, length
            else:
                everywhere = update(VersionPart).where(VersionPart.sha256 == row.sha256)
                session.execute(everywhere.values(sha256=sha256, bytes=length))
        session.add(
            UploadedBase(
                id=BASE, owner_id=make_generated_row_id("own", 0), architecture={"name": "small-cnn"},
                sha256=described[0]["sha256"], bytes=described[0]["bytes"], created_at=version.created_at,
            )
        )  # fmt: skip
        manifest = json.dumps({**MANIFEST, "tasks": [1], "parts": described}).encode()
        key = f"anytime/{ANYTIME_JOB}/1-1/"
        store.put_bytes(f"{key}manifest.json", manifest)
        files["manifest.json"] = (hashlib.sha256(manifest).hexdigest(), len(manifest))
        job = session.get_one(Job, ANYTIME_JOB)
        job.state, job.finished_at, job.recipe = "paused", None, {**job.recipe, "anytime": True}
        job.anytime = StoredBestState(key=key, files=files, fence=1, number=1, step=9, correct=9)
