"""Stored images of a method's memory: each image is stored once, in a pack of its task.

A memory (`buffer`, `exemplars`) changes in every version, but most of its images stay. So its own
part has no images: for every item it has the row in the pack of the item's task. A pack is a part
of its own, such as `buffer.images.3`: the different uint8 images [P, S, S, C] of task 3. A later
version names the same pack as long as the pack has all images of the task that are still
remembered. When a task's data is deleted, its packs are deleted.

Images leave a memory in any order, so some rows of a pack become unused; older versions still need
them. A pack is rewritten when it has more than `UNUSED_ROWS` unused rows for each used one. So a
job fetches at most 21 times the size of its memory, and at most one image is rewritten for 20 that
left. No more images can leave than came: successive versions store at most 1.05 times the images
that came.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from core.contract.jobs.job_spec import LocalVersionPartFile
from core.contract.manifest import PER_TASK, REST, TOTALS
from core.learning.state import TYPES, MethodState, load_tensors, renumber_classes_in_task_tensors
from core.learning.training.output_folders import Part

UNUSED_ROWS = 20
"""Maximum number of unused rows in a pack for each used one."""
IMAGES, ROWS, TASKS = "images", "rows", "tasks"


def read_method_state(
    parts: Iterable[LocalVersionPartFile], class_numbers: Sequence[Sequence[int]] = ()
) -> dict[str, dict[str, Tensor]]:
    """Restore a method's state from a version's parts, with replayed images from their packs.

    A memory stored before packs existed has its images itself. Raises ValueError for a memory
    without one of its packs.

    Args:
        class_numbers: maps that parts name whose numbers of classes are former ones.
    """
    listed = list(parts)
    # Packs and parts of single tasks have longer names than their type.
    path_by_type = {part.type: part.path for part in listed if part.name == part.type}
    kinds = [kind for kind in TYPES if kind in path_by_type]
    state = {
        kind: _restore_replayed_images_from_packs(
            load_tensors(path_by_type[kind]), load_replay_image_packs(kind, listed)
        )
        for kind in kinds
    }
    for part in listed:
        if part.type in PER_TASK:
            tensors = load_tensors(part.path)
            if part.numbers is not None:
                tensors = renumber_classes_in_task_tensors(tensors, class_numbers[part.numbers])
            state.setdefault(part.type, {}).update(tensors)
    return state


def load_replay_image_packs(kind: str, parts: Iterable[LocalVersionPartFile]) -> dict[int, Tensor]:
    """Load the image packs of one type of replay memory: task → images [P, S, S, C].

    The files may vanish once they are opened.
    """
    start = _format_image_pack_part_name(kind, "")
    named = {part.name: part.path for part in parts if part.name.startswith(start)}
    return {
        int(name.removeprefix(start)): load_tensors(path)[IMAGES] for name, path in named.items()
    }


def build_method_state_parts(
    state: MethodState, task: int, packs: Mapping[str, Mapping[int, Tensor]]
) -> list[Part]:
    """List the parts of a method's state that a version stores, except for feature sums over all
    tasks.

    Args:
        task: number of the new task.
        packs: the parent's packs by type and task.
    """
    parts: list[Part] = []
    for kind, tensors in state.collect_tensors_by_type(without=(TOTALS,)).items():
        # Parts of earlier tasks are stored with the versions that learned them.
        if kind in PER_TASK:
            parts += select_state_parts_of_task(kind, task, tensors)
        else:
            parts += build_parts_of_state_type(kind, tensors, packs[kind])
    return parts


def build_parts_of_state_type(
    kind: str, tensors: Mapping[str, Tensor], packs: Mapping[int, Tensor]
) -> list[Part]:
    """Build the parts of one type of state: its tensors, and a pack of replayed images for each
    task.

    `packs`: the parent's packs by task. One that still serves is used again unchanged.
    """
    if IMAGES not in tensors or not len(tensors[IMAGES]):
        return [(kind, kind, tensors)]
    images, tasks = tensors[IMAGES], tensors[TASKS]
    rows = torch.empty_like(tasks)
    pack_parts: list[Part] = []
    for task in tasks.unique().tolist():  # type: ignore[no-untyped-call]
        items = (tasks == task).nonzero().squeeze(1)
        # A pack for each task, so that deleting a task's data deletes whole files.
        pack, rows[items] = _build_or_reuse_image_pack(images, items, packs.get(task))
        pack_parts.append((_format_image_pack_part_name(kind, task), kind, {IMAGES: pack}))
    without_images = {name: tensor for name, tensor in tensors.items() if name != IMAGES}
    return [(kind, kind, {**without_images, ROWS: rows}), *pack_parts]


def select_state_parts_of_task(kind: str, task: int, tensors: Mapping[str, Tensor]) -> list[Part]:
    """Select one task's parts of a per-task state: those that later jobs read, and the remainder if
    any.
    """
    of_this_task = {name: t for name, t in tensors.items() if name.startswith(f"{task}.")}
    # A part of its own, so that later jobs do not fetch it.
    remainder = {n: t for n, t in of_this_task.items() if n.startswith(f"{task}.{REST}.")}
    read = {name: t for name, t in of_this_task.items() if name not in remainder}
    parts: list[Part] = [(f"{kind}.{task}", kind, read)]
    return [*parts, (f"{kind}.{task}.{REST}", kind, remainder)] if remainder else parts


def _build_or_reuse_image_pack(
    images: Tensor, items: Tensor, stored: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Build a pack of distinct images for a replay memory, or reuse the stored pack; also return
    item rows.
    """
    digests = [_digest_image(images[item]) for item in items.tolist()]
    distinct_count = len(set(digests))
    if stored is not None:
        # By content: an item has no other identity that survives several versions.
        row = {_digest_image(image): at for at, image in enumerate(stored)}
        # The stored pack serves if it has all images, and not too many unused rows.
        if row.keys() >= set(digests) and len(row) - distinct_count <= UNUSED_ROWS * distinct_count:
            return stored, torch.tensor([row[digest] for digest in digests])
    row, first = {}, list[int]()
    for digest, item in zip(digests, items.tolist(), strict=True):
        if digest not in row:
            row[digest] = len(first)
            first.append(item)
    return images[first], torch.tensor([row[digest] for digest in digests])


def _restore_replayed_images_from_packs(
    tensors: dict[str, Tensor], packs: Mapping[int, Tensor]
) -> dict[str, Tensor]:
    """Restore the replayed images of a state part from the image packs that its rows point to."""
    if ROWS not in tensors:
        return tensors
    rows, tasks = tensors.pop(ROWS), tensors[TASKS]
    images: Tensor | None = None
    for task in tasks.unique().tolist():  # type: ignore[no-untyped-call]
        if task not in packs:
            raise ValueError(
                f"the memory names images of task {task}, but the version has no pack of them"
            )
        pack = packs[task]
        if images is None:
            images = pack.new_empty((len(rows), *pack.shape[1:]))
        items = (tasks == task).nonzero().squeeze(1)
        images[items] = pack[rows[items]]
    assert images is not None, "a memory without items holds its images itself"
    return {**tensors, IMAGES: images}


def _format_image_pack_part_name(kind: str, task: int | str) -> str:
    return f"{kind}.{IMAGES}.{task}"


def _digest_image(image: Tensor) -> bytes:
    return hashlib.sha256(image.reshape(-1).numpy().data).digest()
