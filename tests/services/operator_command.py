"""The operator's command on one machine's data directory, without a process of its own: importing
the command takes seconds.
"""

import io
import os
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from tools.housekeeping import main


def run_housekeeping(environment: Mapping[str, str], *words: str | Path) -> str:
    """Return what `python -m tools.housekeeping WORDS` prints with these settings.

    Raises:
        AssertionError: its exit status is not 0.
    """
    output, umask = io.StringIO(), os.umask(0)
    os.umask(umask)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output):
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            status = main([str(word) for word in words])
        finally:
            os.umask(umask)
    assert status == 0, output.getvalue()
    return output.getvalue()
