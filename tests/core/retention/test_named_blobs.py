"""Whoever names a blob does so under the lock that keeps it, and finds out when it is gone
already.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from core.bases import bases
from core.contract.manifest import Manifest
from core.database.session import Database
from core.database.tables import ExportedDownload, Job, Model, Owner, UploadedBase
from core.errors import Unavailable
from core.ids import new_id
from core.models import model_deletion
from core.recipe.images import ImageFormatAndNormalisation
from core.requests.actor import Actor
from core.requests.resources import UseCaseResources
from core.retention import references
from core.settings import Settings
from core.storage import Blobs
from core.storage.folder import FolderStore
from core.versions import exports
from tests.core.rows import (
    make_job_row,
    make_model_row,
    make_part_row,
    make_task_row,
    make_version_row,
)

MLP = {"name": "mlp", "hidden": [4]}
CATALOGUE: dict[str, Any] = {"methods": {}, "architectures": {"mlp": {"family": "mlp"}}}
IMAGE = {"size": 8, "channels": 3}
SHAPES = {"head.weight": [2, 3], "head.bias": [2]}
EXPECTED = {
    "tensors": {name: {"dtype": "F32", "shape": shape} for name, shape in SHAPES.items()},
    "optional": [],
    "ignored": [],
}


class Forgetful(Blobs):
    """As if the sweep removed each blob just after it was stored."""

    def put_file(self, path: Path, *, move: bool = False) -> tuple[str, int]:
        sha256, size = super().put_file(path, move=move)
        self.delete(sha256)
        return sha256, size


class House:
    """A database, a store and an owner; makes an export and a base."""

    def __init__(self, db: Database, folder: Path) -> None:
        self.db, self.folder = db, folder
        self.store = FolderStore(folder / "store")
        self.store.create_folder_or_bucket()
        self.settings = Settings(data_dir=folder / "data")
        self.actor = Actor(new_id("own"), None, "write")

    def blobs(self, kind: type[Blobs] = Blobs) -> Blobs:
        return kind(self.store, self.folder / "cache")

    def file(self) -> Path:
        path = self.folder / "weights"
        save_file({"head.weight": torch.zeros(2, 3), "head.bias": torch.zeros(2)}, path)
        return path

    def export(self, kind: type[Blobs]) -> None:
        spool = self.settings.make_folder("spool")
        exports.get_or_build_export(
            UseCaseResources(self.db, self.blobs(kind), CATALOGUE),
            self.actor,
            exports.RequestedExport("m", "1", "safetensors"),
            spool,
        )

    def base(self, kind: type[Blobs]) -> None:
        network = bases.ExpectedBaseNetwork(
            MLP, ImageFormatAndNormalisation(IMAGE, None), "mlp", EXPECTED
        )
        resources = UseCaseResources(self.db, self.blobs(kind), CATALOGUE)
        bases.create_base_from_upload(resources, self.settings, self.actor, network, self.file())

    def submit(self, session: Session, state: str) -> None:
        """The rows of a task and its job."""
        session.add(make_task_row("tsk_1", "mdl_1"))
        session.flush()
        session.add(make_job_row("job_1", "mdl_1", self.actor.owner_id, "tsk_1", state=state))

    def deleter(self) -> threading.Thread:
        """A thread that deletes the model, and has begun."""
        arguments = (self.db, self.store, self.blobs(), self.actor, "m")
        thread = threading.Thread(target=model_deletion.delete_model, args=arguments)
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
        return thread

    def count(self, table: Any) -> int:
        with self.db.read() as session:
            return int(session.scalar(select(func.count()).select_from(table)) or 0)


@pytest.fixture
def house(database: Database, tmp_path: Path) -> House:
    """A model with one version of one part; the base's architecture expects the same tensors."""
    made = House(database, tmp_path)
    owner = made.actor.owner_id
    sha256, size = made.blobs().put_file(made.file())
    known = {
        "architecture": MLP,
        "image": IMAGE,
        "scenario": "class",
        "classes": ["a", "b"],
        "version": 1,
    }
    manifest = Manifest.from_json(
        {**known, "heads": [], "parts": [], "method": {"name": "finetune"}}
    )
    with database.write() as session:
        session.add(Owner(id=owner, name=owner, created_at=1.0))
        session.flush()
        session.add(make_model_row("mdl_1", owner, "m", architecture=MLP, image=IMAGE))
        session.flush()
        session.add(make_version_row("ver_1", "mdl_1", manifest=manifest))
        session.flush()
        session.add(make_part_row("ver_1", "head", sha256, size))
    return made


MAKERS: list[tuple[Callable[[House, type[Blobs]], None], Any]] = [
    (House.export, ExportedDownload),
    (House.base, UploadedBase),
]
both = pytest.mark.parametrize(("make", "table"), MAKERS, ids=["export", "base"])


@both
def test_a_blob_that_vanished_before_it_was_named_is_told(
    house: House, make: Any, table: Any
) -> None:
    with pytest.raises(Unavailable):
        make(house, Forgetful)
    assert house.count(table) == 0
    make(house, Blobs)
    assert house.count(table) == 1


@pytest.mark.both_databases
@both
def test_naming_a_blob_waits_for_those_who_delete(house: House, make: Any, table: Any) -> None:
    maker = threading.Thread(target=make, args=(house, Blobs))
    with house.db.write() as session:
        references.lock_blob_references_exclusively(session)
        maker.start()
        maker.join(0.1)
        assert maker.is_alive()
        assert house.count(table) == 0
    maker.join(60)
    assert house.count(table) == 1


@pytest.mark.both_databases
def test_deleting_a_model_and_publishing_into_it_never_wait_for_each_other(house: House) -> None:
    """A publish holds the job, then asks for the model; a delete must ask in the same order."""
    with house.db.write() as session:
        house.submit(session, "running")
    with house.db.write() as session:
        session.get_one(Job, "job_1", with_for_update=True)
        deleter = house.deleter()
        session.get_one(Model, "mdl_1", with_for_update=True)  # a deadlock would raise here
    deleter.join(60)
    with house.db.read() as session:
        assert session.get_one(Model, "mdl_1").deleted_at is not None
        assert session.get_one(Job, "job_1").state == "cancelling"


@pytest.mark.both_databases
def test_a_batch_submitted_while_its_model_is_deleted_is_cancelled_too(house: House) -> None:
    """The model's row is held by the submit while the delete looks for jobs."""
    if house.db.dialect != "postgresql":
        return  # SQLite has one writer at a time
    with house.db.write() as session:
        session.get_one(Model, "mdl_1", with_for_update=True)
        deleter = house.deleter()
        house.submit(session, "queued")
    deleter.join(60)
    with house.db.read() as session:
        assert session.get_one(Job, "job_1").state == "cancelled"
