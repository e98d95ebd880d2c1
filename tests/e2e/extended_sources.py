"""A copy of the sources with what a contributor may add: a reader, an export format, a problem.

The reader and the format are those of `docs/howto/`, written as these documents say. The problem is
`tests/core/learning/problems/digit_sums.py`.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools import service

ROOT = service.ROOT
SOURCES = ("api", "core", "worker", "migrations", "client", "tools")
HOWTOS = ("add-a-reader.md", "add-an-export-format.md")
PROBLEM = ROOT / "tests/core/learning/problems/digit_sums.py"
PROBLEMS = Path("core/learning/problems")
PROBLEM_LINE = "    classification,\n"
"""The line of the registry before that of the new problem."""


def copy_and_extend(folder: Path) -> None:
    """Copy the sources of service and client into a folder, and add everything there."""
    for name in SOURCES:
        # With what is compiled already: the times of the files stay.
        shutil.copytree(ROOT / name, folder / name)
    for name in ("alembic.ini", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    for name in HOWTOS:
        _follow_howto((ROOT / "docs" / "howto" / name).read_text(), folder)
    _add_problem(folder / PROBLEMS)
    subprocess.run([sys.executable, "-m", "tools.client_sync"], cwd=folder, check=True)


def _follow_howto(text: str, folder: Path) -> None:
    """Do what a how-to says: write its file, and put each line with a plus after the line
    above it.
    """
    path, code = re.findall(r"Write `(\S+)`:\n\n```python\n(.*?)```", text, re.DOTALL)[0]
    (folder / path).write_text(code)
    path, diff = re.findall(r"Add it to `(\S+)`:\n\n```diff\n(.*?)```", text, re.DOTALL)[0]
    lines = (folder / path).read_text().splitlines()
    before = ""
    for line in diff.splitlines():
        if line.startswith("+"):
            lines.insert(lines.index(before) + 1, line[1:])
        before = line[1:]
    (folder / path).write_text("\n".join(lines) + "\n")


def _add_problem(problems: Path) -> None:
    """Put the problem beside `classification.py`, and its line into the registry."""
    shutil.copy(PROBLEM, problems)
    registry = problems / "registry.py"
    text = registry.read_text()
    assert text.count(PROBLEM_LINE) == 1
    new_line = f"    {PROBLEM.stem},\n"
    registry.write_text(text.replace(PROBLEM_LINE, PROBLEM_LINE + new_line))
