"""The record of verified objects in a process, and for how long it is trusted."""

import os
from pathlib import Path

import pytest

from core.storage.objects import make_file_change_tag
from core.storage.verified import RecentVerifications


def test_an_object_is_verified_until_it_changes_or_is_dropped() -> None:
    found = RecentVerifications()
    assert not found.is_verified("a", "1")
    found.remember_verified("a", "1")
    assert found.is_verified("a", "1") and not found.is_verified("a", "2")
    found.forget_verified_name("a")
    found.forget_verified_name("a")
    assert not found.is_verified("a", "1")


def test_of_many_objects_those_added_last_are_remembered() -> None:
    found = RecentVerifications(limit=3)
    for name in ("a", "b", "c", "a", "d"):
        found.remember_verified(name, "1")
    assert [name for name in "abcd" if found.is_verified(name, "1")] == ["a", "c", "d"]


def test_what_was_verified_is_forgotten_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found, now = RecentVerifications(age_s=60), [1000.0]
    monkeypatch.setattr("core.storage.verified.time.monotonic", lambda: now[0])
    found.remember_verified("a", "1")
    now[0] += 59
    found.replace_verified_tag("a", "2")  # which verifies nothing
    assert found.is_verified("a", "2")
    now[0] += 2
    assert not found.is_verified("a", "2")


def test_an_object_without_a_tag_is_never_trusted() -> None:
    found = RecentVerifications()
    found.remember_verified("a", "")
    assert not found.is_verified("a", "")


def test_a_file_that_somebody_wrote_to_has_another_tag_though_he_put_the_time_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"x")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert make_file_change_tag(path.stat()) != make_file_change_tag(before)
