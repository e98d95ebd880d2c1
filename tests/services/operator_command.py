"""The operator's command, run as an operator runs it: in a process of its own, on one machine's
data directory.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tools import service


def housekeeping(environment: Mapping[str, str], *words: str | Path) -> str:
    """The output of `python -m tools.housekeeping WORDS`; raises AssertionError when it does not end
    with 0.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tools.housekeeping", *words],
        cwd=service.ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
