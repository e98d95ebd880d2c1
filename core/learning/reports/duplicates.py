"""Near duplicates among measured images: they are judged as one, never by each other.

A classifier that was fitted to one frame of a burst knows the next frame, whatever it knows of the
class. So folds and votes treat groups of near duplicates as one image (`core.statistics.near_duplicates`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from core.learning.data.dataset import Dataset
from core.statistics import near_duplicates
from core.statistics.near_duplicates import Hashes


def group_near_duplicates(parts: Sequence[tuple[int, Hashes | None]]) -> Tensor:
    """Group near-duplicate images over several datasets: a group number per image, int64 [n].

    Args:
        parts: number of images of each part and their hashes uint64 [N, 2]; without hashes, each
            image is a group of its own.
    """
    # Grouped over all parts at once: duplicates may lie in different tasks.
    known_hashes = [hashes for _, hashes in parts if hashes is not None]
    numbers = (
        torch.from_numpy(near_duplicates.group_near_duplicate_hashes(np.concatenate(known_hashes)))
        if known_hashes
        else None
    )
    groups: list[Tensor] = []
    # Images without hashes get numbers behind all groups, so that none joins another.
    at, next_number = 0, 0 if numbers is None else len(numbers)
    for count, hashes in parts:
        if hashes is None or numbers is None:
            groups.append(torch.arange(next_number, next_number + count))
            next_number += count
        else:
            groups.append(numbers[at : at + count])
            at += count
    return torch.cat(groups) if groups else torch.zeros(0, dtype=torch.int64)


def read_or_compute_hashes(traces: Path | None, part: str, data: Dataset) -> Hashes | None:
    """Read the stored perceptual hashes of a dataset's images, uint64 [N, 2], or compute them.

    None if there are neither, because the part has features in place of images.

    Args:
        traces: the task's file of traces, as `core.ingest.findings.traces` writes it.
        part: train or held_out.
    """
    stored = None if traces is None else _read_stored_hashes(traces, part)
    # Hashes of other images would make groups of rows that have nothing in common.
    if stored is not None and len(stored) == len(data):
        return stored
    return (
        near_duplicates.hash_images_perceptually(data.images.numpy())
        if data.images.dtype == torch.uint8
        else None
    )


def _read_stored_hashes(traces: Path, part: str) -> Hashes | None:
    try:
        with safe_open(traces, "numpy") as file:
            hashes: Hashes = file.get_tensor(part)
    except (OSError, SafetensorError):
        # The file is damaged: near duplicates are found from the images, if they are there.
        return None
    return hashes if hashes.dtype == np.uint64 and hashes.shape[1:] == (2,) else None
