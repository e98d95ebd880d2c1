"""An API in the test's process, over a folder and over an S3 server, and models without training."""

import secrets
from pathlib import Path

import pytest

from core.settings import Settings
from tests.api.conftest import catalogue_folder, client, empty_database, key_of
from tests.api.routes.conftest import model, publish

__all__ = ["catalogue_folder", "client", "empty_database", "key_of", "model", "publish"]


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.services("s3"))])
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
    found: Settings = request.getfixturevalue("s3").settings(tmp_path, prefix=f"t/{secrets.token_hex(4)}")
    return found
