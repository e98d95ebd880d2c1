"""Which learning code this is: one digest over the path and content of every `core/learn/**/*.py`.

It names the catalogue's file and stands in every manifest. Computed without importing that code.
"""

import hashlib
from functools import cache
from pathlib import Path

_LEARN = Path(__file__).parent / "learn"


@cache
def code_version() -> str:
    """The sha256 (hexadecimal) of the learning code that this process runs."""
    return digest_of(_LEARN)


def digest_of(folder: Path) -> str:
    """sha256 over `<path>\\0<sha256 of the content>\\n` of every Python file below a folder, in the order of
    their paths.

    Paths are relative to the folder, with forward slashes.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py"), key=lambda p: p.relative_to(folder).as_posix()):
        name = path.relative_to(folder).as_posix()
        digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()
