"""An owner, a store and a model: rows that most use-cases start from, on both databases."""

from pathlib import Path

import pytest

from core.db.session import Database
from core.db.tables import Owner
from core.ids import new_id
from core.requests import models
from core.requests.actor import Actor
from core.store import Blobs
from core.store.folder import FolderStore
from tests.core.requests.batches import CATALOGUE


@pytest.fixture
def actor(database: Database) -> Actor:
    owner = new_id("own")
    with database.write() as session:
        session.add(Owner(id=owner, name=owner, created_at=1.0))
    return Actor(owner, None, "write")


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    made = FolderStore(tmp_path / "store")
    made.prepare()
    return made


@pytest.fixture
def model(database: Database, store: FolderStore, actor: Actor, tmp_path: Path) -> str:
    """The id of the actor's model "birds"."""
    blobs = Blobs(store, tmp_path / "cache")
    made, _ = models.create(
        database, blobs, CATALOGUE, actor, {"name": "birds", "scenario": "class", "architecture": "small-cnn"}
    )
    return str(made["id"])
