"""Uploads that come in pieces: never ahead of what is stored, whoever writes, on both databases and both stores."""

import hashlib
import secrets
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from core.db import chunks, stored_bytes
from core.db.session import Database
from core.db.tables import Chunk, Upload
from core.errors import (
    Invalid,
    NotFound,
    OffsetMismatch,
    StorageFull,
    StoreCorrupt,
    TooManyRequests,
    UploadIncomplete,
    UploadLocked,
)
from core.requests import uploads, whole_uploads
from core.requests.actor import Actor
from core.requests.submission import Submission
from core.requests.uploads import Piece, Terms
from core.settings import Settings
from core.store import Store, open_store
from tests.core.requests.batches import CATALOGUE, batch

TERMS = Terms(max_open=3, max_owner_bytes=0, hours=24.0)
STRANGER = Actor("own_stranger", None, "write")


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        settings = Settings(data_dir=tmp_path / "data")
    else:
        settings = request.getfixturevalue("s3").settings(
            tmp_path / "data", prefix=f"t/{secrets.token_hex(4)}"
        )
    made = open_store(settings)
    made.prepare()
    return made


@pytest.fixture
def upload(database: Database, actor: Actor) -> str:
    """An upload of ten bytes."""
    return uploads.create(database, actor, 10, None, None, TERMS)[0]["id"]


def piece(folder: Path, data: bytes) -> Piece:
    path = folder / secrets.token_hex(8)
    path.write_bytes(data)
    return Piece(path, len(data), hashlib.sha256(data).hexdigest())


def send(db: Database, store: Store, actor: Actor, folder: Path, upload: str, at: int, data: bytes) -> int:
    writing = uploads.begin(db, actor, upload, at)
    return uploads.append(db, store, writing, piece(folder, data), TERMS).offset


def whole_of(db: Database, store: Store, actor: Actor, upload: str) -> bytes:
    return b"".join(whole_uploads.contents(db, store, actor, whole_uploads.whole(db, actor, upload)))


def stored(db: Database, store: Store) -> tuple[set[str], set[str]]:
    """Keys of pieces that are in the store, and those that rows name."""
    with db.read() as session:
        named = set(session.scalars(select(Chunk.key)))
    return {info.key for info in store.list("uploads/")}, named


def test_pieces_make_the_file(
    database: Database, store: Store, actor: Actor, upload: str, tmp_path: Path
) -> None:
    for at, data in ((0, b"abcd"), (4, b"efg"), (7, b"hij")):
        assert uploads.read(database, actor, upload).offset == at
        send(database, store, actor, tmp_path, upload, at, data)
    assert whole_of(database, store, actor, upload) == b"abcdefghij"
    there, named = stored(database, store)
    assert there == named and len(named) == 3


def test_an_incomplete_upload_says_where_it_is(
    database: Database, store: Store, actor: Actor, upload: str, tmp_path: Path
) -> None:
    send(database, store, actor, tmp_path, upload, 0, b"abcd")
    with pytest.raises(UploadIncomplete) as refused:
        whole_uploads.whole(database, actor, upload)
    assert refused.value.extra == {"offset": 4, "length": 10}


def test_another_offset_is_refused_with_the_right_one(database: Database, actor: Actor, upload: str) -> None:
    for wrong in (1, 10, 11):
        with pytest.raises(OffsetMismatch) as refused:
            uploads.begin(database, actor, upload, wrong)
        assert refused.value.extra == {"offset": 0, "length": 10}


@pytest.mark.both_databases
def test_while_one_writes_another_waits_until_it_says_nothing_more(
    database: Database, store: Store, actor: Actor, upload: str, tmp_path: Path
) -> None:
    first = uploads.begin(database, actor, upload, 0)
    with pytest.raises(UploadLocked) as refused:
        uploads.begin(database, actor, upload, 0)
    assert refused.value.retry_after_s
    uploads.release(database, first)
    second = uploads.begin(database, actor, upload, 0)
    uploads.renew(database, first)  # of no effect, and neither is this:
    uploads.release(database, first)
    with pytest.raises(UploadLocked):
        uploads.begin(database, actor, upload, 0)
    uploads.append(database, store, second, piece(tmp_path, b"abcd"), TERMS)
    assert send(database, store, actor, tmp_path, upload, 4, b"efghij") == 10


