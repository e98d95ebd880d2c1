"""Answers on held-out parts as files of a result, and as tensors of a snapshot: version → task → `Answers`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

from safetensors.torch import save_file
from torch import Tensor

from core.learn.evaluate import Answers
from core.learn.state import load_tensors
from core.protocol.job_result import AnswersFile, Measured

Kept = Mapping[tuple[Measured, int], Answers]
_PREFIX = "answers"
_LATER = ("targets", "leaders", "leader_counts")
"""Tensors that answers from before lack."""


def files(folder: Path, kept: Kept) -> list[AnswersFile]:
    """Write each to a file in `folder/answers`, and describe them; `core.ingest.answers` reads them.

    They are small and many, so nobody waits for the disk: a machine that loses them loses the attempt as well.
    """
    (folder / _PREFIX).mkdir(parents=True, exist_ok=True)
    found = []
    for (version, task), said in sorted(kept.items(), key=lambda one: one[0]):
        name = f"{_PREFIX}/{version}.{task}.safetensors"
        save_file(_tensors(said), folder / name)
        found.append(AnswersFile(version=version, task=task, file=name))
    return found


def read_file(path: Path) -> Answers:
    """Read answers that `files` has written, of today or older."""
    tensors = load_tensors(path)
    return Answers(tensors["rows"], tensors["probabilities"], *(tensors.get(name) for name in _LATER))


def to_tensors(kept: Kept) -> dict[str, Tensor]:
    """The tensors by which a snapshot keeps them."""
    found: dict[str, Tensor] = {}
    for (version, task), said in kept.items():
        found |= {f"{_PREFIX}.{version}.{task}.{name}": tensor for name, tensor in _tensors(said).items()}
    return found


def taken_from(tensors: dict[str, Tensor]) -> dict[tuple[Measured, int], Answers]:
    """The answers among a snapshot's tensors, which loses them; none in one from before answers were kept."""
    found: dict[tuple[Measured, int], Answers] = {}
    for version, task in _named(list(tensors)):
        key = f"{_PREFIX}.{version}.{task}"
        found[version, task] = Answers(
            tensors.pop(f"{key}.rows"),
            tensors.pop(f"{key}.probabilities"),
            *(tensors.pop(f"{key}.{name}", None) for name in _LATER),
        )
    return found


def _tensors(answers: Answers) -> dict[str, Tensor]:
    """The tensors of an answer by name, without those that it lacks."""
    return {name: tensor for name, tensor in vars(answers).items() if tensor is not None}


def _named(names: list[str]) -> Iterator[tuple[Measured, int]]:
    for version in get_args(Measured):
        for name in names:
            if name.startswith(f"{_PREFIX}.{version}.") and name.endswith(".rows"):
                yield version, int(name.split(".")[2])
