"""Predictions on held-out parts, in files of a result and tensors of a snapshot.

In memory they are (version, task) → the problem's predictions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from safetensors.numpy import save
from safetensors.torch import load
from torch import Tensor

from core.contract.jobs.job_result import MeasuredVersion, TaskPredictionsByteRange
from core.learning.problems.problem import P, PredictionBatch, Problem

Kept = Mapping[tuple[MeasuredVersion, int], PredictionBatch]
_PREFIX = "answers"
_FILE = f"{_PREFIX}.bin"


def write_prediction_file(
    folder: Path, predictions_by_cell: Kept
) -> list[TaskPredictionsByteRange]:
    """Write predictions of several tasks to one file in `folder`, and describe the parts of the
    file.

    A file for each task would cost more than its few hundred bytes. It is not synced to disk: a
    machine that loses it loses the attempt as well.
    """
    described = []
    with (folder / _FILE).open("wb") as file:
        for (version, task), predictions in sorted(
            predictions_by_cell.items(), key=lambda one: one[0]
        ):
            begin = file.tell()
            # By NumPy: the writer for torch takes twice as long for the same bytes.
            file.write(
                save({name: each.numpy() for name, each in predictions.to_tensors().items()})
            )
            described.append(
                TaskPredictionsByteRange(
                    version=version, task=task, file=_FILE, begin=begin, end=file.tell()
                )
            )
    return described


def parse_stored_predictions(data: bytes, problem: Problem[P]) -> P:
    """Read one task's predictions from its bytes in a file of `write_prediction_file`."""
    return problem.read_prediction_from_tensors(load(data))


def convert_predictions_to_snapshot_tensors(predictions_by_cell: Kept) -> dict[str, Tensor]:
    """Convert predictions to named tensors of a snapshot."""
    tensors: dict[str, Tensor] = {}
    for (version, task), predictions in predictions_by_cell.items():
        tensors |= {
            f"{_PREFIX}.{version}.{task}.{name}": tensor
            for name, tensor in predictions.to_tensors().items()
        }
    return tensors


def pop_predictions_from_snapshot(
    tensors: dict[str, Tensor], problem: Problem[P]
) -> dict[tuple[MeasuredVersion, int], PredictionBatch]:
    """Take predictions out of a snapshot's tensors.

    Older snapshots have none, because predictions were not stored then.
    """
    grouped: dict[tuple[MeasuredVersion, int], dict[str, Tensor]] = {}
    for version in get_args(MeasuredVersion):
        # A copy of the names: the loop removes entries.
        for key in [name for name in tensors if name.startswith(f"{_PREFIX}.{version}.")]:
            task, name = key.split(".")[2:]
            grouped.setdefault((version, int(task)), {})[name] = tensors.pop(key)
    return {key: problem.read_prediction_from_tensors(named) for key, named in grouped.items()}
