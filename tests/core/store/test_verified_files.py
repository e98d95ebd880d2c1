"""Which files a process has verified."""

from pathlib import Path

from core.store.verified_files import VerifiedFiles


def test_a_file_is_verified_until_it_changes_or_is_dropped() -> None:
    files, path = VerifiedFiles(), Path("a")
    assert not files.has(path, (1, 2, 3))
    files.add(path, (1, 2, 3))
    assert files.has(path, (1, 2, 3)) and not files.has(path, (1, 2, 4))
    files.drop(path)
    files.drop(path)
    assert not files.has(path, (1, 2, 3))


def test_of_many_files_those_added_last_are_remembered() -> None:
    files = VerifiedFiles(limit=3)
    for name in ("a", "b", "c", "a", "d"):
        files.add(Path(name), (1, 1, 1))
    assert [name for name in "abcd" if files.has(Path(name), (1, 1, 1))] == ["a", "c", "d"]
