"""State that a method retains between steps, tasks and processes.

A `MethodState` has typed sections (`buffer`, `curvature`, `exemplars`, `own`), each with named tensors,
JSON values and random generators. Snapshots and versions store all of it, so a method that holds
its state here can be killed and rebuilt from bytes at any step. Files are safetensors without
`__metadata__` (its order is random and would change digests) and JSON.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from core.contract.manifest import FEATURES, PER_TASK, STATISTICS, TOTALS

# Stored versions name their parts by these types: rename none.
TYPES = ("buffer", "curvature", "exemplars", STATISTICS, FEATURES, TOTALS, "projection", "own")
_GENERATOR = "generator."


class MethodStateSection:
    """Tensors, JSON values and random generators of one type of a method's state."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.json: dict[str, Any] = {}
        self._generators: dict[str, torch.Generator] = {}
        self._host_copies: dict[str, tuple[Tensor, int, Tensor]] = {}

    def __bool__(self) -> bool:
        # A generator counts: its position is state even while the section has no tensor.
        return bool(self.tensors or self.json or self._generators)

    def get_random_generator(self, name: str, seed: int) -> torch.Generator:
        """Return the CPU random generator `name`, seeded on first use and continued from then
        on.
        """
        if name not in self._generators:
            self._generators[name] = torch.Generator().manual_seed(seed)
        return self._generators[name]

    def clear_section(self) -> None:
        """Remove all content of this state section."""
        self.tensors.clear()
        self.json.clear()
        self._generators.clear()
        self._host_copies.clear()

    def get_tensor_on_cpu(self, name: str) -> Tensor:
        """Return the tensor `name` on the CPU: itself, or a cached copy that is renewed after a
        change.

        A copy makes the host wait for the device, so values that the host branches on are held on
        both sides.
        """
        tensor = self.tensors[name]
        if tensor.device.type == "cpu":
            return tensor
        source, version, copy = self._host_copies.get(name, (None, 0, tensor))
        # Stale after the tensor was replaced or changed in place.
        if source is not tensor or version != tensor._version:
            copy = tensor.cpu()
            self.cache_tensor_cpu_copy(name, copy)
        return copy

    def cache_tensor_cpu_copy(self, name: str, copy: Tensor) -> None:
        """Store `copy`, a CPU tensor with the values of the tensor `name`, for
        `get_tensor_on_cpu`.
        """
        tensor = self.tensors[name]
        self._host_copies[name] = (tensor, tensor._version, copy)

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the section's tensors on the CPU by name; generators as bytes under
        `generator.<name>`.
        """
        out = {name: t.detach().cpu().contiguous() for name, t in self.tensors.items()}
        out |= {_GENERATOR + name: g.get_state() for name, g in self._generators.items()}
        return out

    def replace_content(
        self,
        tensors: Mapping[str, Tensor],
        json: Mapping[str, Any],
        device: torch.device,
        *,
        copy: bool = True,
    ) -> None:
        """Replace the section's content by JSON values and by tensors from `to_tensors`.

        Args:
            copy: copy tensors that are on the device already, since methods change most of their
                state in place.
        """
        self.clear_section()
        self.json.update(json)
        for name, tensor in tensors.items():
            if name.startswith(_GENERATOR):
                generator = torch.Generator()
                generator.set_state(tensor.clone())
                self._generators[name.removeprefix(_GENERATOR)] = generator
            else:
                self.tensors[name] = tensor.to(device, copy=copy)


class MethodState:
    """All state of a learning method, in sections by type.

    `state["buffer"]` creates an empty section when there is none. Raises KeyError for an unknown
    type.
    """

    def __init__(self) -> None:
        self._sections: dict[str, MethodStateSection] = {}

    def __getitem__(self, kind: str) -> MethodStateSection:
        if kind not in TYPES:
            raise KeyError(f"unknown type of state {kind!r}: one of {', '.join(TYPES)}")
        return self._sections.setdefault(kind, MethodStateSection())

    def iterate_filled_sections(self) -> Iterator[tuple[str, MethodStateSection]]:
        """Yield the state sections with content, in the order of `TYPES`."""
        for kind in TYPES:
            if self._sections.get(kind):
                yield kind, self._sections[kind]

    def collect_tensors_by_type(
        self, without: Collection[str] = ()
    ) -> dict[str, dict[str, Tensor]]:
        """Collect the state's tensors by type and name, except for types in `without`."""
        tensors = {
            kind: section.to_tensors()
            for kind, section in self.iterate_filled_sections()
            if kind not in without
        }
        return {kind: named for kind, named in tensors.items() if named}

    def collect_json_by_type(self, without: Collection[str] = ()) -> dict[str, dict[str, Any]]:
        """Collect the state's JSON values by type, except for types in `without`."""
        return {
            kind: dict(s.json)
            for kind, s in self.iterate_filled_sections()
            if s.json and kind not in without
        }

    def replace_content(
        self,
        parts: Mapping[str, Mapping[str, Tensor]],
        json: Mapping[str, Mapping[str, Any]],
        device: torch.device,
        keep: Collection[str] = (),
    ) -> None:
        """Replace all state but the types in `keep`. Raises KeyError for an unknown type."""
        self._sections = {kind: section for kind, section in self._sections.items() if kind in keep}
        for kind in (*parts, *json):
            # What is stored of single tasks is replaced and never changed in place. There may be
            # hundreds, of which a job only reads the sums.
            copy = kind not in PER_TASK
            self[kind].replace_content(parts.get(kind, {}), json.get(kind, {}), device, copy=copy)


def group_tensors_by_state_type(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Group a snapshot's tensors `<type>/<name>` by type: type → tensors by name."""
    parts: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        kind, _, name = key.partition("/")
        parts.setdefault(kind, {})[name] = tensor
    return parts


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Save tensors to a safetensors file without `__metadata__`, and wait until it is on disk.

    Two names may share memory; each is written in full.
    """
    pointers: set[int] = set()
    out: dict[str, Tensor] = {}
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        # safetensors refuses shared or partly used storage; a copy also detaches slices of larger
        # buffers.
        if tensor.untyped_storage().nbytes() != tensor.nbytes or tensor.data_ptr() in pointers:
            tensor = tensor.clone()
        pointers.add(tensor.data_ptr())
        out[name] = tensor
    save_file(out, path)
    sync_path_to_disk(path)


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Load a safetensors file into CPU tensors (memory-mapped where the platform supports it)."""
    return load_file(path, device="cpu")


def sync_path_to_disk(path: Path) -> None:
    """Sync a file's content, or a folder's entries, to disk (fsync)."""
    # `fsync` takes folders too where they are opened for reading: a new name is safe only then.
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def renumber_classes_in_task_tensors(
    tensors: Mapping[str, Tensor], numbers: Sequence[int]
) -> dict[str, Tensor]:
    """Renumber the classes in the tensors of a part with one task's feature sums or features.

    Args:
        tensors: of the type statistics (`<task>.rows`) or features (`<task>.classes`).
        numbers: new number of each class.
    """
    present, renumbered = torch.tensor(numbers), dict(tensors)
    for name, tensor in tensors.items():
        prefix, _, field = name.rpartition(".")
        if field == "classes":
            renumbered[name] = present[tensor]
        elif field == "rows":
            # A task's sums are in the order of its classes' numbers.
            rows, order = present[tensor].sort()
            renumbered[name] = rows
            for column in (f"{prefix}.cross", f"{prefix}.counts"):
                renumbered[column] = tensors[column][..., order]
    return renumbered
