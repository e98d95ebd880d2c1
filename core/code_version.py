"""Which learning code this is: the sha256 of `core/learn/**/*.py`.

It names the catalogue's file, is written into every manifest, and tells whether a snapshot was made by
the code that would resume it. Computed without importing any of that code.
"""

import hashlib
from functools import cache
from pathlib import Path

_LEARN = Path(__file__).parent / "learn"


@cache
def code_version() -> str:
    """The sha256 (hexadecimal) over the files' contents, in the order of their relative paths."""
    digest = hashlib.sha256()
    for path in sorted(_LEARN.rglob("*.py"), key=lambda p: p.relative_to(_LEARN).as_posix()):
        digest.update(path.read_bytes())
    return digest.hexdigest()
