"""An API in the test's process, over a folder and over an S3 server; and one running service for
all attacks.
"""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.settings import Settings
from tests.api.conftest import catalogue_folder, client, empty_database, key_of
from tests.api.routes.conftest import model, publish
from tests.rest import Rest
from tests.security import corpus, neighbours
from tools import service

__all__ = ["catalogue_folder", "client", "empty_database", "key_of", "model", "publish"]


CANARY = {
    "PERENNIAL_STORE_SECRET_KEY": "canary",
    "AWS_SECRET_ACCESS_KEY": "canary",
    "PGPASSWORD": "canary",
}
"""Secrets of the service that its helpers are not to know."""


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[service.RunningService]:
    """The service as `make serve` starts it, on a directory that everybody may open, by a user
    whose umask is 022.

    All attacks share it, with owners and models of their own.
    """
    folder = tmp_path_factory.mktemp("open") / "data"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    named = {
        "PERENNIAL_DATABASE_URL": f"sqlite:///{folder / 'canary.db'}",
        "PERENNIAL_STORE_URL": f"file://{folder / 'canary-store'}",
    }
    before = os.umask(0o022)
    try:
        with service.run_temporary_service(
            folder, {**corpus.SETTINGS, **neighbours.SETTINGS, **CANARY, **named}
        ) as found:
            yield found
    finally:
        os.umask(before)


@pytest.fixture
def admin(running: service.RunningService) -> Rest:
    return Rest(running.url, running.key)


@pytest.fixture(
    params=["folder", pytest.param("s3", marks=[pytest.mark.services("s3"), pytest.mark.slow])]
)
def store_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def settings(
    request: pytest.FixtureRequest,
    store_kind: str,
    tmp_path: Path,
    catalogue_folder: Path,
    empty_database: Path,
) -> Settings:
    """Of an empty service with a schema."""
    (tmp_path / "catalogue").symlink_to(catalogue_folder)
    (tmp_path / "perennial.db").write_bytes(empty_database.read_bytes())
    if store_kind == "folder":
        return Settings(data_dir=tmp_path, threads=1)
    found: Settings = request.getfixturevalue("s3").settings(
        tmp_path, prefix=f"t/{secrets.token_hex(4)}"
    )
    return found
