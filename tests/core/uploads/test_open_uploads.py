"""Unfinished uploads: what expires, what stays, and what a check reports about them."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from core.database.session import Database
from core.database.tables import StoredUploadPiece, Upload
from core.ids import new_id
from core.settings import Settings
from core.upkeep import consistency
from core.upkeep.sweep_dry_run import list_sweep_removals
from core.uploads import chunks, upload_removal
from core.usage import stored_bytes
from tools import backup

DAY_S = 86_400.0


def make_upload(desk: Any, *pieces: bytes, hours: float = 24.0, length: int = 100) -> str:
    """Make an upload with pieces in the store."""
    upload_id = new_id("upl")
    with desk.db.write() as session:
        now = desk.db.now(session)
        row = Upload(
            id=upload_id,
            owner_id=desk.owner,
            length=length,
            offset=0,
            expires_at=now + hours * 3600,
            created_at=now,
        )
        session.add(row)
        session.flush()
        for fence, data in enumerate(pieces):
            key = chunks.make_upload_piece_key(upload_id, row.offset, fence)
            desk.store.put_bytes(key, data)
            sha256 = hashlib.sha256(data).hexdigest()
            session.add(
                StoredUploadPiece(
                    upload_id=upload_id, offset=row.offset, bytes=len(data), sha256=sha256, key=key
                )
            )
            row.offset += len(data)
    return upload_id


def store_orphaned_piece(desk: Any, upload_id: str, days: float) -> str:
    """Store a piece of this many days of age to which no row refers."""
    key = chunks.make_upload_piece_key(upload_id, 9, 99)
    desk.store.put_bytes(key, b"orphan")
    path = desk.store.root / key
    os.utime(path, (path.stat().st_mtime - days * DAY_S,) * 2)
    return key


def find_inconsistencies(desk: Any, **options: Any) -> list[tuple[str, str]]:
    return [
        (d.kind, d.object)
        for d in consistency.find_store_inconsistencies(
            desk.db, desk.store, desk.settings, **options
        )
    ]


def test_an_upload_goes_when_its_time_is_over_and_pieces_that_nothing_names_after_a_day(
    desk: Any,
) -> None:
    desk.model()
    kept, over = make_upload(desk, b"ab", b"cd"), make_upload(desk, b"ef", b"gh", hours=0)
    young, old = store_orphaned_piece(desk, kept, 0.5), store_orphaned_piece(desk, over, 1.5)
    told = {
        one.object: one.reason for one in list_sweep_removals(desk.db, desk.store, desk.settings)
    }
    assert told == {
        **dict.fromkeys(
            (chunks.make_upload_piece_key(over, 0, 0), chunks.make_upload_piece_key(over, 2, 1)),
            "upload whose time is over",
        ),
        "1 rows of uploads": "upload whose time is over",
        old: "piece of an upload that nothing names",
    }
    desk.remove_unwanted_runs()
    assert [row.id for row in desk.all(Upload)] == [kept] and len(desk.all(StoredUploadPiece)) == 2
    assert sorted(desk.keys("uploads/")) == sorted(
        [chunks.make_upload_piece_key(kept, 0, 0), chunks.make_upload_piece_key(kept, 2, 1), young]
    )
    assert list_sweep_removals(desk.db, desk.store, desk.settings) == []


def test_an_upload_to_which_somebody_writes_waits(desk: Any) -> None:
    desk.model()
    over = make_upload(desk, b"ef", hours=0)
    with desk.db.write() as session:
        session.get_one(Upload, over).held_until = desk.db.now(session) + 60
    desk.remove_unwanted_runs()
    assert len(desk.all(Upload)) == 1
    with desk.db.write() as session:
        session.get_one(Upload, over).held_until = desk.db.now(session) - 1
    desk.remove_unwanted_runs()
    assert desk.all(Upload) == [] and not desk.keys("uploads/")


def test_a_check_names_pieces_that_are_missing_short_or_damaged(desk: Any) -> None:
    desk.model()
    one = make_upload(desk, b"ab", b"cd", b"ef", b"gh")
    assert find_inconsistencies(desk, verify=True) == []
    missing, short, damaged = (
        chunks.make_upload_piece_key(one, at, fence) for at, fence in ((0, 0), (2, 1), (4, 2))
    )
    desk.store.delete(missing)
    desk.store.put_bytes(short, b"c")
    desk.store.put_bytes(damaged, b"xx")
    assert sorted(find_inconsistencies(desk, verify=True)) == [
        ("digest", damaged),
        ("missing", missing),
        ("size", short),
    ]
    consistency.repair_store_and_run_sweep(
        desk.db,
        desk.store,
        desk.blobs,
        desk.settings,
        consistency.find_store_inconsistencies(desk.db, desk.store, desk.settings),
    )
    assert len(desk.all(StoredUploadPiece)) == 4  # they are reported, and kept


def test_an_upload_that_a_sweep_should_have_removed_a_day_ago_is_drift(desk: Any) -> None:
    desk.model()
    make_upload(desk, b"ab", hours=-0.5 * 24)
    assert find_inconsistencies(desk) == []
    make_upload(desk, b"ab", hours=-1.5 * 24)
    assert [kind for kind, _ in find_inconsistencies(desk)] == ["overdue"]


def test_pieces_count_among_the_bytes_of_their_owner(desk: Any) -> None:
    desk.model()
    before = stored_bytes.measure_and_store_owner_bytes(desk.db, desk.owner)
    make_upload(desk, b"ab", b"cde")
    assert stored_bytes.measure_and_store_owner_bytes(desk.db, desk.owner) == before + 5


@pytest.fixture
def small(tmp_path: Path, desk: Any) -> Settings:
    return Settings(
        data_dir=tmp_path / "small", store_url=f"file://{desk.store.root}", database_url=desk.db.url
    )


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)  # PostgreSQL has pg_dump
def test_a_backup_holds_uploads_and_a_restore_brings_them_back(
    desk: Any, small: Settings, tmp_path: Path
) -> None:
    desk.model()
    one = make_upload(desk, b"ab", b"cd")
    store_orphaned_piece(desk, one, 0)
    backup.create_backup(small, tmp_path / "backup")
    empty = Settings(data_dir=tmp_path / "restored")
    backup.restore_backup(empty, tmp_path / "backup")
    found = Database(empty.resolved_database_url)
    with found.read() as session:
        assert session.get_one(Upload, one).offset == 4
    found.close()
    there = sorted(path.name for path in (empty.data_dir / "store" / "uploads" / one).iterdir())
    assert there == [
        chunks.make_upload_piece_key(one, at, n).rpartition("/")[2] for n, at in enumerate((0, 2))
    ]


def test_many_uploads_whose_time_is_over_go_in_few_transactions(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.model()
    monkeypatch.setattr(upload_removal, "_BATCH", 4)
    for _ in range(9):
        make_upload(desk, b"ab", b"cd", hours=0)
    held, kept = make_upload(desk, b"ef", hours=0), make_upload(desk, b"gh")
    desk.change(Upload, held, held_until=desk.now() + 60)
    begun: list[int] = []
    real = desk.db.write
    monkeypatch.setattr(desk.db, "write", lambda: begun.append(1) or real())
    upload_removal.remove_expired_uploads(desk.db, desk.store)
    assert len(begun) == 3
    with desk.db.read() as session:
        assert set(session.scalars(select(Upload.id))) == {held, kept}
        assert session.query(StoredUploadPiece).count() == 2
    assert len(desk.keys("uploads/")) == 2
