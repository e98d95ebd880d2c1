"""The tables of durations at the end of a run, and the files that begin early for what they say."""

from tests.plugins.durations import describe_durations
from tests.plugins.file_order import LONGEST_FIRST, TESTS


def test_durations_are_summed_by_folder_and_long_files_are_named() -> None:
    durations = [
        ("tests/a/test_x.py::test_1", 1.0),
        ("tests/a/test_x.py::test_1", 2.0),
        ("tests/a/test_y.py::test_2[case::1]", 4.0),
        ("tests/b/test_z.py::test_3", 20.0),
    ]
    assert describe_durations(durations) == [
        "    20.0 s      1 tests  tests/b",
        "     7.0 s      2 tests  tests/a",
        "    27.0 s      3 tests  in all",
        "files of 15 s and more:",
        "    20.0 s  tests/b/test_z.py",
    ]


def test_every_file_that_begins_early_exists() -> None:
    assert [name for name in LONGEST_FIRST if not (TESTS / name).is_file()] == []
