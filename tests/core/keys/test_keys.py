"""Keys on both databases: the first admin key, and what is kept of a key."""

import stat
import threading

import pytest
from sqlalchemy import select, update

from core.database.tables import AccessKey, AuditEntry, Owner
from core.errors import NotAuthenticated
from core.keys import keys
from core.requests.actor import Actor
from core.storage.folder import FolderStore
from core.uploads import uploads
from core.uploads.uploads import AnnouncedUpload, ReceivedUploadPiece, UploadLimits


def test_the_first_start_leaves_an_admin_key_that_only_its_owner_can_read(database, tmp_path):
    secret = keys.ensure_admin_key_and_write_file(database, tmp_path)
    path = tmp_path / "admin-key"
    assert path.read_text().strip() == secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keys.ensure_admin_key_and_write_file(database, tmp_path) is None


def test_an_admin_key_that_expired_is_followed_by_another(database, tmp_path):
    keys.ensure_admin_key_and_write_file(database, tmp_path)
    with database.write() as session:
        session.query(AccessKey).one().expires_at = 1.0
    assert keys.ensure_admin_key_and_write_file(database, tmp_path) is not None


@pytest.mark.both_databases
def test_processes_that_start_together_make_one_admin_key(database, tmp_path):
    made: list[str | None] = []
    threads = [
        threading.Thread(
            target=lambda: made.append(keys.ensure_admin_key_and_write_file(database, tmp_path))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4 and sum(secret is not None for secret in made) == 1
    with database.read() as session:
        assert session.query(AccessKey).count() == 1


def test_only_the_right_secret_matches(database):
    secret, prefix = keys.generate_access_key()
    assert (
        keys.parse_access_key_prefix(secret) == prefix
        and keys.parse_access_key_prefix("Bearer x") is None
    )
    assert keys.does_access_key_match_digest(secret, keys.digest_access_key(secret))
    assert not keys.does_access_key_match_digest(
        secret[:-1] + ("a" if secret[-1] != "a" else "b"), keys.digest_access_key(secret)
    )


TERMS = UploadLimits(max_open=3, max_owner_bytes=0, hours=24.0)


@pytest.fixture
def holder(database) -> Actor:
    """Somebody with a key."""
    with database.write() as session:
        session.add(Owner(id="own_1", name="one", created_at=1.0))
    made = keys.create_key(database, Actor("own_1", None, "admin"), keys.RequestedKey("k", "write"))
    return Actor("own_1", made["id"], "write")


@pytest.mark.both_databases
@pytest.mark.parametrize(
    "ended", [{"revoked_at": 1.0}, {"expires_at": 1.0}], ids=["revoked", "expired"]
)
def test_what_a_key_began_is_not_committed_after_its_end(database, tmp_path, holder, ended):
    store = FolderStore(tmp_path / "store")
    store.create_folder_or_bucket()
    begun = uploads.create_upload(database, holder, AnnouncedUpload(4), TERMS)[0]["id"]
    writing = uploads.lease_upload_to_write(database, holder, begun, 0)
    (tmp_path / "piece").write_bytes(b"abcd")
    with database.write() as session:
        session.execute(update(AccessKey).where(AccessKey.id == holder.key_id).values(**ended))
        rows = len(session.scalars(select(AuditEntry)).all())
    with pytest.raises(NotAuthenticated, match="nothing of it was done"):
        uploads.append_upload_piece(
            database,
            store,
            holder,
            writing,
            ReceivedUploadPiece(tmp_path / "piece", 4, "0" * 64),
            TERMS,
        )
    with pytest.raises(NotAuthenticated):
        uploads.create_upload(database, holder, AnnouncedUpload(4), TERMS)
    with pytest.raises(NotAuthenticated):
        uploads.delete_upload(database, store, holder, begun)
    assert list(store.list("")) == []
    with database.read() as session:
        assert uploads.find_upload(session, holder, begun, database.now(session)).offset == 0
        assert len(session.scalars(select(AuditEntry)).all()) == rows
