"""Batches for the tests of accepting them: small batches, to a service that knows one method and
one architecture.
"""

from itertools import count
from pathlib import Path
from typing import Any

from core.ingest.inspect import ArchiveSummary
from core.tasks.submitted_batch import SpooledBatch

_contents = count(1)
CATALOGUE: dict[str, Any] = {
    "methods": {
        "er": {
            "schema": {},
            "defaults": {"buffer": 5},
            "scenarios": ["data", "task", "class"],
            "accepts": {},
        }
    },
    "architectures": {"small-cnn": {"family": "small-cnn", "schema": {}, "defaults": {}}},
    "presets": {"from-random": {}},
    "recipe": {"schema": {}, "defaults": {"method": {"name": "er"}, "epochs": 10, "seed": 0}},
}


def make_batch(
    folder: Path, number: int = 0, name: str | None = None, **options: Any
) -> SpooledBatch:
    """Make an upload of 9 bytes, `folder/upload-NUMBER`, which holds five images of two classes.

    Args:
        options: fields of the batch. `content` is the digest of what is in it, by default one
            that no other call has.
    """
    path = folder / f"upload-{number}"
    path.write_bytes(b"archive %d" % number)
    content = options.pop("content", f"{next(_contents):064x}")
    found = ArchiveSummary({"a": 3, "b": 2}, 5, 0, 1, "zip", "folders", False, content=content)
    return SpooledBatch(
        path, f"{number:064x}", 9, found, name, options.pop("recipe", {}), **options
    )
