"""An API in the test's own process, over SQLite and a folder store, and archives to send to it."""

import functools
import io
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from sqlalchemy import select
from starlette.testclient import TestClient

from api.app import create_app
from core.database.jobs import change_job_state, lock_job
from core.database.migrate import upgrade_schema
from core.database.session import Database
from core.database.states import JobAction
from core.database.tables import Owner
from core.keys import keys
from core.recipe.catalogue import load_recipe_catalogue
from core.recipe.code_version import compute_learning_code_digest
from core.requests.actor import Actor
from core.settings import Settings
from tools.service import link_shared_test_catalogue
from worker.loop import Worker

SETTINGS = Settings(threads=1)
"""Read once: the environment is the same for all tests."""
Make = Callable[..., bytes]
KeyOf = Callable[..., dict[str, str]]
"""The types of the fixtures `archive` and `key_of`."""


@pytest.fixture(scope="session")
def catalogue_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the catalogue of the present sources, written once for all processes of
    tests.
    """
    folder, lent = tmp_path_factory.mktemp("catalogue"), tmp_path_factory.mktemp("lent")
    link_shared_test_catalogue(lent)
    load_recipe_catalogue(Settings(data_dir=lent))
    shutil.copy(lent / "catalogue" / f"{compute_learning_code_digest()}.json", folder)
    return folder


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with the schema in it, to copy."""
    path = tmp_path_factory.mktemp("database") / "empty.db"
    db = Database(f"sqlite:///{path}")
    upgrade_schema(db)
    db.close()
    return path


@pytest.fixture(scope="session")
def prepare_folder(
    tmp_path_factory: pytest.TempPathFactory, catalogue_folder: Path, empty_database: Path
) -> Callable[[Path], Path]:
    """Makes a folder the data folder of an API that has the first admin key and has served nothing
    yet.
    """
    first = tmp_path_factory.mktemp("first")
    shutil.copy(empty_database, first / "perennial.db")
    db = Database(f"sqlite:///{first}/perennial.db")
    keys.ensure_admin_key_and_write_file(db, first)
    db.close()

    def fill_service_folder(folder: Path) -> Path:
        (folder / "catalogue").mkdir()
        for path in catalogue_folder.iterdir():
            (folder / "catalogue" / path.name).symlink_to(path)
        for name in ("perennial.db", "admin-key"):
            shutil.copy(first / name, folder)
        return folder

    return fill_service_folder


@pytest.fixture
def settings(tmp_path: Path, prepare_folder: Callable[[Path], Path]) -> Settings:
    return SETTINGS.model_copy(update={"data_dir": prepare_folder(tmp_path)})


@contextmanager
def serve_api(settings: Settings) -> Iterator[TestClient]:
    """Run an API in this process and yield a client of it with the first admin key."""
    with TestClient(create_app(settings), raise_server_exceptions=False) as made:
        key = (settings.data_dir / "admin-key").read_text().strip()
        made.headers["Authorization"] = f"Bearer {key}"
        yield made


@contextmanager
def serve_copy(prepared: Path, folder: Path) -> Iterator[TestClient]:
    """Run an API over a copy of a data folder and yield a client of it."""
    shutil.copytree(prepared, folder, symlinks=True, dirs_exist_ok=True)
    with serve_api(SETTINGS.model_copy(update={"data_dir": folder})) as made:
        yield made


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    """A client of an API of its own, with the first admin key."""
    with serve_api(settings) as made:
        yield made


@pytest.fixture
def worker(client: TestClient, settings: Settings) -> Iterator[Worker]:
    """A worker whose learning processes cannot start; it does what there is to do in `work`."""
    found = Worker(settings, ring=lambda _job: None, zygote_command=("false",))
    yield found
    found.close_worker()


@pytest.fixture
def db(client: TestClient) -> Database:
    """The database of that API."""
    found: Database = client.app.state.database  # type: ignore[attr-defined]
    return found


def create_model(client: TestClient, name: str = "birds", **fields: Any) -> str:
    """Create a model, by default of the class scenario, and return its name."""
    fields = {"scenario": "class", "architecture": "small-cnn", **fields}
    answer = client.post("/v1/models", json={"name": name, **fields})
    assert answer.status_code == 201, answer.text
    return name


def apply_job_actions(db: Database, job_id: str, *actions: JobAction) -> None:
    """Apply actions to a job as a worker does."""
    with db.write() as session:
        row = lock_job(session, job_id)
        assert row is not None
        for action in actions:
            change_job_state(session, row, action, db.now(session))


def create_api_key(
    client: TestClient, owner: str = "somebody", scope: str = "write", expires_at: str | None = None
) -> dict[str, str]:
    """Create a key and return the headers that send it."""
    db: Database = client.app.state.database  # type: ignore[attr-defined]
    with db.read() as session:
        admin = session.scalars(select(Owner.id).where(Owner.name == keys.ADMIN_OWNER)).one()
    actor = Actor(admin, None, "admin")
    made = keys.create_key(db, actor, keys.RequestedKey("test", scope, owner, expires_at))
    return {"Authorization": f"Bearer {made['secret']}"}


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, prepare_folder: Callable[[Path], Path]
) -> Iterator[TestClient]:
    """A client of one API for all tests of a file that change nothing; it has a model, `shared`."""
    folder = prepare_folder(tmp_path_factory.mktemp("shared"))
    with serve_api(SETTINGS.model_copy(update={"data_dir": folder})) as made:
        model = {"name": "shared", "scenario": "class", "architecture": "small-cnn"}
        assert made.post("/v1/models", json=model).status_code == 201
        yield made


@pytest.fixture
def key_of(client: TestClient) -> KeyOf:
    """Makes the headers of a fresh key: `key_of("owner", "write")`."""
    return functools.partial(create_api_key, client)


@pytest.fixture(scope="session")
def archive() -> Make:
    """Makes a zip of PNG images: `archive(cat=3, dog=4)`."""

    def build_archive(test: int = 0, **classes: int) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as file:
            for number, (name, count) in enumerate(sorted(classes.items())):
                for index in range(count):
                    png = io.BytesIO()
                    Image.new("RGB", (8, 8), (40 * number, 7 * index % 256, 90)).save(png, "PNG")
                    file.writestr(f"train/{name}/{index}.png", png.getvalue())
                    if index < test:
                        file.writestr(f"test/{name}/{index}.png", png.getvalue())
        return out.getvalue()

    return build_archive


def fail_when_read() -> Iterator[bytes]:
    """Fail the test when the body is read."""
    raise AssertionError("the body was read")
    yield b""
