"""The client as others install it: alone, small and quick to import."""

import ast
import json
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Any

import pytest

from perennial import __version__
from tests.loading import walk_statements

ROOT = Path(__file__).parents[2]
MOST_BYTES = 12_000_000
MOST_TIMES_HTTPX = 2.0
"""Importing the client may take so many times as long as importing the HTTP library that it uses.
"""
PROJECT = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())["project"]
LOOK = """
import json, sys, time
start = time.process_time()
import perennial
bare = time.process_time() - start
from perennial import Perennial
whole = time.process_time() - start
Perennial("key", base_url="http://127.0.0.1:9").models
print(json.dumps({"bare": bare, "whole": whole, "modules": sorted(sys.modules), "file": perennial.__file__}))
"""
HTTPX = """
import json, time
start = time.process_time()
import httpx2
print(json.dumps(time.process_time() - start))
"""


# It compares times. In each build tests/tools/release/test_distributions.py installs the wheel, and the
# tests below say what it imports.
@pytest.mark.campaign
@pytest.mark.slow
def test_the_wheel_in_an_empty_environment_is_small_and_quick(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    wheels, source = tmp_path / "wheels", tmp_path / "client"  # a build writes beside its sources
    shutil.copytree(
        ROOT / "client", source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    )
    # Not isolated: the environment has setuptools, which otherwise is installed once more.
    build = [*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(wheels)]
    subprocess.run([*build, str(source)], check=True)
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    wheel = str(next(wheels.glob("perennial_client-*.whl")))
    install = [
        *pip,
        "--python",
        str(python),
        "install",
        "-q",
        "-c",
        str(ROOT / "constraints.txt"),
        wheel,
    ]
    subprocess.run(install, check=True)
    looks, httpx_s = [], []
    for _ in range(5):  # in turns: both meet the same machine, and the least of each counts
        looks.append(_run_program(python, LOOK, tmp_path))
        httpx_s.append(_run_program(python, HTTPX, tmp_path))
    assert home in Path(str(looks[0]["file"])).parents
    assert not {"torch", "numpy", "click", "rich"} & set(looks[0]["modules"])
    assert min(look["bare"] for look in looks) <= min(httpx_s) / 2
    assert min(look["whole"] for look in looks) <= MOST_TIMES_HTTPX * min(httpx_s)
    site = next((home / "lib").glob("python*/site-packages"))
    size = sum(
        file.stat().st_size for file in site.rglob("*") if file.is_file() and file.suffix != ".pyc"
    )
    assert size <= MOST_BYTES, f"{size:,} bytes"
    command = [home / "bin" / "perennial", "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == f"perennial, version {__version__}"


def _run_program(python: Path, program: str, folder: Path) -> Any:
    done = subprocess.run(
        [python, "-c", program], cwd=folder, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_it_imports_nothing_of_the_service() -> None:
    allowed = {
        *sys.stdlib_module_names,
        "perennial",
        "click",
        "httpcore2",
        "httpx2",
        "platformdirs",
        "rich",
        "keyring",
    }
    found = set()
    for file in (ROOT / "client").rglob("*.py"):
        # The adapters in `pack` name their extras themselves.
        if "pack" in file.relative_to(ROOT / "client").parts:
            continue
        for node in walk_statements(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += (
                [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            )
            found |= {
                f"{file.name}: {name}" for name in names if name.partition(".")[0] not in allowed
            }
    assert found == set()


def test_it_asks_for_four_packages_and_none_of_them_is_large() -> None:
    names = {line.partition(">")[0] for line in PROJECT["dependencies"]}
    assert names == {"click", "httpcore2", "httpx2", "platformdirs", "rich"}
