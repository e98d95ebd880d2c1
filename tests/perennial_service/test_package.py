"""The package of the wheel, in a checkout: it finds the service's code from any directory."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOOK = """
import subprocess, sys
import perennial_service, core
print(core.__file__, flush=True)
subprocess.run([sys.executable, "-c", "import core; print(core.__file__)"], check=True, cwd="/")
"""


def test_the_code_comes_before_modules_of_the_directory_and_its_children_find_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "core.py").write_text("raise SystemExit('of the directory')")
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [str(ROOT / "core" / "__init__.py")] * 2, done.stderr
