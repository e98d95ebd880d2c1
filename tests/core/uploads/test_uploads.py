"""Uploads in pieces: an upload never claims more than is stored, even with concurrent writers.

The tests run on both databases and both stores.
"""

import hashlib
import secrets
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from core.database.session import Database
from core.database.tables import Owner, StoredUploadPiece, Upload
from core.errors import (
    Invalid,
    NotFound,
    OffsetMismatch,
    StorageQuotaReached,
    StoredObjectDamaged,
    TooManyRequests,
    UploadIncomplete,
    UploadLocked,
)
from core.requests.actor import Actor
from core.settings import Settings
from core.storage import ObjectStorage, open_object_store
from core.uploads import chunks, complete_uploads, uploads
from core.uploads.uploads import AnnouncedUpload, ReceivedUploadPiece, UploadLimits
from core.usage import stored_bytes
from tests.core.batches import make_batch
from tests.core.office import Office

TERMS = UploadLimits(max_open=3, max_owner_bytes=0, hours=24.0)
STRANGER = Actor("own_stranger", None, "write")


ON_S3 = pytest.mark.parametrize(
    "store", ["folder", pytest.param("s3", marks=pytest.mark.slow)], indirect=True
)
"""Parameters for tests that use the store in every way.

The campaign runs all tests on S3 too. `core/storage/` shows that both stores behave alike.
"""


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.campaign)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStorage:
    if request.param == "folder":
        settings = Settings(data_dir=tmp_path / "data")
    else:
        settings = request.getfixturevalue("s3").settings(
            tmp_path / "data", prefix=f"t/{secrets.token_hex(4)}"
        )
    made = open_object_store(settings)
    made.create_folder_or_bucket()
    return made


@pytest.fixture
def upload(database: Database, actor: Actor) -> str:
    """Create an upload of ten bytes."""
    return uploads.create_upload(database, actor, AnnouncedUpload(10), TERMS)[0]["id"]


def write_piece(folder: Path, data: bytes) -> ReceivedUploadPiece:
    path = folder / secrets.token_hex(8)
    path.write_bytes(data)
    return ReceivedUploadPiece(path, len(data), hashlib.sha256(data).hexdigest())


def send_piece(office: Office, upload: str, at: int, data: bytes) -> int:
    writing = uploads.lease_upload_to_write(office.db, office.actor, upload, at)
    return uploads.append_upload_piece(
        office.db, office.store, office.actor, writing, write_piece(office.folder, data), TERMS
    ).offset


def read_whole_upload(office: Office, upload: str) -> bytes:
    whole = complete_uploads.require_complete_upload(office.db, office.actor, upload)
    return b"".join(
        complete_uploads.read_upload_bytes(office.db, office.store, office.actor, whole)
    )


def list_piece_keys(office: Office) -> tuple[set[str], set[str]]:
    """Return the keys of pieces in the store, and those to which rows refer."""
    with office.db.read() as session:
        named = set(session.scalars(select(StoredUploadPiece.key)))
    return {info.key for info in office.store.list("uploads/")}, named


@ON_S3
def test_pieces_make_the_file(office: Office, upload: str) -> None:
    for at, data in ((0, b"abcd"), (4, b"efg"), (7, b"hij")):
        assert uploads.read_upload_progress(office.db, office.actor, upload).offset == at
        send_piece(office, upload, at, data)
    assert read_whole_upload(office, upload) == b"abcdefghij"
    there, named = list_piece_keys(office)
    assert there == named and len(named) == 3


def test_an_incomplete_upload_says_where_it_is(office: Office, upload: str) -> None:
    send_piece(office, upload, 0, b"abcd")
    with pytest.raises(UploadIncomplete) as refused:
        complete_uploads.require_complete_upload(office.db, office.actor, upload)
    assert refused.value.extra == {"offset": 4, "length": 10}


def test_another_offset_is_refused_with_the_right_one(office: Office, upload: str) -> None:
    for wrong in (1, 10, 11):
        with pytest.raises(OffsetMismatch) as refused:
            uploads.lease_upload_to_write(office.db, office.actor, upload, wrong)
        assert refused.value.extra == {"offset": 0, "length": 10}


@pytest.mark.both_databases
def test_while_one_writes_another_waits_until_it_says_nothing_more(
    office: Office, upload: str
) -> None:
    first = uploads.lease_upload_to_write(office.db, office.actor, upload, 0)
    with pytest.raises(UploadLocked) as refused:
        uploads.lease_upload_to_write(office.db, office.actor, upload, 0)
    assert refused.value.retry_after_s
    uploads.release_upload_lease(office.db, first)
    second = uploads.lease_upload_to_write(office.db, office.actor, upload, 0)
    uploads.renew_upload_lease(office.db, first)  # of no effect, and neither is this:
    uploads.release_upload_lease(office.db, first)
    with pytest.raises(UploadLocked):
        uploads.lease_upload_to_write(office.db, office.actor, upload, 0)
    uploads.append_upload_piece(
        office.db, office.store, office.actor, second, write_piece(office.folder, b"abcd"), TERMS
    )
    assert send_piece(office, upload, 4, b"efghij") == 10


