"""Failpoints: each is somewhere in the code, and kills once and only where it is armed."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from core.failpoints import POINTS
from worker.attempts.job_failpoints import FAILPOINTS

ROOT = Path(__file__).parents[2]
COME_BY = (
    "from core.failpoints import hit_failpoint; hit_failpoint('submit-stored'); print('went on')"
)


def run_failpoint_code(**environment: str) -> subprocess.CompletedProcess[str]:
    settings = {
        name: value for name, value in os.environ.items() if name != "PERENNIAL_KILL_POINTS"
    }
    return subprocess.run(
        [sys.executable, "-c", COME_BY],
        cwd=ROOT,
        env={**settings, **environment},
        text=True,
        capture_output=True,
    )


def test_every_point_is_hit_somewhere_and_no_other_is_named() -> None:
    named = {
        name
        for folder in ("api", "core", "worker")
        for file in (ROOT / folder).rglob("*.py")
        for name in re.findall(r'hit_failpoint\("([^"]+)"\)', file.read_text())
    }
    assert named | set(FAILPOINTS.values()) == set(POINTS)


@pytest.mark.parametrize("armed", ["submit-stored", "claim-committed"])
def test_an_armed_point_kills_the_first_who_comes_by_and_nobody_else(
    tmp_path: Path, armed: str
) -> None:
    (tmp_path / armed).touch()
    hit = armed == "submit-stored"
    first, second = (run_failpoint_code(PERENNIAL_KILL_POINTS=str(tmp_path)) for _ in range(2))
    assert (first.returncode, first.stdout) == ((-signal.SIGKILL, "") if hit else (0, "went on\n"))
    assert (second.returncode, second.stdout) == (0, "went on\n")
    assert (tmp_path / armed).exists() is not hit


def test_without_a_folder_nothing_happens() -> None:
    assert run_failpoint_code().stdout == "went on\n"
