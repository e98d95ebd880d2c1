"""The images of a method's memory as stored: every image once, in a pack of the task that brought it.

A memory (`buffer`, `exemplars`) changes in every version, most of its images do not. So its part holds all but the
images, and for every item the row of its task's pack. A pack is a part of its own, `buffer.images.3`: uint8 images
[P, S, S, C] of task 3, no two alike. A later version names the same bytes as long as the pack has all that is still
remembered of the task, and a task's images are deleted with its packs.

Images leave a memory in any order, so rows of a pack fall out of use; older versions still need them. A pack is written
anew only when more than `UNUSED_ROWS` of its rows are out of use for each row in use. So a job fetches at most 21 times
what its memory holds, and at most one image is written again for 20 that left. No more can leave than came: versions
that follow each other store at most 1.05 times the images that came.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from core.learn.output import Part
from core.learn.state import TYPES, load_tensors

UNUSED_ROWS = 20
"""Rows of a pack that may be out of use for each row in use."""
IMAGES, ROWS, TASKS = "images", "rows", "tasks"


def state_of(parts: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Tensor]]:
    """Type → tensors of the state that a version's parts hold; memories with their images [N, S, S, C].

    `parts`: name, type and path of each. A memory from before there were packs holds its images itself. Raises
    ValueError for a memory without one of its packs.
    """
    listed = list(parts)
    whole = {part["type"]: Path(part["path"]) for part in listed if part["name"] == part["type"]}
    kinds = [kind for kind in TYPES if kind in whole]
    return {kind: _joined(load_tensors(whole[kind]), packs_of(kind, listed)) for kind in kinds}


def packs_of(kind: str, parts: Iterable[Mapping[str, Any]]) -> dict[int, Tensor]:
    """Task → images [P, S, S, C] of the packs of a type's memory; files that may vanish once they are opened."""
    start = _name(kind, "")
    named = {part["name"]: Path(part["path"]) for part in parts if part["name"].startswith(start)}
    return {int(name.removeprefix(start)): load_tensors(path)[IMAGES] for name, path in named.items()}


def parts_of(kind: str, tensors: Mapping[str, Tensor], packs: Mapping[int, Tensor]) -> list[Part]:
    """A type's state as parts: itself, then, where it remembers images, a pack for each of their tasks.

    `packs`: the parent's, by task; those that still serve stay as they are.
    """
    if IMAGES not in tensors or not len(tensors[IMAGES]):
        return [(kind, kind, tensors)]
    images, tasks = tensors[IMAGES], tensors[TASKS]
    rows = torch.empty_like(tasks)
    found: list[Part] = []
    for task in tasks.unique().tolist():  # type: ignore[no-untyped-call]
        items = (tasks == task).nonzero().squeeze(1)
        pack, rows[items] = _pack(images, items, packs.get(task))
        found.append((_name(kind, task), kind, {IMAGES: pack}))
    rest = {name: tensor for name, tensor in tensors.items() if name != IMAGES}
    return [(kind, kind, {**rest, ROWS: rows}), *found]


def _pack(images: Tensor, items: Tensor, stored: Tensor | None) -> tuple[Tensor, Tensor]:
    """A pack with these items of the memory, the stored one if it serves, and the row in it of each."""
    wanted = [_digest(images[item]) for item in items.tolist()]
    used = len(set(wanted))
    if stored is not None:
        row = {_digest(image): at for at, image in enumerate(stored)}
        if row.keys() >= set(wanted) and len(row) - used <= UNUSED_ROWS * used:
            return stored, torch.tensor([row[digest] for digest in wanted])
    row, first = {}, list[int]()
    for digest, item in zip(wanted, items.tolist(), strict=True):
        if digest not in row:
            row[digest] = len(first)
            first.append(item)
    return images[first], torch.tensor([row[digest] for digest in wanted])


def _joined(tensors: dict[str, Tensor], packs: Mapping[int, Tensor]) -> dict[str, Tensor]:
    """The tensors of a part with the images that it names."""
    if ROWS not in tensors:
        return tensors
    rows, tasks = tensors.pop(ROWS), tensors[TASKS]
    images: Tensor | None = None
    for task in tasks.unique().tolist():  # type: ignore[no-untyped-call]
        if task not in packs:
            raise ValueError(f"the memory names images of task {task}, but the version has no pack of them")
        pack = packs[task]
        if images is None:
            images = pack.new_empty((len(rows), *pack.shape[1:]))
        items = (tasks == task).nonzero().squeeze(1)
        images[items] = pack[rows[items]]
    assert images is not None, "a memory without items holds its images itself"
    return {**tensors, IMAGES: images}


def _name(kind: str, task: int | str) -> str:
    return f"{kind}.{IMAGES}.{task}"


def _digest(image: Tensor) -> bytes:
    return hashlib.sha256(image.reshape(-1).numpy().data).digest()