def test_who_died_holds_an_upload_no_longer_than_its_lease(office: Office, upload: str) -> None:
    uploads.lease_upload_to_write(office.db, office.actor, upload, 0)
    with office.db.write() as session:
        row = session.get_one(Upload, upload)
        assert row.held_until is not None
        assert 0 < row.held_until - office.db.now(session) <= uploads.LEASE_S
        row.held_until = office.db.now(session) - 0.001
    uploads.lease_upload_to_write(office.db, office.actor, upload, 0)


def test_a_writer_that_was_taken_for_dead_changes_and_leaves_nothing(
    office: Office, upload: str
) -> None:
    slow = uploads.lease_upload_to_write(office.db, office.actor, upload, 0)
    with office.db.write() as session:
        session.get_one(Upload, upload).held_until = 1.0
    send_piece(office, upload, 0, b"abcdefg")
    with pytest.raises(OffsetMismatch) as refused:
        uploads.append_upload_piece(
            office.db, office.store, office.actor, slow, write_piece(office.folder, b"abc"), TERMS
        )
    assert refused.value.extra["offset"] == 7
    send_piece(office, upload, 7, b"hij")
    assert read_whole_upload(office, upload) == b"abcdefghij"
    there, named = list_piece_keys(office)
    assert there == named


@pytest.mark.both_databases
def test_many_writers_at_once_make_one_piece(office: Office, upload: str) -> None:
    together, outcomes = threading.Barrier(6), []

    def send_first_piece(number: int) -> None:
        together.wait(60)
        try:
            outcomes.append(send_piece(office, upload, 0, b"0123456789"[: number + 1]))
        except (UploadLocked, OffsetMismatch) as refused:
            outcomes.append(type(refused).__name__)

    threads = [threading.Thread(target=send_first_piece, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = [one for one in outcomes if isinstance(one, int)]
    assert (
        len(won) == 1
        and uploads.read_upload_progress(office.db, office.actor, upload).offset == won[0]
    )
    there, named = list_piece_keys(office)
    assert there == named and len(named) == 1


def test_an_upload_that_was_removed_while_one_wrote_is_gone_and_leaves_nothing(
    office: Office, upload: str
) -> None:
    send_piece(office, upload, 0, b"abcd")
    writing = uploads.lease_upload_to_write(office.db, office.actor, upload, 4)
    uploads.delete_upload(office.db, office.store, office.actor, upload)
    with pytest.raises(NotFound):
        uploads.append_upload_piece(
            office.db,
            office.store,
            office.actor,
            writing,
            write_piece(office.folder, b"efghij"),
            TERMS,
        )
    assert list_piece_keys(office) == (set(), set())
    with pytest.raises(NotFound):
        uploads.delete_upload(office.db, office.store, office.actor, upload)


def test_a_foreign_owner_finds_nothing_and_an_administrator_all(
    office: Office, upload: str
) -> None:
    calls: list[Any] = [
        lambda who: uploads.read_upload_progress(office.db, who, upload),
        lambda who: uploads.release_upload_lease(
            office.db, uploads.lease_upload_to_write(office.db, who, upload, 0)
        ),
        lambda who: uploads.delete_upload(office.db, office.store, who, upload),
    ]
    for call in calls:
        with pytest.raises(NotFound):
            call(STRANGER)
    with pytest.raises(NotFound):
        complete_uploads.require_complete_upload(office.db, STRANGER, upload)
    for call in calls:
        call(Actor(STRANGER.owner_id, None, "admin") if call is not calls[-1] else office.actor)


@pytest.mark.parametrize(
    "name", ["", "upl_", "mdl_01k00000000000000000000000", "upl_'; DROP TABLE uploads", "../x"]
)
def test_what_is_no_id_is_not_found(office: Office, name: str) -> None:
    with pytest.raises(NotFound):
        uploads.read_upload_progress(office.db, office.actor, name)


def test_an_upload_whose_time_is_over_is_gone_and_each_byte_gives_it_more(
    office: Office, upload: str
) -> None:
    with office.db.write() as session:
        now = office.db.now(session)
        session.get_one(Upload, upload).expires_at = now + 60
    send_piece(office, upload, 0, b"abcd")
    assert (
        uploads.read_upload_progress(office.db, office.actor, upload).expires_at > now + 23 * 3600
    )
    with office.db.write() as session:
        session.get_one(Upload, upload).expires_at = now
    with pytest.raises(NotFound, match="expired"):
        uploads.lease_upload_to_write(office.db, office.actor, upload, 4)


def test_an_owner_has_so_many_uploads_and_is_told_which(office: Office) -> None:
    made = [
        uploads.create_upload(office.db, office.actor, AnnouncedUpload(1), TERMS)[0]["id"]
        for _ in range(3)
    ]
    with pytest.raises(TooManyRequests) as refused:
        uploads.create_upload(office.db, office.actor, AnnouncedUpload(1), TERMS)
    assert refused.value.extra["uploads"] == made
    with office.db.write() as session:
        session.get_one(Upload, made[0]).expires_at = 1.0
    uploads.create_upload(office.db, office.actor, AnnouncedUpload(1), TERMS)


def test_pieces_count_among_the_bytes_of_their_owner_and_what_is_refused_leaves_nothing(
    office: Office, upload: str
) -> None:
    assert stored_bytes.measure_and_store_owner_bytes(office.db, office.actor.owner_id) == 0
    send_piece(office, upload, 0, b"abcd")
    assert stored_bytes.measure_and_store_owner_bytes(office.db, office.actor.owner_id) == 4
    narrow = UploadLimits(3, 9, 24.0)
    writing = uploads.lease_upload_to_write(office.db, office.actor, upload, 4)
    with pytest.raises(StorageQuotaReached):
        uploads.require_storage_room_for_piece(office.db, writing, 6, narrow)
    with pytest.raises(StorageQuotaReached):
        uploads.append_upload_piece(
            office.db,
            office.store,
            office.actor,
            writing,
            write_piece(office.folder, b"efghij"),
            narrow,
        )
    assert (
        len(list_piece_keys(office)[0]) == 1
        and uploads.read_upload_progress(office.db, office.actor, upload).offset == 4
    )
    with pytest.raises(StorageQuotaReached):
        uploads.create_upload(office.db, office.actor, AnnouncedUpload(6), narrow)


def test_an_upload_has_so_many_pieces_as_its_length_allows(
    office: Office, upload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "SPARE_PIECES", 2)
    send_piece(office, upload, 0, b"a")
    send_piece(office, upload, 1, b"b")
    with pytest.raises(Invalid, match="2 pieces"):
        uploads.lease_upload_to_write(office.db, office.actor, upload, 2)


def test_a_damaged_piece_is_told_and_not_learned(office: Office, upload: str) -> None:
    send_piece(office, upload, 0, b"abcdefghij")
    office.store.put_bytes(chunks.make_upload_piece_key(upload, 0, 1), b"abcdefghiX")
    with pytest.raises(StoredObjectDamaged, match=f"DELETE /v1/uploads/{upload}"):
        read_whole_upload(office, upload)


@ON_S3
def test_a_task_spends_its_upload_once_and_its_bytes_count_once(office: Office, model: str) -> None:
    sent = make_batch(office.folder, 0)  # 9 bytes
    data = sent.path.read_bytes()
    made = uploads.create_upload(office.db, office.actor, AnnouncedUpload(len(data)), TERMS)[0][
        "id"
    ]
    limit = len(data)  # room for the upload, and for nothing beside it
    writing = uploads.lease_upload_to_write(office.db, office.actor, made, 0)
    stored_bytes.measure_and_store_owner_bytes(office.db, office.actor.owner_id)
    uploads.append_upload_piece(
        office.db,
        office.store,
        office.actor,
        writing,
        write_piece(office.folder, data),
        UploadLimits(3, limit, 24.0),
    )
    found = complete_uploads.require_complete_upload(office.db, office.actor, made)

    def submit_upload() -> Any:
        sent.path.write_bytes(data)
        return office.submission(sent, max_bytes=limit, upload=found).submit_as_next_task()

    submit_upload()
    assert list_piece_keys(office) == (set(), set())
    assert [info.size for info in office.store.list("archives/")] == [len(data)]
    assert stored_bytes.measure_and_store_owner_bytes(office.db, office.actor.owner_id) == len(data)
    with pytest.raises(NotFound):
        submit_upload()
    assert len(list(office.store.list("archives/"))) == 1


def test_removing_an_upload_makes_room_at_once_also_after_a_refusal_and_a_clock_that_was_put_back(
    office: Office,
) -> None:
    narrow = UploadLimits(max_open=3, max_owner_bytes=10, hours=24.0)
    first = uploads.create_upload(office.db, office.actor, AnnouncedUpload(10), narrow)[0]["id"]
    send_piece(office, first, 0, b"0123456789")
    for put_back in (0.0, 400 * 86_400.0):
        with pytest.raises(StorageQuotaReached):
            uploads.create_upload(office.db, office.actor, AnnouncedUpload(10), narrow)
        with office.db.write() as session:
            session.execute(update(Owner).values(bytes_at=Owner.bytes_at + put_back))
    uploads.delete_upload(office.db, office.store, office.actor, first)
    uploads.create_upload(office.db, office.actor, AnnouncedUpload(10), narrow)
