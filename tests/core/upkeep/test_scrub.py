"""The scrub: everything named is hashed once in a pass, by one worker, as fast as is allowed;
damage is marked.
"""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.database.tables import (
    ExportedDownload,
    IntegrityScrubProgress,
    Task,
    UploadedBase,
    Version,
    VersionPart,
)
from core.errors import Unavailable
from core.retention import damage
from core.settings import Settings
from core.storage import Blobs
from core.storage.folder import FolderStore
from core.upkeep.consistency import iterate_referenced_objects
from core.upkeep.scrub import LOOK_AGAIN_S, Scrubber
from tests.core.at_once import run_at_once

ROOT = Path(__file__).parents[3]


class Watched:
    """A store that counts what is read."""

    def __init__(self, store: FolderStore) -> None:
        self.inner = store
        self.reads: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        self.reads[key] += 1
        return self.inner.read(key, offset, length)


@pytest.fixture
def desk(desk: Any) -> Any:
    """A version of two parts, a decoded batch, an archive, a base and a download."""
    desk.submit(model := desk.model())
    desk.publish({"head": "h", "buffer": "b"}, [("new", 1, 1, 2)])
    desk.submit(model)
    desk.submit(desk.model(), decoded=False, archive=b"zip")
    desk.base, desk.download = desk.blob("a base"), desk.blob("a download")
    desk.store = Watched(desk.store)
    with desk.db.write() as session:
        version = session.query(Version).filter_by(number=1).one().id
        session.add(
            ExportedDownload(
                version_id=version, format="x", sha256=desk.download, bytes=10, created_at=9e9
            )
        )
        row = UploadedBase(
            id="bas_1",
            owner_id=desk.owner,
            architecture={},
            sha256=desk.base,
            bytes=6,
            created_at=0,
        )
        session.add(row)
        for task in session.query(Task).filter(Task.archive_key.is_not(None)):
            task.sha256 = hashlib.sha256(b"zip").hexdigest()
    return desk


def make_scrubber(
    desk: Any,
    worker: str = "w",
    pause: Callable[[float], bool] = lambda _seconds: False,
    **settings: Any,
) -> Scrubber:
    given = Settings(data_dir=desk.settings.data_dir, threads=1, **settings)
    return Scrubber(desk.db, desk.store, given, worker, pause)


def read_damage_marks(desk: Any) -> dict[str, str]:
    with desk.db.read() as session:
        return {row.key: row.kind for row in damage.list_damage_marks(session, 1000)}


def read_progress(desk: Any) -> IntegrityScrubProgress:
    return desk.all(IntegrityScrubProgress)[0]  # type: ignore[no-any-return]


def find_part_key(desk: Any, name: str) -> str:
    return Blobs.make_blob_key(next(p.sha256 for p in desk.all(VersionPart) if p.name == name))


def delete_memory(desk: Any, name: str) -> None:
    """Delete a memory as a request does."""
    with desk.db.write() as session:
        session.query(VersionPart).filter_by(name=name).one().deleted_at = 1.0


def add_base_rows(desk: Any, count: int) -> None:
    given = {"owner_id": desk.owner, "architecture": {}, "bytes": 1, "created_at": 0}
    with desk.db.write() as session:
        for number in range(count):
            session.add(
                UploadedBase(id=f"bas_n{number}", sha256=desk.blob(f"base {number}"), **given)
            )


def test_everything_that_a_row_names_is_hashed_once_in_a_pass(desk: Any) -> None:
    unnamed = Blobs.make_blob_key(desk.blob("nothing names this"))
    make_scrubber(desk).run_scrub_if_due()
    wanted = {one.key for one in iterate_referenced_objects(desk.db)}
    assert desk.store.reads == dict.fromkeys(wanted, 1) and unnamed not in wanted
    assert {key.split("/")[0] for key in wanted} == {"archives", "blobs"}
    assert (
        read_damage_marks(desk) == {}
        and read_progress(desk).objects == len(wanted)
        and read_progress(desk).ended_at is not None
    )
    assert read_progress(desk).bytes == sum(desk.store.stat(key).size for key in wanted)


def test_the_next_pass_begins_when_it_is_due(desk: Any) -> None:
    make_scrubber(desk).run_scrub_if_due()
    first = sum(desk.store.reads.values())
    make_scrubber(desk).run_scrub_if_due()
    assert sum(desk.store.reads.values()) == first
    desk.change(IntegrityScrubProgress, 1, began_at=read_progress(desk).began_at - 25 * 3600)
    make_scrubber(desk).run_scrub_if_due()
    assert sum(desk.store.reads.values()) == 2 * first


def test_a_rate_of_0_is_no_scrub(desk: Any) -> None:
    make_scrubber(desk, scrub_bytes_per_s=0).run_scrub_if_due()
    assert not desk.store.reads


