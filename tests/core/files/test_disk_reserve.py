"""Room is kept on the disk, and given up for what must be possible without any."""

import os
from pathlib import Path

import pytest

from core.files import disk_reserve

SIZE = 1 << 20


def test_it_takes_real_room_and_only_once(tmp_path: Path) -> None:
    assert disk_reserve.make_disk_reserve_file(
        tmp_path, SIZE
    ) and disk_reserve.make_disk_reserve_file(tmp_path, SIZE)
    [file] = tmp_path.iterdir()
    assert file.stat().st_size == SIZE and file.stat().st_blocks * 512 >= SIZE


def test_none_is_made_where_none_is_wanted_or_little_room_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not disk_reserve.make_disk_reserve_file(tmp_path, 0)
    monkeypatch.setattr(
        disk_reserve, "_count_free_disk_bytes", lambda _folder: disk_reserve.SPARE * SIZE - 1
    )
    assert not disk_reserve.make_disk_reserve_file(tmp_path, SIZE)
    assert list(tmp_path.iterdir()) == []


def test_it_is_released_on_a_full_disk_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_reserve.make_disk_reserve_file(tmp_path, SIZE)
    assert not disk_reserve.remove_disk_reserve_if_disk_full(tmp_path) and list(tmp_path.iterdir())
    monkeypatch.setattr(
        disk_reserve, "_count_free_disk_bytes", lambda _folder: disk_reserve.FULL_BYTES - 1
    )
    assert disk_reserve.remove_disk_reserve_if_disk_full(tmp_path) and not list(tmp_path.iterdir())
    assert not disk_reserve.remove_disk_reserve_if_disk_full(tmp_path)


def test_a_disk_that_reserves_nothing_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_disk_full(*_given: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", raise_disk_full)
    assert (
        not disk_reserve.make_disk_reserve_file(tmp_path, SIZE) and list(tmp_path.iterdir()) == []
    )


def test_without_an_allocation_by_the_system_zeros_take_the_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    assert disk_reserve.make_disk_reserve_file(tmp_path, SIZE + 5)
    file = (tmp_path / disk_reserve.NAME).stat()
    assert file.st_size == SIZE + 5 and file.st_blocks * 512 >= SIZE + 5