def test_who_died_holds_an_upload_no_longer_than_its_lease(
    database: Database, actor: Actor, upload: str
) -> None:
    uploads.begin(database, actor, upload, 0)
    with database.write() as session:
        row = session.get_one(Upload, upload)
        assert row.held_until is not None
        assert 0 < row.held_until - database.now(session) <= uploads.LEASE_S
        row.held_until = database.now(session) - 0.001
    uploads.begin(database, actor, upload, 0)


def test_a_writer_that_was_taken_for_dead_changes_and_leaves_nothing(
    database: Database, store: Store, actor: Actor, upload: str, tmp_path: Path
) -> None:
    slow = uploads.begin(database, actor, upload, 0)
    with database.write() as session:
        session.get_one(Upload, upload).held_until = 1.0
    send(database, store, actor, tmp_path, upload, 0, b"abcdefg")
    with pytest.raises(OffsetMismatch) as refused:
        uploads.append(database, store, slow, piece(tmp_path, b"abc"), TERMS)
    assert refused.value.extra["offset"] == 7
    send(database, store, actor, tmp_path, upload, 7, b"hij")
    assert whole_of(database, store, actor, upload) == b"abcdefghij"
    there, named = stored(database, store)
    assert there == named


@pytest.mark.both_databases
def test_many_writers_at_once_make_one_piece(
    database: Database, store: Store, actor: Actor, upload: str, tmp_path: Path
) -> None:
    together, outcomes = threading.Barrier(6), []

    def write(number: int) -> None:
        together.wait(60)
        try:
            outcomes.append(send(database, store, actor, tmp_path, upload, 0, b"0123456789"[: number + 1]))
        except (UploadLocked, OffsetMismatch) as refused:
            outcomes.append(type(refused).__name__)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [one for one in outcomes if isinstance(one, int)]
    assert len(won) == 1 and uploads.read(database, actor, upload).offset == won[0]
    there, named = stored(database, store)
    assert there == named and len(named) == 1


def test_an_upload_that_was_removed_while_one_wrote_is_gone_and_leaves_nothing(
    database: Database, store: Store, actor: Actor, upload: str, tmp_path: Path
) -> None:
    send(database, store, actor, tmp_path, upload, 0, b"abcd")
    writing = uploads.begin(database, actor, upload, 4)
    uploads.delete(database, store, actor, upload)
    with pytest.raises(NotFound):
        uploads.append(database, store, writing, piece(tmp_path, b"efghij"), TERMS)
    assert stored(database, store) == (set(), set())
    with pytest.raises(NotFound):
        uploads.delete(database, store, actor, upload)


def test_a_foreign_owner_finds_nothing_and_an_administrator_all(
    database: Database, store: Store, actor: Actor, upload: str
) -> None:
    calls: list[Any] = [
        lambda who: uploads.read(database, who, upload),
        lambda who: uploads.release(database, uploads.begin(database, who, upload, 0)),
        lambda who: uploads.delete(database, store, who, upload),
    ]
    for call in calls:
        with pytest.raises(NotFound):
            call(STRANGER)
    with pytest.raises(NotFound):
        whole_uploads.whole(database, STRANGER, upload)
    for call in calls:
        call(Actor(STRANGER.owner_id, None, "admin") if call is not calls[-1] else actor)


@pytest.mark.parametrize(
    "name", ["", "upl_", "mdl_01k00000000000000000000000", "upl_'; DROP TABLE uploads", "../x"]
)
def test_what_is_no_id_is_not_found(database: Database, actor: Actor, name: str) -> None:
    with pytest.raises(NotFound):
        uploads.read(database, actor, name)


