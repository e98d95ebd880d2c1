"""Permissions of the service's files: only its user has access.

The service never restricts directories that belong to others.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.files.permissions import make_data_and_new_files_private
from core.settings import Settings


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def read_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_data_directory_and_all_in_it_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"
    assert make_data_and_new_files_private(folder) is None
    (folder / "file").touch()
    assert (read_mode(folder), read_mode(folder / "file")) == (0o700, 0o600)
    assert read_mode(Settings(data_dir=folder).make_folder("spool")) == 0o700


def test_a_data_directory_from_before_is_narrowed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for name in ("store", "spool", "lost+found"):
        (folder / name).mkdir(parents=True)
    (folder / "perennial.db").touch()
    assert read_mode(folder) == 0o755
    assert make_data_and_new_files_private(folder) is None
    assert read_mode(folder) == 0o700
    assert (folder / "perennial.db").exists()


def test_a_directory_that_others_use_too_stays_open_and_that_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "srv"
    (folder / "website").mkdir(parents=True)
    said = make_data_and_new_files_private(folder)
    assert (
        said is not None
        and "'website'" in said
        and "PERENNIAL_DATA_DIR" in said
        and str(folder) in said
    )
    assert read_mode(folder) == 0o755


def test_a_directory_like_tmp_is_never_closed(tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    assert make_data_and_new_files_private(folder) is not None
    assert read_mode(folder) == 0o1777


def test_a_directory_of_another_user_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()

    def raise_permission_error(_path: Path, _mode: int) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "chmod", raise_permission_error)
    said = make_data_and_new_files_private(folder)
    assert said is not None and "0755" in said
