"""Compile the test files of a fresh checkout once.

Each process of pytest-xdist imports every test file, and pytest rewrites its assertions where no
compiled file is there yet. In a fresh checkout all processes would do this for the same file at the
same moment. Here each of them compiles a share of the files first. The same holds for the constants
of the tested sources, from which Hypothesis draws: it keeps those of each file in `.hypothesis/`.
"""

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.assertion import rewrite
from hypothesis.internal.constants_ast import constants_from_module

TESTS = Path(__file__).parents[1]
SOURCES = ("api", "bench", "client", "core", "migrations", "perennial_service", "tools", "worker")


@pytest.hookimpl(trylast=True)  # Hypothesis must have started
def pytest_sessionstart(session: pytest.Session) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None or sys.dont_write_bytecode:
        return
    number, count = int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for path in sorted(TESTS.rglob("test_*.py"))[number::count]:
        compile_test(path, session.config)
    sources = (path for name in SOURCES for path in (TESTS.parent / name).rglob("*.py"))
    for path in sorted(sources)[number::count]:
        read_constants(path)


def read_constants(path: Path) -> None:
    """Let Hypothesis keep the constants of a file, if it does not have them."""
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    constants_from_module(module)


def compile_test(path: Path, config: pytest.Config) -> None:
    """Write the compiled file that pytest reads when it imports a test file.
    A file that is present and new enough stays.
    """
    folder = rewrite.get_cache_dir(path)
    compiled = folder / f"{path.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(path, compiled) is None:
        folder.mkdir(parents=True, exist_ok=True)
        status, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, status, compiled)
