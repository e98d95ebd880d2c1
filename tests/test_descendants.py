"""The processes below one are found, their children too."""

import os
import signal
import subprocess

from tests.descendants import list_descendants


def test_children_and_their_children_are_listed_until_they_end() -> None:
    command = ["sh", "-c", "sleep 600 & echo $!; wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        below = int(shell.stdout.readline())
        try:
            assert {shell.pid, below} <= {process.pid for process in list_descendants(os.getpid())}
            assert [process.pid for process in list_descendants(shell.pid)] == [below]
        finally:
            os.kill(below, signal.SIGKILL)
    assert list_descendants(shell.pid) == []
    assert shell.pid not in {process.pid for process in list_descendants(os.getpid())}