def test_a_damaged_and_a_missing_object_are_marked_until_sound_bytes_are_back(desk: Any) -> None:
    head, buffer = find_part_key(desk, "head"), find_part_key(desk, "buffer")
    desk.store.put_bytes(head, b"H")
    desk.store.delete(buffer)
    make_scrubber(desk).run_scrub_if_due()
    assert read_damage_marks(desk) == {head: "digest", buffer: "missing"}
    make_scrubber(desk).run_scrub_if_due()
    assert len(read_damage_marks(desk)) == 2
    desk.store.put_bytes(head, b"h")  # a restore
    desk.store.put_bytes(buffer, b"b")
    make_scrubber(desk).run_scrub_if_due()
    assert read_damage_marks(desk) == {}


def test_a_marked_object_is_read_again_only_when_somebody_has_written_to_it(desk: Any) -> None:
    head = find_part_key(desk, "head")
    desk.store.put_bytes(head, b"H")
    make_scrubber(desk).run_scrub_if_due()
    before = desk.store.reads[head]
    for _ in range(3):
        make_scrubber(desk).run_scrub_if_due()
    assert desk.store.reads[head] == before


def test_storing_sound_bytes_takes_the_mark_at_once_though_a_process_remembers_the_blob(
    desk: Any,
) -> None:
    """Bits rot without another time or inode: what this process has verified is no proof."""
    path = desk.folder / "again"
    path.write_text("h")
    blobs = Blobs(
        desk.store.inner, desk.folder / "cache", marks=damage.DatabaseDamageMarks(desk.db)
    )
    sha256, _ = blobs.put_file(path)
    with desk.db.write() as session:
        damage.mark_object_damaged_and_delete_downloads(
            session,
            Blobs.make_blob_key(sha256),
            "digest",
            "as it is now",
            desk.db.now(session),
        )
    inode = desk.store.get_local_path(Blobs.make_blob_key(sha256)).stat().st_ino
    blobs.put_file(path)
    assert read_damage_marks(desk) == {}
    assert desk.store.get_local_path(Blobs.make_blob_key(sha256)).stat().st_ino != inode, (
        "it was not written again"
    )


def test_a_damaged_download_is_forgotten_and_so_is_one_that_was_made_of_a_damaged_part(
    desk: Any,
) -> None:
    desk.store.put_bytes(Blobs.make_blob_key(desk.download), b"A download")
    make_scrubber(desk).run_scrub_if_due()
    assert desk.all(ExportedDownload) == [] and read_damage_marks(desk) == {}
    assert desk.store.stat(Blobs.make_blob_key(desk.download)) is None
    with desk.db.write() as session:
        version = session.query(Version).filter_by(number=1).one().id
        session.add(
            ExportedDownload(
                version_id=version, format="x", sha256="0" * 64, bytes=10, created_at=9e9
            )
        )
        damage.mark_object_damaged_and_delete_downloads(
            session, find_part_key(desk, "head"), "digest", "", 0.0
        )
    assert desk.all(ExportedDownload) == []


def test_a_mark_goes_when_nothing_names_the_object_any_more(desk: Any) -> None:
    head = find_part_key(desk, "head")
    desk.store.put_bytes(head, b"H")
    make_scrubber(desk).run_scrub_if_due()
    delete_memory(desk, "head")
    make_scrubber(desk).run_scrub_if_due()
    assert read_damage_marks(desk) == {} and desk.store.stat(head) is None


