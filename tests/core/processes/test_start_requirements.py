"""A process that cannot work does not start, and says why in one sentence with what to do."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import ProcessCannotStart
from core.files import descriptors
from core.processes import start_requirements
from core.processes.start_requirements import prepare_data_directory_and_check_startup
from core.settings import Settings
from tests.damaged_database import damage_head, damage_table


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def settings(tmp_path: Path, _sqlite_template: bytes) -> Settings:
    made = Settings(data_dir=tmp_path / "data", database_url="")
    made.data_dir.mkdir()
    (made.data_dir / "perennial.db").write_bytes(_sqlite_template)
    return made


def test_a_sound_place_is_taken_and_left_as_it_was(settings: Settings) -> None:
    assert prepare_data_directory_and_check_startup(settings) is None
    assert {path.name.partition("-")[0] for path in settings.data_dir.iterdir()} == {"perennial.db"}


def test_few_descriptors_are_told_with_how_to_have_more(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = settings.reserved_descriptors + 2 * start_requirements.LEAST_CONNECTIONS
    monkeypatch.setattr(descriptors, "increase_file_descriptor_limit", lambda wanted: needed)
    prepare_data_directory_and_check_startup(settings)
    monkeypatch.setattr(descriptors, "increase_file_descriptor_limit", lambda wanted: 64)
    with pytest.raises(
        ProcessCannotStart, match=r"may open 64 files, and needs 96 .*ulimit -n 4096"
    ):
        prepare_data_directory_and_check_startup(settings)


@pytest.mark.parametrize("where", ["mkdir", "open"])
def test_a_directory_that_cannot_be_written_is_told(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def read_only(*_given: object, **_named: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(*((Path, "mkdir") if where == "mkdir" else (os, "open")), read_only)
    with pytest.raises(
        ProcessCannotStart, match=r"cannot be written: Read-only file system\. .*PERENNIAL_DATA_DIR"
    ):
        prepare_data_directory_and_check_startup(settings)


def test_a_full_disk_is_started_on_once_its_reserve_is_released(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (settings.data_dir / "reserve").write_bytes(b"x")
    monkeypatch.setattr("core.files.disk_reserve._count_free_disk_bytes", lambda _folder: 0)

    def raise_disk_full(*_given: object, **_named: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "open", raise_disk_full)
    prepare_data_directory_and_check_startup(settings)
    assert not (settings.data_dir / "reserve").exists()


def test_a_damaged_database_is_told_with_what_is_damaged_and_what_to_do(settings: Settings) -> None:
    damage_table(settings.data_dir / "perennial.db", "jobs")
    with pytest.raises(ProcessCannotStart, match=r"is damaged: table jobs: .*perennial restore"):
        prepare_data_directory_and_check_startup(settings)
    damage_head(settings.data_dir / "perennial.db")
    with pytest.raises(ProcessCannotStart, match="file is not a database"):
        prepare_data_directory_and_check_startup(settings)
