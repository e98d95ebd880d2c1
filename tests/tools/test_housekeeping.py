"""The operator's command and backups: refusals, messages, and the restored data."""

import json
import os
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from core.database.migrate import upgrade_schema
from core.database.session import Database
from core.database.tables import Owner, UploadedBase
from core.ids import new_id
from core.retention import damage
from core.settings import Settings
from core.storage import Blobs, open_object_store
from core.upkeep.consistency import find_store_inconsistencies
from core.upkeep.scrub import Scrubber
from core.webhooks import webhook_secret
from tests.damaged_database import damage_table
from tools import backup, housekeeping


class Place:
    """A data directory of a service with a base, whose bytes are a blob."""

    def __init__(self, folder: Path) -> None:
        self.settings = Settings(data_dir=folder)
        self.db = Database(self.settings.resolved_database_url)
        upgrade_schema(self.db)
        self.store = open_object_store(self.settings)
        self.store.create_folder_or_bucket()
        (folder / "admin-key").write_text("pk_secret\n")
        with self.db.write() as session:
            session.add(Owner(id="own_1", name="team", created_at=0.0))
        self.base("weights")

    def base(self, text: str) -> str:
        path = self.settings.make_folder("spool") / "x"
        path.write_text(text)
        sha256, size = Blobs(self.store, self.settings.make_folder("cache")).put_file(
            path, move=True
        )
        with self.db.write() as session:
            row = UploadedBase(
                id=new_id("bas"),
                owner_id="own_1",
                architecture={},
                sha256=sha256,
                bytes=size,
                created_at=0,
            )
            session.add(row)
            return sha256


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path / "data")
    monkeypatch.setenv("PERENNIAL_DATA_DIR", str(tmp_path / "data"))
    return made