def test_what_is_deleted_while_it_is_read_is_no_damage(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = find_part_key(desk, "buffer")

    def delete_and_stat_object(self: Watched, key: str) -> Any:
        if key == buffer:
            delete_memory(desk, "buffer")
            self.inner.delete(key)
        return self.inner.stat(key)

    monkeypatch.setattr(Watched, "stat", delete_and_stat_object, raising=False)
    make_scrubber(desk).run_scrub_if_due()
    assert read_damage_marks(desk) == {}


def test_an_outage_of_the_store_marks_nothing_and_the_next_round_goes_on(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, out = Watched.read, find_part_key(desk, "head")

    def read_with_outage(self: Watched, key: str, *more: Any) -> Iterator[bytes]:
        if key == out:
            raise Unavailable("the store is away")
        return real(self, key, *more)

    with monkeypatch.context() as patch:
        patch.setattr(Watched, "read", read_with_outage)
        with pytest.raises(Unavailable):
            make_scrubber(desk).run_scrub_if_due()
    assert (
        read_damage_marks(desk) == {}
        and read_progress(desk).ended_at is None
        and read_progress(desk).worker is None
    )
    make_scrubber(desk, "another").run_scrub_if_due()
    assert read_progress(desk).ended_at is not None and max(desk.store.reads.values()) == 1


def test_the_bytes_of_a_second_are_those_that_the_setting_allows(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that only pauses move: small objects count 64 KiB each."""
    now, paused = [0.0], []

    def advance_and_record_pause(seconds: float) -> bool:
        now[0] += seconds
        paused.append(seconds)
        return False

    monkeypatch.setattr("core.upkeep.scrub.time.monotonic", lambda: now[0])
    desk.store.put_bytes(Blobs.make_blob_key(desk.base), b"x" * 1_000_000)
    make_scrubber(desk, pause=advance_and_record_pause, scrub_bytes_per_s=10_000).run_scrub_if_due()
    # The base is damaged now: it is read twice before it is marked.
    wanted = (2 * 1_000_000 + (read_progress(desk).objects - 1) * 65_536) / 10_000
    assert sum(paused) == pytest.approx(wanted, rel=0.01) and max(paused) <= 2.0


def test_a_worker_that_ends_stops_in_the_middle_and_lets_go_of_the_lease(desk: Any) -> None:
    make_scrubber(desk, pause=lambda _seconds: True, scrub_bytes_per_s=1).run_scrub_if_due()
    assert read_progress(desk).worker is None and read_progress(desk).ended_at is None
    make_scrubber(desk, "another").run_scrub_if_due()
    assert read_progress(desk).ended_at is not None


def test_a_worker_whose_lease_another_has_taken_stops(desk: Any) -> None:
    def take_over_lease(_seconds: float) -> bool:
        desk.change(
            IntegrityScrubProgress,
            1,
            worker="thief",
            fence=read_progress(desk).fence + 1,
            lease_until=9e9,
        )
        return False

    make_scrubber(desk, pause=take_over_lease, scrub_bytes_per_s=1, lease_s=0.01).run_scrub_if_due()
    assert (
        read_progress(desk).worker == "thief"
        and read_progress(desk).ended_at is None
        and read_progress(desk).objects == 0
    )
    make_scrubber(desk).run_scrub_if_due()
    assert read_progress(desk).worker == "thief"


@pytest.mark.both_databases
def test_workers_side_by_side_hash_nothing_twice(desk: Any) -> None:
    add_base_rows(desk, 60)

    def sleep_for_pause(seconds: float) -> bool:
        time.sleep(seconds)
        return False

    workers = [
        make_scrubber(desk, f"w{n}", sleep_for_pause, scrub_bytes_per_s=8 << 20) for n in range(4)
    ]
    run_at_once(Scrubber.run_scrub_if_due, workers)
    assert read_progress(desk).ended_at is not None
    assert len(desk.store.reads) >= 60 and set(desk.store.reads.values()) == {1}


_KILLED = """
import sys, time
from core.database.session import Database
from core.settings import Settings
from core.storage.folder import FolderStore
from core.upkeep.scrub import Scrubber
from pathlib import Path

class Told(FolderStore):
    reads = 0

    def read(self, key, offset=0, length=None):
        self.reads += 1
        if self.reads > 20:
            sys.stdin.read()  # until it is killed
        print(key, flush=True)
        return super().read(key, offset, length)

def pause(seconds):
    time.sleep(seconds)
    return False

settings = Settings(data_dir=sys.argv[2], threads=1, scrub_bytes_per_s=1_000_000, lease_s=1.0)
Scrubber(Database(sys.argv[1]), Told(Path(sys.argv[3])), settings, "killed", pause).run_scrub_if_due()
"""


@pytest.mark.slow
def test_a_pass_goes_on_where_a_killed_worker_was_once_its_lease_is_over(desk: Any) -> None:
    add_base_rows(desk, 40)
    command = [
        sys.executable,
        "-c",
        _KILLED,
        desk.db.url,
        str(desk.settings.data_dir),
        str(desk.store.root),
    ]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    first = [process.stdout.readline().strip() for _ in range(20)]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    for lease_until, ended in ((9e9, False), (1.0, True)):
        desk.change(IntegrityScrubProgress, 1, lease_until=lease_until)
        make_scrubber(desk).run_scrub_if_due()
        assert (read_progress(desk).ended_at is not None) is ended
    again = desk.store.reads.keys() & set(first)
    # Recorded every sixth of a lease: three objects of 64 kB at 1 MB/s.
    assert len(again) <= 8 < len(first) and set(desk.store.reads.values()) == {1}
    assert len(desk.store.reads.keys() | set(first)) >= 40


def test_what_is_marked_is_looked_at_while_a_long_pass_goes_on(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, now = find_part_key(desk, "head"), [0.0]
    desk.store.put_bytes(head, b"H")
    make_scrubber(desk).run_scrub_if_due()
    desk.change(IntegrityScrubProgress, 1, began_at=0.0)
    desk.store.reads.clear()
    healed: list[bool] = []

    def advance_clock_and_heal(seconds: float) -> bool:
        now[0] += seconds
        if now[0] > 5:
            desk.store.put_bytes(head, b"h")
        if now[0] > 5 + 2 * LOOK_AGAIN_S:
            healed.append(read_damage_marks(desk) == {})
        return len(healed) > 50

    monkeypatch.setattr("core.upkeep.scrub.time.monotonic", lambda: now[0])
    make_scrubber(desk, pause=advance_clock_and_heal, scrub_bytes_per_s=1500).run_scrub_if_due()
    assert healed and healed[-1]
