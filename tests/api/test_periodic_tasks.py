"""Background tasks of the API: copies of deleted blobs on its machine."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from api import periodic_tasks
from api.periodic_tasks import CachedBlobCopySweeper
from core.database.session import Database
from core.storage import Blobs
from core.storage.folder import FolderStore


class RemoteStore(FolderStore):
    """A store without local files, as S3."""

    def get_local_path(self, key: str) -> Path | None:
        return None


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    """Blobs with a cached copy of one that no row refers to."""
    store = RemoteStore(tmp_path / "store")
    store.create_folder_or_bucket()
    blobs = Blobs(store, tmp_path / "cache")
    file = tmp_path / "image"
    file.write_bytes(b"pixels")
    digest, _ = blobs.put_file(file)
    blobs.fetch_verified_file(digest)
    assert blobs.list_cached_digests() == [digest]
    return blobs


async def sweep_cached_copies(db: Database, blobs: Blobs) -> None:
    async with CachedBlobCopySweeper(db, blobs):
        while blobs.list_cached_digests():
            await asyncio.sleep(0.01)


def test_copies_of_deleted_blobs_are_deleted(
    database: Database, blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(periodic_tasks, "SWEEP_PERIOD_S", 0.01)
    asyncio.run(asyncio.wait_for(sweep_cached_copies(database, blobs), 60))


def test_an_outage_of_the_database_only_delays_the_deletion(
    database: Database, blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(periodic_tasks, "SWEEP_PERIOD_S", 0.01)
    delete, rounds = periodic_tasks.delete_unreferenced_cached_blobs, []

    def fail_at_first(db: Database, blobs: Blobs) -> None:
        rounds.append(1)
        if len(rounds) == 1:
            raise OperationalError("SELECT 1", {}, Exception("the server is away"))
        delete(db, blobs)

    monkeypatch.setattr(periodic_tasks, "delete_unreferenced_cached_blobs", fail_at_first)
    asyncio.run(asyncio.wait_for(sweep_cached_copies(database, blobs), 60))
    assert len(rounds) > 1
