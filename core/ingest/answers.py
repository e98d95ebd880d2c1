"""The answers file: what a version says of a task's held-out images, in the order of their dataset.

safetensors with `rows` int32 [N], classes as rows of the head that was asked, and `probabilities` float16 [N]
of these rows. Files of today also have `targets` [N], the true rows, and `leaders` with `leader_counts` [N]: the rows
of each image that score higher than all rows before them, by which the best of the first k classes is known. A job
process writes the file (`core.learn.kept_answers`); it is read here without torch.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from core.safetensors_header import read_header

Rows = npt.NDArray[np.int32]
Probabilities = npt.NDArray[np.float16]
_INTEGERS = {"U8": "<u1", "I16": "<i2", "I32": "<i4"}
_TYPES = {
    "rows": {"I32": "<i4"},
    "probabilities": {"F16": "<f2"},
    "targets": _INTEGERS,
    "leaders": _INTEGERS,
    "leader_counts": _INTEGERS,
}
_OLDEST = {"rows", "probabilities"}
"""Tensors that every file has."""


@dataclass(frozen=True)
class RankedAnswers:
    """Answers with the true rows, and with the best row among the first k for every k.

    Attributes:
        rows, targets: [N], what was answered and what is true, as rows of the same head.
        leaders: rows of image after image, ascending: each scores higher than all rows before it.
        leader_counts: [N], at least 1 each.
    """

    rows: Rows
    targets: Rows
    leaders: Rows
    leader_counts: Rows

    def best_of(self, known: int) -> Rows:
        """Find the best of the head's first `known` ≥ 1 rows, for every image."""
        if not len(self.leader_counts):
            return self.rows
        begins = np.cumsum(self.leader_counts) - self.leader_counts
        within = np.add.reduceat((self.leaders < known).astype(np.int64), begins)
        best: Rows = self.leaders[begins + within - 1]
        return best


def open_answers(path: Path) -> tuple[Rows, Probabilities]:
    """Rows ≥ 0 and probabilities, one of each for every image. Raises ValueError when the file is not one."""
    tensors = _read_tensors(path)
    return tensors["rows"].astype(np.int32), tensors["probabilities"].astype(np.float16)


def open_ranked_answers(path: Path) -> RankedAnswers | None:
    """Read answers with their rankings; None where the file is from before these were kept.

    Raises:
        ValueError: the file is no file of answers.
    """
    tensors = _read_tensors(path)
    if not {"targets", "leaders", "leader_counts"} <= tensors.keys():
        return None
    counts = tensors["leader_counts"].astype(np.int32)
    same_length = len(tensors["targets"]) == len(counts) == len(tensors["rows"])
    if not same_length or int(counts.sum()) != len(tensors["leaders"]) or not (counts > 0).all():
        raise ValueError(f"{path.name} is no file of answers: its leaders do not belong to its images")
    return RankedAnswers(
        *(tensors[name].astype(np.int32) for name in ("rows", "targets", "leaders", "leader_counts"))
    )


def _read_tensors(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    tensors: dict[str, npt.NDArray[np.generic]] = {}
    with path.open("rb") as file:
        for tensor in read_header(path):
            code = _TYPES.get(tensor.name, {}).get(tensor.dtype)
            if code is None or len(tensor.shape) != 1:
                raise ValueError(
                    f"{path.name} is no file of answers: {tensor.name} is {tensor.dtype} {tensor.shape}"
                )
            file.seek(tensor.begin)
            tensors[tensor.name] = np.frombuffer(file.read(tensor.end - tensor.begin), code)
    if not tensors.keys() >= _OLDEST or len(tensors["rows"]) != len(tensors["probabilities"]):
        raise ValueError(f"{path.name} is no file of answers: it has {sorted(tensors)}")
    return tensors
