"""Behaviour of the folder store alone: renames, fsync, temporary folders and failing disks."""

import errno
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.errors import ServiceDiskFull, StoredObjectDamaged, Unavailable
from core.storage.folder import FolderStore


@pytest.fixture
def folder(tmp_path: Path) -> FolderStore:
    made = FolderStore(tmp_path / "store")
    made.create_folder_or_bucket()
    return made


def test_a_relative_folder_is_refused() -> None:
    with pytest.raises(ValueError, match="absolute"):
        FolderStore(Path("store"))


def test_a_move_on_the_same_file_system_is_a_rename(folder: FolderStore, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * 1000)
    inode = source.stat().st_ino
    folder.put_file("a/x", source, move=True)
    local = folder.get_local_path("a/x")
    assert local is not None and local.stat().st_ino == inode


def test_a_move_from_another_file_system_copies(
    folder: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * 1000)
    monkeypatch.setattr(folder, "_read_device_number", lambda: -1)
    folder.put_file("a/x", source, move=True)
    assert not source.exists()
    assert b"".join(folder.read("a/x")) == b"x" * 1000


@pytest.mark.parametrize("is_linux", [True, False])
def test_a_copy_goes_on_where_the_kernel_cannot_copy(
    folder: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_linux: bool
) -> None:
    def raise_cross_device_error(*arguments: object) -> int:
        raise OSError(errno.EXDEV, "cross-device")

    if is_linux:
        monkeypatch.setattr(os, "copy_file_range", raise_cross_device_error)
    else:
        monkeypatch.delattr(os, "copy_file_range")
    source = tmp_path / "source"
    source.write_bytes(bytes(range(256)) * 10_000)
    folder.put_file("a/x", source)
    assert b"".join(folder.read("a/x")) == source.read_bytes()


@pytest.mark.parametrize("move", [False, True])
def test_the_bytes_are_on_disk_before_the_name_and_the_name_before_the_return(
    folder: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, move: bool
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(descriptor: int) -> None:
        steps.append(
            f"fsync {Path(f'/proc/self/fd/{descriptor}').readlink().relative_to(tmp_path)}"
        )
        fsync(descriptor)

    def noted_replace(self: Path, target: Path) -> Path:
        steps.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    source = tmp_path / "source"
    source.write_bytes(b"x")
    folder.put_file("a/b/x", source, move=move)
    renamed = steps.index("rename")
    assert len(steps[:renamed]) == 1 and steps[0].startswith(
        "fsync source" if move else "fsync store/.incoming/"
    )
    assert set(steps[renamed + 1 :]) >= {"fsync store/a/b", "fsync store/a", "fsync store"}


def test_a_deleted_object_takes_its_empty_folders_along(folder: FolderStore) -> None:
    folder.put_bytes("a/b/c/x", b"1")
    folder.put_bytes("a/y", b"2")
    folder.delete("a/b/c/x")
    assert not (folder.root / "a" / "b").exists()
    folder.delete("a/y")
    assert sorted(path.name for path in folder.root.iterdir()) == [".incoming"]


def test_puts_survive_deletes_that_remove_their_folder(folder: FolderStore) -> None:
    failures: list[Exception] = []

    def put_and_delete_object(name: str) -> None:
        try:
            for _ in range(150):
                folder.put_bytes(f"deep/er/{name}", b"x")
                folder.delete(f"deep/er/{name}")
        except Unavailable as error:
            failures.append(error)

    threads = [threading.Thread(target=put_and_delete_object, args=(f"t{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_full_disk_is_an_outage_and_leaves_nothing(
    folder: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_disk_full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", raise_disk_full)
    with pytest.raises(ServiceDiskFull, match="No space left on device"):
        folder.put_bytes("a/x", b"x")
    monkeypatch.undo()
    assert folder.stat("a/x") is None
    assert list((folder.root / ".incoming").iterdir()) == []


def test_a_folder_on_a_full_disk_is_told_by_the_check(
    folder: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.check_store_usable()
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_bavail=10, f_frsize=4096))
    with pytest.raises(ServiceDiskFull, match="no room"):
        folder.check_store_usable()


def test_a_folder_that_is_gone_is_an_outage(tmp_path: Path) -> None:
    folder = FolderStore(tmp_path / "nowhere")
    with pytest.raises(Unavailable, match="nowhere"):
        folder.check_store_usable()


def test_only_old_strays_of_crashed_writers_are_removed(folder: FolderStore) -> None:
    incoming = folder.root / ".incoming"
    (incoming / "old").write_bytes(b"x")
    (incoming / "new").write_bytes(b"x")
    os.utime(incoming / "old", (time.time() - 90_000,) * 2)
    folder.create_folder_or_bucket()
    assert [path.name for path in incoming.iterdir()] == ["new"]


def test_a_folder_has_no_signed_urls(folder: FolderStore) -> None:
    folder.put_bytes("a/x", b"1")
    assert folder.make_download_url("a/x", 60, {}) is None


def test_an_object_cut_while_it_is_read_is_corruption(folder: FolderStore) -> None:
    folder.put_bytes("a/x", b"x" * 3_000_000)
    chunks = folder.read("a/x")
    next(chunks)
    os.truncate(folder.root / "a" / "x", 1_500_000)
    with pytest.raises(StoredObjectDamaged, match="shorter"):
        b"".join(chunks)


@pytest.mark.campaign
def test_two_gigabytes_are_moved_in_constant_time_and_copied_at_disk_speed(
    folder: FolderStore, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    block = os.urandom(1 << 20)
    with source.open("wb") as handle:
        for _ in range(2048):
            handle.write(block)
        handle.flush()
        began = time.perf_counter()
        os.fsync(handle.fileno())
        disk_s = time.perf_counter() - began
    began = time.perf_counter()
    folder.put_file("a/copied", source)
    copied_s = time.perf_counter() - began
    inode = source.stat().st_ino
    began = time.perf_counter()
    folder.put_file("a/moved", source, move=True)
    moved_s = time.perf_counter() - began
    print(f"2 GiB: fsync alone {disk_s:.2f} s, copied {copied_s:.2f} s, moved {moved_s:.3f} s")
    moved = folder.get_local_path("a/moved")
    assert moved is not None and moved.stat().st_ino == inode  # renamed, not copied
