"""Version of the learning code: one digest over path and content of every `core/learning/**/*.py`.

The digest names the catalogue's file and is part of every manifest. It is computed without
importing the learning code.
"""

import hashlib
from functools import cache
from pathlib import Path

_LEARN = Path(__file__).parents[1] / "learning"


@cache
def compute_learning_code_digest() -> str:
    """Compute the sha256 (hexadecimal) of the learning code that this process runs."""
    return digest_python_files(_LEARN)


def digest_python_files(folder: Path) -> str:
    """Compute the sha256 over all Python files below a folder, ordered by path.

    Each file adds `<path>\\0<sha256 of the content>\\n`. Paths are relative to the folder, with
    forward slashes.
    """
    digest = hashlib.sha256()
    # Sorted as text: paths compare differently on systems that ignore case.
    for path in sorted(folder.rglob("*.py"), key=lambda p: p.relative_to(folder).as_posix()):
        name = path.relative_to(folder).as_posix()
        # No path has a NUL, so that two different sets of files cannot give the same bytes.
        digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()
