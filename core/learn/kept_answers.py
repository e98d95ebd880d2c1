"""Predictions on held-out parts, in files of a result and tensors of a snapshot.

In memory they are version → task → `Answers`.
"""

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
"""Tensors that older files lack."""


def write_files(folder: Path, kept: Kept) -> list[AnswersFile]:
    """Write each to a file in `folder/answers` for `core.ingest.answers`, and describe the files.

    They are small and many, so they are not synced to disk: a machine that loses them loses the
    attempt as well.
    """
    (folder / _PREFIX).mkdir(parents=True, exist_ok=True)
    described = []
    for (version, task), predictions in sorted(kept.items(), key=lambda one: one[0]):
        name = f"{_PREFIX}/{version}.{task}.safetensors"
        save_file(_select_tensors(predictions), folder / name)
        described.append(AnswersFile(version=version, task=task, file=name))
    return described


def read_file(path: Path) -> Answers:
    """Read a file that `write_files` wrote, now or in an older version of the code."""
    tensors = load_tensors(path)
    return Answers(
        tensors["rows"], tensors["probabilities"], *(tensors.get(name) for name in _LATER)
    )


def to_tensors(kept: Kept) -> dict[str, Tensor]:
    """Return predictions as tensors of a snapshot, by name."""
    tensors: dict[str, Tensor] = {}
    for (version, task), predictions in kept.items():
        tensors |= {
            f"{_PREFIX}.{version}.{task}.{name}": tensor
            for name, tensor in _select_tensors(predictions).items()
        }
    return tensors


def taken_from(tensors: dict[str, Tensor]) -> dict[tuple[Measured, int], Answers]:
    """Remove the predictions from a snapshot's tensors, and return them.

    Snapshots from before predictions were stored have none.
    """
    predictions: dict[tuple[Measured, int], Answers] = {}
    # A copy of the names: the loop removes entries.
    for version, task in _parse_names(list(tensors)):
        key = f"{_PREFIX}.{version}.{task}"
        predictions[version, task] = Answers(
            tensors.pop(f"{key}.rows"),
            tensors.pop(f"{key}.probabilities"),
            *(tensors.pop(f"{key}.{name}", None) for name in _LATER),
        )
    return predictions


def _select_tensors(answers: Answers) -> dict[str, Tensor]:
    """Return the tensors of predictions by name, without those that are None."""
    return {name: tensor for name, tensor in vars(answers).items() if tensor is not None}


def _parse_names(names: list[str]) -> Iterator[tuple[Measured, int]]:
    """Yield the version and task of predictions among tensor names."""
    for version in get_args(Measured):
        for name in names:
            # Every stored prediction has rows, so each pair is found once.
            if name.startswith(f"{_PREFIX}.{version}.") and name.endswith(".rows"):
                yield version, int(name.split(".")[2])
