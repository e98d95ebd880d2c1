"""The answers file: what a version says of a task's held-out images, in the order of their dataset.

safetensors with `rows` int32 [N], classes as rows of the head that was asked, and `probabilities` float16 [N]
of these rows. A job process writes it (`core.learn.kept_answers`); it is read here without torch.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from core.safetensors_header import read_header

Rows = npt.NDArray[np.int32]
Probabilities = npt.NDArray[np.float16]
_TYPES = {"rows": ("I32", "<i4"), "probabilities": ("F16", "<f2")}


def open_answers(path: Path) -> tuple[Rows, Probabilities]:
    """Rows ≥ 0 and probabilities, one of each for every image. Raises ValueError when the file is not one."""
    found: dict[str, npt.NDArray[np.generic]] = {}
    with path.open("rb") as file:
        for tensor in read_header(path):
            dtype, code = _TYPES.get(tensor.name, ("", ""))
            if tensor.dtype != dtype or len(tensor.shape) != 1:
                raise ValueError(
                    f"{path.name} is no file of answers: {tensor.name} is {tensor.dtype} {tensor.shape}"
                )
            file.seek(tensor.begin)
            found[tensor.name] = np.frombuffer(file.read(tensor.end - tensor.begin), code)
    if set(found) != set(_TYPES) or len(found["rows"]) != len(found["probabilities"]):
        raise ValueError(f"{path.name} is no file of answers: it has {sorted(found)}")
    return found["rows"].astype(np.int32), found["probabilities"].astype(np.float16)
