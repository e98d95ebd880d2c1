"""The folders that a job leaves: snapshots to go on from, the best state so far, and the result.

A snapshot is written beside its place and renamed, so that a folder by its final name is whole. A best state and
a result are tensors (one safetensors file per part) and `result.json`; an event says when one is whole.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from core.learn.loop import Snapshot
from core.learn.state import load_tensors, save_tensors, sync

SNAPSHOT_JSON = "snapshot.json"
SNAPSHOT_TENSORS = "tensors.safetensors"

Part = tuple[str, str, Mapping[str, Tensor]]
"""Name, type, tensors."""


def read_snapshot(folder: Path) -> Snapshot:
    """A snapshot that `write_snapshot` has written."""
    content = json.loads((folder / SNAPSHOT_JSON).read_text())
    return Snapshot(load_tensors(folder / SNAPSHOT_TENSORS), content)


def write_snapshot(out: Path, number: int, snapshot: Snapshot, facts: Mapping[str, Any]) -> Path:
    """Write `snapshot`, and what else a resumed run must know, to a folder in `out`; returns the folder."""
    final, temporary = out / f"snapshot-{number}", out / f".snapshot-{number}"
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.rmtree(final, ignore_errors=True)
    temporary.mkdir(parents=True)
    save_tensors(snapshot.tensors, temporary / SNAPSHOT_TENSORS)
    _write_json(temporary / SNAPSHOT_JSON, {**facts, "number": number, **snapshot.json})
    sync(temporary)
    temporary.rename(final)
    sync(out)
    return final


def write_parts(out: Path, name: str, parts: Iterable[Part], facts: Mapping[str, Any]) -> Path:
    """Write all parts and `result.json`, which lists them beside `facts`, to `out/name`; returns the folder."""
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "parts").mkdir(parents=True)
    listed: list[dict[str, str]] = []
    for part, kind, tensors in parts:
        save_tensors(tensors, folder / "parts" / f"{part}.safetensors")
        listed.append({"name": part, "type": kind, "file": f"parts/{part}.safetensors"})
    _write_json(folder / "result.json", {"parts": listed, **facts})
    sync(folder / "parts")
    sync(folder)
    return folder


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with path.open("w", encoding="utf-8") as file:
        json.dump(content, file, allow_nan=False, sort_keys=True, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
