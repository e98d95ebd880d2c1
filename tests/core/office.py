"""An owner, a store and a model: rows that most use-cases start from."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import postgresql
import pytest

from core.database.session import Database
from core.database.tables import Owner
from core.ids import new_id
from core.models import models
from core.requests.actor import Actor
from core.requests.resources import UseCaseResources
from core.storage import Blobs
from core.storage.folder import FolderStore
from core.tasks.submission import BatchSubmission
from core.tasks.submitted_batch import SpooledBatch
from tests.core.batches import CATALOGUE, make_batch


@pytest.fixture(
    scope="module",
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.services("postgresql"))],
)
def new_database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Database]]:
    """Makes databases that serve all tests of a file, which has many rows to write; all of one
    kind, on both kinds.
    """
    with ExitStack() as stack:

        def make_database_copy() -> Database:
            if request.param == "sqlite":
                path = tmp_path_factory.mktemp("filled") / "perennial.db"
                path.write_bytes(request.getfixturevalue("_sqlite_template"))
                url = f"sqlite:///{path}"
            else:
                template = postgresql.get_database_name(
                    request.getfixturevalue("_postgres_template")
                )
                url = postgresql.create_database(template)
                stack.callback(postgresql.drop_database, url)
            db = Database(url)
            stack.callback(db.close)
            return db

        yield make_database_copy


@pytest.fixture
def actor(database: Database) -> Actor:
    owner = new_id("own")
    with database.write() as session:
        session.add(Owner(id=owner, name=owner, created_at=1.0))
    return Actor(owner, None, "write")


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    made = FolderStore(tmp_path / "store")
    made.create_folder_or_bucket()
    return made


@dataclass
class Office:
    """A service in which one owner makes models and sends batches."""

    db: Database
    store: FolderStore
    actor: Actor
    folder: Path

    @property
    def blobs(self) -> Blobs:
        return Blobs(self.store, self.folder / "cache")

    @property
    def resources(self) -> UseCaseResources:
        return UseCaseResources(self.db, self.blobs, CATALOGUE)

    def create(self, name: str = "birds", scenario: str = "class", **fields: Any) -> Any:
        """Make a model; the answer."""
        given = {"name": name, "scenario": scenario, "architecture": "small-cnn", **fields}
        return models.create_model(self.resources, self.actor, given)[0]

    def submission(
        self,
        sent: SpooledBatch | int = 0,
        model: str = "birds",
        *,
        actor: Actor | None = None,
        **options: Any,
    ) -> BatchSubmission:
        """A batch, or `batches.batch` of a number, that is about to be sent to a model."""
        given = make_batch(self.folder, sent) if isinstance(sent, int) else sent
        catalogue = options.pop("catalogue", CATALOGUE)
        return BatchSubmission(
            self.db, self.store, catalogue, actor or self.actor, model, given, **options
        )

    def submit(self, sent: SpooledBatch | int = 0, model: str = "birds", **options: Any) -> Any:
        """Send a batch; the answer."""
        return self.submission(sent, model, **options).submit_as_next_task().response


@pytest.fixture
def office(database: Database, store: FolderStore, actor: Actor, tmp_path: Path) -> Office:
    return Office(database, store, actor, tmp_path)


@pytest.fixture
def model(office: Office) -> str:
    """The id of the actor's model "birds"."""
    return str(office.create()["id"])