@pytest.mark.slow
def test_check_says_0_when_all_is_well_1_when_something_differs_and_what(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert housekeeping.main(["check"]) == 0
    assert capsys.readouterr().out == (
        "The daily scrub, which reads all objects while the service runs, has not begun yet.\n"
        "Database and store agree. The database names 1 object: each is there with the size that "
        "it says. --verify reads them, too.\n"
    )
    assert housekeeping.main(["check", "--verify"]) == 0
    assert capsys.readouterr().out.endswith(
        "names 1 object: each was read and has the digest that it says.\n"
    )
    key = Blobs.make_blob_key(place.base("lost"))
    place.store.delete(key)
    assert housekeeping.main(["check"]) == 1
    out = capsys.readouterr().out
    assert f"Missing: {key} (4 bytes), bas_" in out and "else restore it from a backup." in out
    assert out.endswith("1 difference, 4 bytes: 1 missing.\n")
    assert housekeeping.main(["check", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["kind"], told["object"], told["bytes"]) == ("missing", key, 4)
    assert told["detail"].startswith("bas_")
    assert housekeeping.main(["check", "--repair"]) == 1  # no copy anywhere: named, and left
    assert "1 difference found, 0 repaired." in capsys.readouterr().out


def test_check_tells_what_the_scrub_found_damaged_and_repair_takes_the_mark_of_what_is_sound_again(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    key = Blobs.make_blob_key(place.base("sound"))
    place.store.put_bytes(key, b"SOUND")
    scrubber = Scrubber(place.db, place.store, place.settings, "w", lambda _seconds: False)
    scrubber.run_scrub_if_due()
    assert housekeeping.main(["check"]) == 1  # without reading everything
    out = capsys.readouterr().out
    assert f"Damaged, its bytes are not those that were stored: {key} (5 bytes)" in out
    assert "so far it has read 2 objects, " in out
    place.store.put_bytes(key, b"sound")
    other = Blobs.make_blob_key(place.base("lost"))
    place.store.delete(other)
    assert housekeeping.main(["check", "--repair"]) == 1
    with place.db.read() as session:
        assert [row.key for row in damage.list_damage_marks(session, 9)] == [other]


def test_a_dry_run_tells_and_a_sweep_removes(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.store.put_bytes("archives/tsk_never", b"12345")
    assert housekeeping.main(["sweep", "--dry-run"]) == 0
    assert capsys.readouterr().out == "Nothing would be removed.\n"
    assert housekeeping.main(["sweep", "--dry-run", "--grace-hours", "0"]) == 0
    assert "archive that nothing names  5  archives/tsk_never" in capsys.readouterr().out
    assert place.store.stat("archives/tsk_never") is not None
    assert housekeeping.main(["sweep", "--grace-hours", "0"]) == 0
    assert place.store.stat("archives/tsk_never") is None


def test_a_schema_that_is_missing_is_told_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERENNIAL_DATA_DIR", str(tmp_path / "nobody"))
    assert housekeeping.main(["check"]) == 2
    assert "perennial migrate" in capsys.readouterr().err


def test_an_outage_is_told_in_one_sentence_and_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERENNIAL_DATABASE_URL", "postgresql+psycopg://nobody@127.0.0.1:1/x")
    monkeypatch.setenv("PERENNIAL_DATA_DIR", str(tmp_path))
    assert housekeeping.main(["check"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "refused" in line


def test_a_disk_that_fails_a_backup_is_told_in_one_sentence(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("no folder")
    assert housekeeping.main(["backup", str(tmp_path / "file" / "saved")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "Not a directory" in line


def test_what_was_backed_up_comes_back_whole(place: Place, tmp_path: Path) -> None:
    place.store.put_bytes("archives/tsk_never", b"no task names it")
    key = webhook_secret.load_or_create_webhook_key(place.settings)
    told = backup.create_backup(place.settings, tmp_path / "saved")
    assert told["objects"] == 1
    assert (tmp_path / "saved").stat().st_mode & 0o777 == 0o700
    again = Settings(data_dir=tmp_path / "again")
    backup.restore_backup(again, tmp_path / "saved")
    db, store = Database(again.resolved_database_url), open_object_store(again)
    assert find_store_inconsistencies(db, store, again, verify=True) == []
    db.close()
    assert [info.key for info in store.list("")] == [
        info.key for info in place.store.list("blobs/")
    ]
    assert (again.data_dir / "admin-key").read_text() == "pk_secret\n"
    assert webhook_secret.load_or_create_webhook_key(again) == key
    assert (again.data_dir / "webhook-key").stat().st_mode & 0o777 == 0o600


def test_a_restore_asks_for_no_room_but_on_the_disk_of_the_store(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup.create_backup(place.settings, tmp_path / "saved")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert (
        backup.restore_backup(Settings(data_dir=tmp_path / "again"), tmp_path / "saved")["objects"]
        == 1
    )


def test_what_is_deleted_and_made_while_it_is_copied_does_not_break_a_backup(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times, the copied database names data that the copy of the objects lacks."""
    real: Callable[[Path, Path], None] = backup.copy_sqlite_database
    made: list[str] = []

    def copy_during_changes(source: Path, target: Path) -> None:
        if len(made) == 3:
            return real(source, target)
        made.append(place.base(f"base {len(made)}"))
        real(source, target)
        with place.db.write() as session:
            session.delete(session.query(UploadedBase).filter_by(sha256=made[-1]).one())
        place.store.delete(Blobs.make_blob_key(made[-1]))

    with monkeypatch.context() as patch:
        patch.setattr(backup, "copy_sqlite_database", copy_during_changes)
        told = backup.create_backup(place.settings, tmp_path / "saved")
    assert len(made) == 3 and told["objects"] == 1
    backup.restore_backup(again := Settings(data_dir=tmp_path / "again"), tmp_path / "saved")
    db = Database(again.resolved_database_url)
    assert find_store_inconsistencies(db, open_object_store(again), again, verify=True) == []
    db.close()


def test_nothing_is_overwritten(place: Place, tmp_path: Path) -> None:
    with pytest.raises(backup.BackupNotPossible, match="not empty"):
        backup.create_backup(place.settings, tmp_path / "data")
    backup.create_backup(place.settings, tmp_path / "saved")
    with pytest.raises(backup.BackupNotPossible, match="empty place"):
        backup.restore_backup(place.settings, tmp_path / "saved")
    other = Settings(data_dir=tmp_path / "other")
    open_object_store(other).put_bytes("blobs/x", b"somebody's")
    with pytest.raises(
        backup.BackupNotPossible, match="other/store: a restore wants an empty place"
    ):
        backup.restore_backup(other, tmp_path / "saved")


def test_half_a_backup_is_not_restored(place: Place, tmp_path: Path) -> None:
    backup.create_backup(place.settings, tmp_path / "saved")
    blob = next((tmp_path / "saved" / "store" / "blobs").glob("*/*"))
    again = Settings(data_dir=tmp_path / "again")
    blob.unlink()
    with pytest.raises(backup.BackupNotPossible, match="lacks 1 objects"):
        backup.restore_backup(again, tmp_path / "saved")
    (tmp_path / "saved" / backup.CONTENTS).unlink()
    with pytest.raises(backup.BackupNotPossible, match=r"has no backup\.json"):
        backup.restore_backup(again, tmp_path / "saved")
    assert not (tmp_path / "again" / "perennial.db").exists()


def _make_link(saved: Path, name: str, target: Path) -> None:
    path = saved / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _execute_statement(saved: Path, statement: str) -> None:
    with closing(sqlite3.connect(saved / "perennial.db")) as connection:
        connection.execute(statement)
        connection.commit()


STRANGE: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "an object": (
        lambda saved, secret: _make_link(saved, "store/blobs/aa/" + "a" * 64, secret),
        "is a link to",
    ),
    "a folder": (
        lambda saved, secret: _make_link(saved, "store/more", secret.parent),
        "is a link to",
    ),
    "a hidden folder": (
        lambda saved, secret: _make_link(saved, "store/.incoming/x", secret.parent),
        "is a link to",
    ),
    "the database": (
        lambda saved, secret: _make_link(saved, "perennial.db", secret),
        "is a link to",
    ),
    "a key": (lambda saved, secret: _make_link(saved, "admin-key", secret), "is a link to"),
    "the contents": (
        lambda saved, secret: _make_link(saved, "backup.json", saved / "backup-2"),
        "is a link to",
    ),
    "a pipe": (lambda saved, _: os.mkfifo(saved / "store" / "pipe"), "neither a file nor a folder"),
    "a name": (
        lambda saved, _: (saved / "store" / "a b\n").write_text("x"),
        "has a name that no object has",
    ),
    "a row": (
        lambda saved, _: _execute_statement(
            saved, "UPDATE bases SET sha256 = '../../../../etc/passwd'"
        ),
        "outside of a store",
    ),
    "a trigger": (
        lambda saved, _: _execute_statement(
            saved, "CREATE TRIGGER evil AFTER INSERT ON keys BEGIN DELETE FROM audit; END"
        ),
        "holds a trigger, 'evil'",
    ),
    "a damaged page": (
        lambda saved, _: damage_table(saved / "perennial.db", "owners"),
        "table owners",
    ),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_a_backup_that_leads_outside_is_not_restored(
    place: Place, tmp_path: Path, kind: str
) -> None:
    saved, secret = tmp_path / "saved", tmp_path / "elsewhere" / "secret"
    secret.parent.mkdir()
    secret.write_text("of another")
    backup.create_backup(place.settings, saved)
    (saved / "backup-2").write_text((saved / "backup.json").read_text())
    spoil, why = STRANGE[kind]
    spoil(saved, secret)
    again = Settings(data_dir=tmp_path / "again")
    with pytest.raises(backup.BackupNotPossible, match=why):
        backup.restore_backup(again, saved)
    assert not [path for path in (tmp_path / "again").rglob("*") if path.is_file()]


def test_a_database_of_another_kind_is_left_to_its_own_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PERENNIAL_DATABASE_URL", "postgresql+psycopg://nobody@127.0.0.1:1/x")
    assert housekeeping.main(["backup", str(tmp_path / "saved")]) == 2
    assert "pg_dump" in capsys.readouterr().err
    assert not (tmp_path / "saved").exists()


def test_the_copy_of_a_database_in_use_is_whole(place: Place, tmp_path: Path) -> None:
    with place.db.write() as session:
        session.add(Owner(id="own_2", name="not committed", created_at=0.0))
        session.flush()
        backup.create_backup(place.settings, tmp_path / "saved")
    copy = sqlite3.connect(tmp_path / "saved" / "perennial.db")
    assert copy.execute("SELECT id FROM owners").fetchall() == [("own_1",)]
    assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    copy.close()
