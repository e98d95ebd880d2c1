"""The contents of all versions of a data directory: parts by digest, and memories row by row.

A memory is a replay buffer or exemplars. Its encoding may change, so each row is identified by a
digest of its image, label, task and other values. The rows are in the order in which the method
holds them. The database and the store are read directly, without the service.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load
from sqlalchemy import create_engine, text

from core.settings import Settings
from core.storage import ObjectStorage, open_object_store
from tests.before_after.answers import MEMORY_TYPES

Json = dict[str, Any]
Tensors = dict[str, np.ndarray]
_PARTS = """
    SELECT models.name, versions.number, parts.name, parts.type, parts.sha256
    FROM parts JOIN versions ON versions.id = parts.version_id JOIN models ON models.id = versions.model_id
    WHERE parts.deleted_at IS NULL AND models.deleted_at IS NULL
    ORDER BY models.name, versions.number, parts.position, parts.name
"""


def read_stored_parts(data: Path) -> Json:
    """Return the parts and memories of all versions.

    Their form is `{"model v3": {"parts": {name: sha256}, "memory": {type: {"rows": […],
    "other": {name: digest}}}}}`.

    Args:
        data: a data directory whose service has stopped. Settings of this process, such as
            `PERENNIAL_DATABASE_URL`, apply.
    """
    settings = Settings(data_dir=data)
    engine = create_engine(settings.resolved_database_url)
    with engine.connect() as connection:
        rows = connection.execute(text(_PARTS)).fetchall()
    engine.dispose()
    store = open_object_store(settings)
    found: Json = {}
    memories: dict[tuple[str, str], dict[str, Tensors]] = {}
    for model, number, name, kind, sha256 in rows:
        version = f"{model} v{number}"
        entry = found.setdefault(version, {"parts": {}, "memory": {}})
        if kind in MEMORY_TYPES:
            memories.setdefault((version, kind), {})[name] = load(_read_blob(store, sha256))
        else:
            entry["parts"][name] = sha256
    for (version, kind), parts in memories.items():
        found[version]["memory"][kind] = digest_memory(join_memory(kind, parts))
    return found


def join_memory(kind: str, parts: dict[str, Tensors]) -> Tensors:
    """Return a memory with its images, whichever way they are stored.

    Either its one part holds them beside everything else, or each task's images are a part
    `{kind}.images.{task}` of their own, and `rows` says which of these images an item has.
    """
    tensors = dict(parts[kind])
    rows = tensors.pop("rows", None)
    if rows is not None:
        packs = {
            task: parts[f"{kind}.images.{task}"]["images"]
            for task in set(tensors["tasks"].tolist())
        }
        pairs = zip(tensors["tasks"].tolist(), rows.tolist(), strict=True)
        tensors["images"] = np.stack([packs[task][row] for task, row in pairs])
    return tensors


def digest_memory(tensors: Tensors) -> Json:
    """Return a digest of each row of a memory, and of each tensor that is not made of rows, by
    name.
    """
    count = len(tensors["labels"]) if "labels" in tensors else 0
    columns = {name: tensor for name, tensor in sorted(tensors.items()) if _has_rows(tensor, count)}
    rows = [
        _digest_tensors({name: tensor[row] for name, tensor in columns.items()})
        for row in range(count)
    ]
    other = {
        name: _digest_tensors({name: t})
        for name, t in sorted(tensors.items())
        if name not in columns
    }
    return {"columns": list(columns), "rows": rows, "other": other}


def _has_rows(tensor: np.ndarray, count: int) -> bool:
    return count > 0 and tensor.ndim > 0 and len(tensor) == count


def _digest_tensors(tensors: Tensors) -> str:
    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        digest.update(f"{name} {tensor.dtype} {tensor.shape}\n".encode())
        digest.update(np.ascontiguousarray(tensor).tobytes())
    return digest.hexdigest()[:16]


def _read_blob(store: ObjectStorage, sha256: str) -> bytes:
    return b"".join(store.read(f"blobs/{sha256[:2]}/{sha256}"))
