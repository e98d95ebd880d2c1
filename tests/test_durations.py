"""The tables of durations at the end of a run, the files that begin early for what they say, and
how services end.
"""

import subprocess
import sys
import time

import psutil
import pytest

from tests.plugins.durations import describe_durations
from tests.plugins.endings import end_services
from tests.plugins.file_order import LONGEST_FIRST, SHARED, TESTS


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


def test_each_start_of_a_group_has_files_and_each_group_one_that_begins_early() -> None:
    files = [path.relative_to(TESTS.parent).as_posix() for path in TESTS.rglob("test_*.py")]
    starts = [start for group in SHARED for start in group]
    assert [start for start in starts if not any(file.startswith(start) for file in files)] == []
    early = [f"tests/{name}" for name in LONGEST_FIRST]
    assert [group for group in SHARED if not any(file.startswith(group) for file in early)] == []


@pytest.mark.slow
def test_of_the_children_of_a_run_the_launchers_are_killed_with_their_processes() -> None:
    stay = [sys.executable, "-c", "import time; time.sleep(600)"]
    launch = [sys.executable, "-c", f"import subprocess; subprocess.run({stay!r})"]
    with (
        subprocess.Popen([*launch, "worker.launcher"]) as launcher,
        subprocess.Popen(stay) as other,
    ):
        seen = psutil.Process(launcher.pid)
        deadline = time.monotonic() + 60
        while not (started := seen.children()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        end_services([seen, psutil.Process(other.pid)])
        assert launcher.wait(60) < 0
        assert psutil.wait_procs(started, 60)[1] == []
        assert other.poll() is None
        other.kill()
