"""The version of the learning code."""

import hashlib
import subprocess
import sys
from pathlib import Path

from core.code_version import code_version

LEARN = Path(__file__).parents[2] / "core" / "learn"


def test_it_is_the_digest_of_all_learning_code() -> None:
    names = sorted(path.relative_to(LEARN).as_posix() for path in LEARN.rglob("*.py"))
    content = b"".join((LEARN / name).read_bytes() for name in names)
    assert code_version() == hashlib.sha256(content).hexdigest()


def test_it_does_not_load_that_code() -> None:
    code = "import sys, core.code_version as c; c.code_version(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=LEARN.parents[1]).returncode == 0
