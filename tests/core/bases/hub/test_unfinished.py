"""Unfinished downloads are kept for some time, within limits.

A download that is still being written is never removed.
"""

import os
from pathlib import Path

from core.bases.hub import unfinished


def write_part_file(root: Path, repository: str, size: int, age_s: float) -> Path:
    path = (
        unfinished.get_hub_repository_download_folder(root, repository)
        / "commit"
        / "model.safetensors.part"
    )
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * size)
    at = path.stat().st_mtime - age_s
    os.utime(path, (at, at))
    return path


def test_what_nobody_goes_on_with_goes_with_its_folders(tmp_path: Path) -> None:
    old, new = (
        write_part_file(tmp_path, "timm/old", 5, 100.0),
        write_part_file(tmp_path, "timm/new", 5, 10.0),
    )
    unfinished.remove_old_unfinished_hub_downloads(tmp_path, 50.0, 1000)
    assert (old.exists(), new.exists()) == (False, True)
    assert [folder.name for folder in tmp_path.iterdir()] == ["timm--new"]


def test_the_oldest_go_until_the_rest_is_within_the_bytes(tmp_path: Path) -> None:
    made = [write_part_file(tmp_path, f"timm/{age}", 40, age) for age in (30.0, 20.0, 10.0)]
    unfinished.remove_old_unfinished_hub_downloads(tmp_path, 1000.0, 100)
    assert [path.exists() for path in made] == [False, True, True]


def test_a_download_that_is_under_way_stays(tmp_path: Path) -> None:
    path = write_part_file(tmp_path, "timm/net", 50, 100.0)
    with unfinished.open_and_lock_file_to_append(path):
        unfinished.remove_old_unfinished_hub_downloads(tmp_path, 1.0, 0)
        assert path.exists()
    unfinished.remove_old_unfinished_hub_downloads(tmp_path, 1.0, 0)
    assert not path.exists()
