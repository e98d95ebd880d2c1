"""The contract of every store, tested with a folder and a real S3 server."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from core.errors import StoredObjectDamaged
from core.settings import Settings
from core.storage import ObjectStorage, open_object_store
from core.storage.s3 import PART_BYTES

MIB = 1 << 20


def _make_environment(settings: Settings) -> dict[str, str]:
    return dict(
        os.environ,
        PERENNIAL_DATA_DIR=str(settings.data_dir),
        PERENNIAL_STORE_URL=settings.resolved_store_url,
        PERENNIAL_STORE_ACCESS_KEY=settings.store_access_key,
        PERENNIAL_STORE_SECRET_KEY=settings.resolved_store_secret_key,
    )


def _run_python(
    code: str, settings: Settings, *arguments: object
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=_make_environment(settings),
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_what_was_put_is_read_back(store: ObjectStorage) -> None:
    store.put_bytes("a/b/c.bin", b"hello")
    assert b"".join(store.read("a/b/c.bin")) == b"hello"


def test_an_empty_object_is_an_object(store: ObjectStorage) -> None:
    store.put_bytes("a/empty", b"")
    info = store.stat("a/empty")
    assert info is not None and info.size == 0
    assert list(store.read("a/empty")) == []


def test_a_put_replaces_the_object_whole(store: ObjectStorage) -> None:
    store.put_bytes("a/x", b"a much longer first value")
    store.put_bytes("a/x", b"second")
    assert b"".join(store.read("a/x")) == b"second"


def test_a_file_of_several_parts_is_read_back_in_chunks(
    store: ObjectStorage, tmp_path: Path
) -> None:
    data = os.urandom(2 * PART_BYTES + 12345)
    source = tmp_path / "source"
    source.write_bytes(data)
    store.put_file("big/file", source)
    chunks = list(store.read("big/file"))
    assert b"".join(chunks) == data
    assert max(map(len, chunks)) <= MIB
    assert source.exists()


def test_a_moved_file_is_gone_from_its_place(store: ObjectStorage, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"moved")
    store.put_file("a/moved", source, move=True)
    assert not source.exists()
    assert b"".join(store.read("a/moved")) == b"moved"


def test_a_missing_source_file_is_the_callers_error(store: ObjectStorage, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        store.put_file("a/x", tmp_path / "nothing")
    assert store.stat("a/x") is None


@pytest.mark.parametrize(
    ("offset", "length", "expected"),
    [
        (0, 4, b"0123"),
        (3, 4, b"3456"),
        (3, None, b"3456789"),
        (8, 100, b"89"),
        (10, None, b""),
        (50, 5, b""),
        (4, 0, b""),
        (0, None, b"0123456789"),
    ],
)
def test_a_range_is_clipped_to_the_object(
    store: ObjectStorage, offset: int, length: int | None, expected: bytes
) -> None:
    store.put_bytes("r/x", b"0123456789")
    assert b"".join(store.read("r/x", offset, length)) == expected


def test_a_negative_range_is_refused(store: ObjectStorage) -> None:
    store.put_bytes("r/x", b"0123456789")
    for offset, length in ((-1, None), (0, -1)):
        with pytest.raises(ValueError, match="range"):
            store.read("r/x", offset, length)


@pytest.mark.parametrize(("offset", "length"), [(0, None), (5, None), (0, 0)])
def test_reading_a_missing_object_is_corruption_at_once(
    store: ObjectStorage, offset: int, length: int | None
) -> None:
    with pytest.raises(StoredObjectDamaged, match="no/such"):
        store.read("no/such", offset, length)


def test_a_folder_of_objects_is_not_an_object(store: ObjectStorage) -> None:
    store.put_bytes("a/b/c", b"1")
    assert store.stat("a/b") is None
    store.delete("a/b")
    assert b"".join(store.read("a/b/c")) == b"1"
    with pytest.raises(StoredObjectDamaged):
        store.read("a/b")


def test_stat_tells_size_and_time(store: ObjectStorage) -> None:
    store.put_bytes("a/x", b"12345")
    info = store.stat("a/x")
    assert info is not None
    assert (info.key, info.size) == ("a/x", 5)
    assert abs(info.modified - Path("/proc/self").stat().st_mtime) < 3600


def test_a_deleted_object_is_gone_and_deleting_again_is_fine(store: ObjectStorage) -> None:
    store.put_bytes("a/x", b"1")
    store.delete("a/x")
    assert store.stat("a/x") is None
    store.delete("a/x")
    store.delete("never/was/there")


def test_list_finds_exactly_the_keys_with_the_prefix(store: ObjectStorage) -> None:
    keys = ["s/1/a", "s/1/b", "s/10/a", "s/2/deep/er/c", "t/x", "snapshots"]
    for key in keys:
        store.put_bytes(key, key.encode())

    def list_found_keys(prefix: str) -> list[str]:
        return sorted(info.key for info in store.list(prefix))

    assert list_found_keys("") == sorted(keys)
    assert list_found_keys("s/1/") == ["s/1/a", "s/1/b"]
    assert list_found_keys("s/1") == ["s/1/a", "s/1/b", "s/10/a"]
    assert list_found_keys("s/2/") == ["s/2/deep/er/c"]
    assert list_found_keys("nothing/") == []
    assert {info.key: info.size for info in store.list("t/")} == {"t/x": 3}


def test_two_stores_with_one_address_see_the_same_objects(store_settings: Settings) -> None:
    open_object_store(store_settings).put_bytes("a/x", b"1")
    assert open_object_store(store_settings).stat("a/x") is not None


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/a",
        "a//b",
        "a/../b",
        "../a",
        "a/..",
        ".a",
        "a/.b",
        "a/",
        "A",
        "a b",
        "a\nb",
        "a\x00",
        "ä",
        "a\\b",
        "a%2e",
    ],
)
def test_a_strange_key_is_refused(store: ObjectStorage, key: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x")
    for use in (
        lambda: store.put_bytes(key, b"x"),
        lambda: store.put_file(key, source, move=True),
        lambda: store.read(key),
        lambda: store.stat(key),
        lambda: store.delete(key),
        lambda: store.get_local_path(key),
    ):
        with pytest.raises(ValueError, match="not a store key"):
            use()
    assert source.exists()


@pytest.mark.parametrize("prefix", ["/", "../", "a/../", "a//", ".incoming/"])
def test_a_strange_prefix_is_refused(store: ObjectStorage, prefix: str) -> None:
    with pytest.raises(ValueError, match="not a store key"):
        store.list(prefix)


def test_check_passes_and_prepare_can_be_repeated(store: ObjectStorage) -> None:
    store.put_bytes("a/x", b"1")
    store.create_folder_or_bucket()
    store.check_store_usable()
    assert store.stat("a/x") is not None


def test_concurrent_writers_of_one_key_leave_one_of_their_values(store: ObjectStorage) -> None:
    values = [bytes([65 + n]) * 300_000 for n in range(6)]
    writers = [threading.Thread(target=store.put_bytes, args=("c/x", value)) for value in values]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert b"".join(store.read("c/x")) in values


_STREAM = """
import resource, sys
from pathlib import Path
from core.settings import Settings
from core.storage import Blobs, open_object_store
settings = Settings()
store = open_object_store(settings)
store.put_bytes("warm/up", b"x"); b"".join(store.read("warm/up"))
blobs = Blobs(store, settings.data_dir / "cache")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
sha256, size = blobs.put_file(Path(sys.argv[1]))
read = sum(map(len, blobs.read(sha256)))
fetched = blobs.fetch_verified_file(sha256).stat().st_size
assert size == read == fetched == int(sys.argv[2]), (size, read, fetched)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_memory_stays_constant_while_a_large_file_goes_both_ways(
    store_settings: Settings, tmp_path: Path
) -> None:
    size = 56 * MIB
    source = tmp_path / "large"
    with source.open("wb") as handle:
        for _ in range(size // MIB):
            handle.write(os.urandom(MIB))
    done = _run_python(_STREAM, store_settings, source, size)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 40, f"resident memory grew by {done.stdout} MiB"


_KILLED = """
import os, signal, sys
from pathlib import Path
from minio import Minio
from core.settings import Settings
from core.storage import open_object_store

def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)

os.fsync = die                                    # a folder: all is written, nothing is renamed
upload, count = Minio._upload_part, [0]
def second_part_kills(self, *arguments):          # S3: one part is there, the second never is
    count[0] += 1
    return upload(self, *arguments) if count[0] == 1 else die()
Minio._upload_part = second_part_kills
open_object_store(Settings()).put_file("k/x", Path(sys.argv[1]))
"""


def test_a_writer_killed_in_the_middle_leaves_the_old_object_alone(
    store: ObjectStorage, store_settings: Settings, tmp_path: Path
) -> None:
    store.put_bytes("k/x", b"old")
    source = tmp_path / "source"
    source.write_bytes(os.urandom(2 * PART_BYTES))
    done = _run_python(_KILLED, store_settings, source)
    assert done.returncode == -9, done.stderr
    assert b"".join(store.read("k/x")) == b"old"
    assert [info.key for info in store.list("")] == ["k/x"]
