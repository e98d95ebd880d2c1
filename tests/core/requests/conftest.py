"""An owner, a store and a model: rows that most use-cases start from."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import postgresql
import pytest

from core.db.session import Database
from core.db.tables import Owner
from core.ids import new_id
from core.requests import models
from core.requests.actor import Actor
from core.store import Blobs
from core.store.folder import FolderStore
from tests.core.requests.batches import CATALOGUE


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services("postgresql"))]
)
def new_database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Database]]:
    """Makes databases that serve all tests of a file, which has many rows to write; all of one kind, on both kinds."""
    with ExitStack() as stack:

        def make() -> Database:
            if request.param == "sqlite":
                path = tmp_path_factory.mktemp("filled") / "perennial.db"
                path.write_bytes(request.getfixturevalue("_sqlite_template"))
                url = f"sqlite:///{path}"
            else:
                template = postgresql.name_of(request.getfixturevalue("_postgres_template"))
                url = postgresql.create(template)
                stack.callback(postgresql.drop, url)
            db = Database(url)
            stack.callback(db.close)
            return db

        yield make


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
