"""Compile the test files of a fresh checkout once.

Each process of pytest-xdist imports every test file, and pytest rewrites its assertions where no
compiled file is there yet. In a fresh checkout all processes would do this for the same file at the
same moment. Here each of them compiles a share of the files first.
"""

import os
import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

TESTS = Path(__file__).parents[1]


def pytest_sessionstart(session: pytest.Session) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None or sys.dont_write_bytecode:
        return
    number, count = int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for path in sorted(TESTS.rglob("test_*.py"))[number::count]:
        compile_test(path, session.config)


def compile_test(path: Path, config: pytest.Config) -> None:
    """Write the compiled file that pytest reads when it imports a test file, if it is missing or
    old.
    """
    folder = rewrite.get_cache_dir(path)
    compiled = folder / f"{path.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(path, compiled) is None:
        folder.mkdir(parents=True, exist_ok=True)
        status, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, status, compiled)
