"""Content-addressed blobs over both stores."""

import dataclasses
import hashlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from core.errors import StoredObjectDamaged
from core.storage import Blobs, ObjectInfo, ObjectStorage
from core.storage.blobs import VERIFIED

DATA = os.urandom(3_000_000)
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(DATA)
    return path


def test_a_blob_is_named_by_its_bytes(blobs: Blobs, source: Path) -> None:
    assert blobs.put_file(source) == (SHA256, len(DATA))
    assert blobs.make_blob_key(SHA256) == f"blobs/{SHA256[:2]}/{SHA256}"
    assert blobs.has(SHA256) and blobs.size(SHA256) == len(DATA)
    assert b"".join(blobs.read(SHA256)) == DATA
    assert source.exists()


def test_a_moved_file_is_gone_whether_or_not_the_blob_was_there(blobs: Blobs, source: Path) -> None:
    blobs.put_file(source, move=True)
    assert not source.exists()
    source.write_bytes(DATA)
    blobs.put_file(source, move=True)
    assert not source.exists()
    assert b"".join(blobs.read(SHA256)) == DATA


def test_a_blob_that_is_there_is_not_sent_again(
    blobs: Blobs, store: ObjectStorage, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs.put_file(source)

    def raise_assertion_error(*arguments: object, **options: object) -> None:
        raise AssertionError("sent again")

    monkeypatch.setattr(store, "put_file", raise_assertion_error)
    assert blobs.put_file(source) == (SHA256, len(DATA))


def test_a_linked_file_is_stored_with_two_requests_and_never_downloaded_here(
    store: ObjectStorage, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(store.inner), "get_local_path", lambda *_: None)  # type: ignore[attr-defined]
    blobs, asked = Blobs(store, tmp_path / "cache"), list[str]()
    for name in ("stat", "put_file", "read"):
        operation = getattr(store, name)
        monkeypatch.setattr(
            store, name, lambda *a, _o=operation, _n=name, **o: (asked.append(_n), _o(*a, **o))[1]
        )
    blobs.put_file(source, link=True)
    assert asked == ["stat", "put_file"]
    assert blobs.fetch_verified_file(SHA256).read_bytes() == DATA
    assert asked == ["stat", "put_file"]


def test_a_blob_of_another_size_is_written_again(
    blobs: Blobs, store: ObjectStorage, source: Path
) -> None:
    store.put_bytes(blobs.make_blob_key(SHA256), DATA[:1000])
    blobs.put_file(source)
    assert b"".join(blobs.read(SHA256)) == DATA


def test_a_missing_blob_is_corruption(blobs: Blobs) -> None:
    assert not blobs.has(SHA256) and blobs.size(SHA256) is None
    with pytest.raises(StoredObjectDamaged):
        blobs.read(SHA256)
    with pytest.raises(StoredObjectDamaged):
        blobs.fetch_verified_file(SHA256)


def test_a_whole_read_is_refused_before_its_end_when_the_bytes_changed(
    blobs: Blobs, store: ObjectStorage
) -> None:
    store.put_bytes(blobs.make_blob_key(SHA256), DATA[:-1] + bytes([DATA[-1] ^ 1]))
    got = b""
    with pytest.raises(StoredObjectDamaged, match=SHA256):
        for chunk in blobs.read(SHA256):
            got += chunk
    assert len(got) < len(DATA)


def test_a_range_is_given_without_reading_the_rest(blobs: Blobs, source: Path) -> None:
    blobs.put_file(source)
    assert b"".join(blobs.read(SHA256, 100, 50)) == DATA[100:150]
    assert b"".join(blobs.read(SHA256, len(DATA) - 5)) == DATA[-5:]


def test_a_fetched_blob_is_a_local_file_with_its_bytes(blobs: Blobs, source: Path) -> None:
    blobs.put_file(source)
    path = blobs.fetch_verified_file(SHA256)
    assert path.read_bytes() == DATA
    assert blobs.fetch_verified_file(SHA256) == path


def test_a_fetched_blob_is_hashed_once_in_a_process(
    blobs: Blobs,
    store: ObjectStorage,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blobs.put_file(source)
    path = blobs.fetch_verified_file(SHA256)
    monkeypatch.setattr(
        "core.storage.blobs._compute_file_digest_and_size", lambda path: ("wrong", 0)
    )
    assert blobs.fetch_verified_file(SHA256) == path
    assert Blobs(store, tmp_path / "cache").fetch_verified_file(SHA256) == path


def test_a_damaged_blob_is_not_fetched(blobs: Blobs, store: ObjectStorage) -> None:
    store.put_bytes(blobs.make_blob_key(SHA256), b"\0" + DATA[1:])
    with pytest.raises(StoredObjectDamaged, match=SHA256):
        blobs.fetch_verified_file(SHA256)


def test_a_blob_damaged_after_its_first_use_is_found_at_the_next(
    blobs: Blobs, store: ObjectStorage, source: Path, tmp_path: Path
) -> None:
    blobs.put_file(source)
    local = store.get_local_path(blobs.make_blob_key(SHA256))
    path = blobs.fetch_verified_file(SHA256)
    damaged = bytearray(DATA)
    damaged[1_000_000] ^= 1
    path.write_bytes(damaged)
    later = Blobs(store, tmp_path / "cache")
    if local is not None:
        with pytest.raises(StoredObjectDamaged):
            later.fetch_verified_file(SHA256)
    else:  # only the cached copy is damaged: it is fetched again
        assert later.fetch_verified_file(SHA256).read_bytes() == DATA


def test_a_recently_verified_file_is_found_until_it_changes(
    blobs: Blobs, store: ObjectStorage
) -> None:
    store.put_bytes(blobs.make_blob_key(SHA256), DATA)
    assert blobs.find_recently_verified_file(SHA256) is None
    path = blobs.fetch_verified_file(SHA256)
    assert blobs.find_recently_verified_file(SHA256) == path
    path.write_bytes(DATA + b"x")
    assert blobs.find_recently_verified_file(SHA256) is None


def test_a_cached_file_whose_use_must_be_recorded_is_not_found_without_a_fetch(
    store: ObjectStorage, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "get_local_path", lambda key: None)
    blobs = Blobs(store, tmp_path / "cache")
    path = blobs.fetch_verified_file(blobs.put_file(source)[0])
    assert blobs.find_recently_verified_file(SHA256) == path
    later = time.time() + 90
    monkeypatch.setattr(time, "time", lambda: later)
    assert blobs.find_recently_verified_file(SHA256) is None


def test_concurrent_writers_of_one_blob_all_succeed(store: ObjectStorage, tmp_path: Path) -> None:
    results: list[tuple[str, int]] = []

    def put_blob_copy(number: int) -> None:
        path = tmp_path / f"source-{number}"
        path.write_bytes(DATA)
        results.append(Blobs(store, tmp_path / "cache").put_file(path, move=True))

    writers = [threading.Thread(target=put_blob_copy, args=(n,)) for n in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert results == [(SHA256, len(DATA))] * 6
    assert [info.key for info in store.list("blobs/")] == [Blobs.make_blob_key(SHA256)]
    assert b"".join(Blobs(store, tmp_path / "cache").read(SHA256)) == DATA


def test_a_deleted_blob_is_gone_everywhere(blobs: Blobs, source: Path) -> None:
    blobs.put_file(source)
    path = blobs.fetch_verified_file(SHA256)
    blobs.delete(SHA256)
    assert not blobs.has(SHA256) and not path.exists()
    with pytest.raises(StoredObjectDamaged):
        blobs.fetch_verified_file(SHA256)
    blobs.delete(SHA256)


@pytest.mark.parametrize("name", ["", "abc", "A" * 64, "../" + "a" * 61, "a" * 65])
def test_a_name_that_is_no_digest_is_refused(blobs: Blobs, name: str) -> None:
    for use in (blobs.has, blobs.size, blobs.read, blobs.fetch_verified_file, blobs.delete):
        with pytest.raises(ValueError, match="not a sha256"):
            use(name)


def test_the_cache_is_trimmed_by_last_use_and_spares_what_was_just_used(
    store: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The folder store is read in place: hide its files, so that the cache is used over both stores.
    monkeypatch.setattr(store, "get_local_path", lambda key: None)
    blobs = Blobs(store, tmp_path / "cache", cache_bytes=2500)
    paths = []
    for number in range(4):
        source = tmp_path / "source"
        source.write_bytes(bytes([number]) * 1000)
        sha256, _ = blobs.put_file(source)
        paths.append(blobs.fetch_verified_file(sha256))
        old = time.time() - 86_400 + number
        os.utime(paths[-1], (old, paths[-1].stat().st_mtime))
    assert [path.exists() for path in paths] == [False, False, True, True]
    recent = Blobs(store, tmp_path / "recent", cache_bytes=1500)
    kept = [
        recent.fetch_verified_file(info.key.rpartition("/")[2]) for info in store.list("blobs/")
    ]
    assert all(path.exists() for path in kept)


@pytest.mark.parametrize(("age_s", "is_recorded"), [(30, False), (90, True), (-86_400, True)])
def test_uses_of_a_cached_blob_within_a_minute_are_recorded_once(
    store: ObjectStorage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    age_s: float,
    is_recorded: bool,
) -> None:
    monkeypatch.setattr(store, "get_local_path", lambda key: None)
    blobs = Blobs(store, tmp_path / "cache")
    (tmp_path / "source").write_bytes(DATA)
    path = blobs.fetch_verified_file(blobs.put_file(tmp_path / "source")[0])
    recorded, now = path.stat().st_atime_ns, time.time()
    # A clock may have been set back: a use in the future is replaced as well.
    monkeypatch.setattr(time, "time", lambda: now + age_s)
    assert blobs.fetch_verified_file(SHA256) == path
    assert (path.stat().st_atime_ns != recorded) == is_recorded


def flip_stored_byte(store: ObjectStorage, sha256: str) -> None:
    """Change a byte of the stored blob; in a folder in place, with its times restored."""
    key, damaged = Blobs.make_blob_key(sha256), bytearray(DATA)
    damaged[1_500_000] ^= 1
    path = store.get_local_path(key)
    if path is None:
        store.put_bytes(key, bytes(damaged))
        return
    times = path.stat()
    with path.open("r+b") as file:
        file.write(damaged)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_range_of_a_blob_that_was_damaged_since_it_was_verified_is_refused(
    blobs: Blobs, store: ObjectStorage, source: Path
) -> None:
    blobs.put_file(source)
    assert b"".join(blobs.read(SHA256, 5, 5)) == DATA[5:10]
    flip_stored_byte(store, SHA256)
    with pytest.raises(StoredObjectDamaged, match="damaged"):
        blobs.read(SHA256, 5, 5)


def test_bits_that_rot_without_a_trace_are_found_when_the_memory_of_them_is_old(
    blobs: Blobs, store: ObjectStorage, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = type(store).stat
    monkeypatch.setattr(type(store), "stat", lambda self, key: _remove_tag(real(self, key)))
    blobs.put_file(source)
    blobs.require_blob_digest(SHA256)
    flip_stored_byte(store, SHA256)
    blobs.require_blob_digest(SHA256)  # nothing shows it
    monkeypatch.setattr(VERIFIED, "age_s", 0.0)
    with pytest.raises(StoredObjectDamaged, match="damaged"):
        blobs.require_blob_digest(SHA256)


def _remove_tag(info: ObjectInfo | None) -> ObjectInfo | None:
    return None if info is None else dataclasses.replace(info, tag="always the same")


def test_a_damaged_blob_is_told_on(
    blobs: Blobs, store: ObjectStorage, source: Path, tmp_path: Path
) -> None:
    class Marks:
        keys: ClassVar[list[str]] = []

        def is_marked(self, key: str) -> bool:
            return key in self.keys

        def mark_damaged(self, key: str) -> None:
            self.keys.append(key)

        def remove_mark(self, key: str) -> None:
            self.keys.remove(key)

    blobs = Blobs(store, tmp_path / "cache", marks=Marks())
    blobs.put_file(source)
    flip_stored_byte(store, SHA256)
    with pytest.raises(StoredObjectDamaged):
        for _ in blobs.read(SHA256):
            pass
    assert Marks.keys == [Blobs.make_blob_key(SHA256)]
    blobs.put_file(source)
    assert Marks.keys == [] and b"".join(blobs.read(SHA256)) == DATA


def test_many_ranges_side_by_side_hash_the_blob_once(
    blobs: Blobs, store: ObjectStorage, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs.put_file(source)
    VERIFIED.forget_verified_name(f"{store!r}/{Blobs.make_blob_key(SHA256)}")
    whole: list[int] = []
    real = type(store).read

    def count_whole_reads(
        self: ObjectStorage, key: str, offset: int = 0, length: int | None = None
    ) -> Iterator[bytes]:
        whole.extend([1] if length is None else [])
        return real(self, key, offset, length)

    monkeypatch.setattr(type(store), "read", count_whole_reads)
    threads = [threading.Thread(target=lambda: list(blobs.read(SHA256, 0, 10))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(whole) == 1


def test_jobs_that_share_a_cache_look_through_it_once(
    store: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "get_local_path", lambda key: None)
    trims: list[Blobs] = []
    monkeypatch.setattr(Blobs, "_trim_cache", lambda self: trims.append(self))
    for number in range(5):
        blobs = Blobs(store, tmp_path / "cache")
        source = tmp_path / "source"
        source.write_bytes(bytes([number]) * 1000)
        blobs.fetch_verified_file(blobs.put_file(source)[0])
    assert len(trims) == 1
