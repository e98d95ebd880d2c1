"""The folders that a job leaves: snapshots to go on from, the best state so far, and the result.

A snapshot is written beside its place and renamed, so that a folder by its final name is whole. A best state and
a result are tensors (one safetensors file per part) and `result.json`; an event says when one is whole.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from core.learn.numerics import Numerics
from core.learn.state import load_tensors, save_tensors, sync
from core.protocol.document import Document
from core.protocol.job_result import LearnedNetwork, ResultPart
from core.protocol.manifest import Environment
from core.protocol.snapshot import SnapshotDocument

SNAPSHOT_JSON = "snapshot.json"
SNAPSHOT_TENSORS = "tensors.safetensors"

Part = tuple[str, str, Mapping[str, Tensor]]
"""Name, type, tensors."""


def read_snapshot(folder: Path) -> tuple[dict[str, Tensor], SnapshotDocument]:
    """A snapshot that `write_snapshot` has written. Raises ValueError for one of another format."""
    document = SnapshotDocument.from_json(json.loads((folder / SNAPSHOT_JSON).read_text()))
    return load_tensors(folder / SNAPSHOT_TENSORS), document


def write_snapshot(out: Path, tensors: Mapping[str, Tensor], document: SnapshotDocument) -> Path:
    """Write a snapshot to a folder in `out`; returns the folder."""
    final, temporary = out / f"snapshot-{document.number}", out / f".snapshot-{document.number}"
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.rmtree(final, ignore_errors=True)
    temporary.mkdir(parents=True)
    save_tensors(tensors, temporary / SNAPSHOT_TENSORS)
    _write_json(temporary / SNAPSHOT_JSON, document)
    sync(temporary)
    temporary.rename(final)
    sync(out)
    return final


def write_parts(
    out: Path,
    name: str,
    parts: Iterable[Part],
    document: LearnedNetwork,
    write_beside: Callable[[Path], Mapping[str, object]] = lambda folder: {},
) -> Path:
    """Write all parts, and `document` with a list of them as `result.json`, to `out/name`; returns the folder.

    write_beside: writes further files to the folder, and returns the fields of the document that list them.
    """
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "parts").mkdir(parents=True)
    listed: list[ResultPart] = []
    for part, kind, tensors in parts:
        save_tensors(tensors, folder / "parts" / f"{part}.safetensors")
        listed.append(ResultPart(name=part, type=kind, file=f"parts/{part}.safetensors"))
    told: dict[str, object] = {"parts": listed}
    told |= write_beside(folder)
    _write_json(folder / "result.json", document.model_copy(update=told))
    sync(folder / "parts")
    sync(folder)
    return folder


def environment(device: torch.device, numerics: Numerics) -> Environment:
    """Conditions besides its inputs that the numbers of a run depend on."""
    return Environment(
        torch=torch.__version__,
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        threads=torch.get_num_threads(),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        precision=numerics.format,
        deterministic=numerics.deterministic,
        nondeterministic=list(numerics.operations),
    )


def _write_json(path: Path, document: Document) -> None:
    with path.open("w", encoding="utf-8") as file:
        json.dump(document.to_json(), file, allow_nan=False, sort_keys=True, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