def test_an_upload_whose_time_is_over_is_gone_and_each_byte_gives_it_more(
    database: Database, store: Store, actor: Actor, upload: str, tmp_path: Path
) -> None:
    with database.write() as session:
        now = database.now(session)
        session.get_one(Upload, upload).expires_at = now + 60
    send(database, store, actor, tmp_path, upload, 0, b"abcd")
    assert uploads.read(database, actor, upload).expires_at > now + 23 * 3600
    with database.write() as session:
        session.get_one(Upload, upload).expires_at = now
    with pytest.raises(NotFound, match="expired"):
        uploads.begin(database, actor, upload, 4)


def test_an_owner_has_so_many_uploads_and_is_told_which(
    database: Database, store: Store, actor: Actor
) -> None:
    made = [uploads.create(database, actor, 1, None, None, TERMS)[0]["id"] for _ in range(3)]
    with pytest.raises(TooManyRequests) as refused:
        uploads.create(database, actor, 1, None, None, TERMS)
    assert refused.value.extra["uploads"] == made
    with database.write() as session:
        session.get_one(Upload, made[0]).expires_at = 1.0
    uploads.create(database, actor, 1, None, None, TERMS)


def test_pieces_count_among_the_bytes_of_their_owner_and_what_is_refused_leaves_nothing(
    database: Database, store: Store, actor: Actor, upload: str, tmp_path: Path
) -> None:
    assert stored_bytes.measured(database, actor.owner_id) == 0
    send(database, store, actor, tmp_path, upload, 0, b"abcd")
    assert stored_bytes.measured(database, actor.owner_id) == 4
    narrow = Terms(3, 9, 24.0)
    writing = uploads.begin(database, actor, upload, 4)
    with pytest.raises(StorageFull):
        uploads.require_room(database, writing, 6, narrow)
    with pytest.raises(StorageFull):
        uploads.append(database, store, writing, piece(tmp_path, b"efghij"), narrow)
    assert len(stored(database, store)[0]) == 1 and uploads.read(database, actor, upload).offset == 4
    with pytest.raises(StorageFull):
        uploads.create(database, actor, 6, None, None, narrow)


def test_an_upload_has_so_many_pieces_as_its_length_allows(
    database: Database,
    store: Store,
    actor: Actor,
    upload: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(uploads, "SPARE_PIECES", 2)
    send(database, store, actor, tmp_path, upload, 0, b"a")
    send(database, store, actor, tmp_path, upload, 1, b"b")
    with pytest.raises(Invalid, match="2 pieces"):
        uploads.begin(database, actor, upload, 2)


def test_a_damaged_piece_is_told_and_not_learned(
    database: Database, store: Store, actor: Actor, upload: str, tmp_path: Path
) -> None:
    send(database, store, actor, tmp_path, upload, 0, b"abcdefghij")
    store.put_bytes(chunks.key(upload, 0, 1), b"abcdefghiX")
    with pytest.raises(StoreCorrupt, match=f"DELETE /v1/uploads/{upload}"):
        whole_of(database, store, actor, upload)


def test_a_task_spends_its_upload_once_and_its_bytes_count_once(
    database: Database, store: Store, actor: Actor, model: str, tmp_path: Path
) -> None:
    sent = batch(tmp_path, 0)  # 9 bytes
    data = sent.path.read_bytes()
    made = uploads.create(database, actor, len(data), None, None, TERMS)[0]["id"]
    limit = len(data)  # room for the upload, and for nothing beside it
    writing = uploads.begin(database, actor, made, 0)
    stored_bytes.measured(database, actor.owner_id)
    uploads.append(database, store, writing, piece(tmp_path, data), Terms(3, limit, 24.0))
    found = whole_uploads.whole(database, actor, made)

    def submit() -> Any:
        sent.path.write_bytes(data)
        return Submission(
            database, store, CATALOGUE, actor, "birds", sent, max_bytes=limit, upload=found
        ).submit()

    submit()
    assert stored(database, store) == (set(), set())
    assert [info.size for info in store.list("archives/")] == [len(data)]
    assert stored_bytes.measured(database, actor.owner_id) == len(data)
    with pytest.raises(NotFound):
        submit()
    assert len(list(store.list("archives/"))) == 1
