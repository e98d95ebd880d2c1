"""Predictions on held-out parts, in files of a result and tensors of a snapshot.

In memory they are (version, task) → the problem's predictions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from safetensors.numpy import save_file
from safetensors.torch import load
from torch import Tensor

from core.contract.jobs.job_result import MeasuredVersion, PredictionsFile
from core.learning.problems.problem import P, Prediction, Problem

Kept = Mapping[tuple[MeasuredVersion, int], Prediction]
_PREFIX = "answers"


def write_prediction_files(folder: Path, kept: Kept) -> list[PredictionsFile]:
    """Write each to a file in `folder/answers` for `core.ingest.answers`, and describe the files.

    They are small and many, so they are not synced to disk: a machine that loses them loses the
    attempt as well.
    """
    (folder / _PREFIX).mkdir(parents=True, exist_ok=True)
    described = []
    for (version, task), predictions in sorted(kept.items(), key=lambda one: one[0]):
        name = f"{_PREFIX}/{version}.{task}.safetensors"
        # By NumPy: the writer for torch takes twice as long for the same bytes.
        save_file(
            {name: each.numpy() for name, each in predictions.to_tensors().items()}, folder / name
        )
        described.append(PredictionsFile(version=version, task=task, file=name))
    return described


def read_prediction_file(path: Path, problem: Problem[P]) -> P:
    """Read a file that `write_prediction_files` wrote, now or in an older version of the code."""
    # Read and not mapped, which takes longer for a file of a few hundred bytes.
    return problem.read_prediction(load(path.read_bytes()))


def convert_predictions_to_tensors(kept: Kept) -> dict[str, Tensor]:
    """Return predictions as tensors of a snapshot, by name."""
    tensors: dict[str, Tensor] = {}
    for (version, task), predictions in kept.items():
        tensors |= {
            f"{_PREFIX}.{version}.{task}.{name}": tensor
            for name, tensor in predictions.to_tensors().items()
        }
    return tensors


def pop_stored_predictions(
    tensors: dict[str, Tensor], problem: Problem[P]
) -> dict[tuple[MeasuredVersion, int], Prediction]:
    """Remove the predictions from a snapshot's tensors, and return them.

    Older snapshots have none, because predictions were not stored then.
    """
    grouped: dict[tuple[MeasuredVersion, int], dict[str, Tensor]] = {}
    for version in get_args(MeasuredVersion):
        # A copy of the names: the loop removes entries.
        for key in [name for name in tensors if name.startswith(f"{_PREFIX}.{version}.")]:
            task, name = key.split(".")[2:]
            grouped.setdefault((version, int(task)), {})[name] = tensors.pop(key)
    return {key: problem.read_prediction(named) for key, named in grouped.items()}
