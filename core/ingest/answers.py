"""The answers file: what a version says of a task's held-out images, in the order of their dataset.

A job process writes a file for each task (`core.learn.kept_answers`). The store keeps all of an update as one blob
(`seal_files`), in which the answers on each task are encrypted with a key of that task. The key is in the task's row
and goes in the transaction that deletes its images: nobody can read these answers any more, and the blob stays for the
other tasks. Blobs of older releases hold the answers on one task as they are.

safetensors with `rows` int32 [N], classes as rows of the head that was asked, and `probabilities` float16 [N]
of these rows. Files of today also have `targets` [N], the true rows, and `leaders` with `leader_counts` [N]: the rows
of each image that score higher than all rows before them, by which the best of the first k classes is known. All is
read here without torch.
"""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from core.safetensors_header import Tensor, parse_header, read_header

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
NEW = "new"
"""Stands for the version that an update made, whose number is not known before it is published."""
_NONCE = "nonce"
_KEY_BYTES, _NONCE_BYTES = 32, 16


@dataclass(frozen=True)
class Place:
    """A version's answers on a task, in the blob that its cell names.

    Attributes:
        version, task: their numbers.
        key: of the task, hexadecimal; None: it has none.
    """

    version: int
    task: int
    key: str | None


def draw_key() -> str:
    """Draw a task's key."""
    return secrets.token_hex(_KEY_BYTES)


def seal_files(files: Mapping[str, Path], keys: Mapping[str, str], target: Path) -> None:
    """Write files of answers as one, each encrypted with its key.

    Args:
        files: `VERSION.TASK` → file; `NEW` stands for the version that is about to be published.
        keys: by the same names.
    """
    target.unlink(missing_ok=True)  # of an attempt before, which may be a cache's copy by now
    nonce = secrets.token_bytes(_NONCE_BYTES)
    sealed = {name: _crypt(path.read_bytes(), keys[name], nonce, name) for name, path in files.items()}
    save_file({**sealed, _NONCE: np.frombuffer(nonce, np.uint8)}, target)


def unseal(path: Path, place: Place) -> bytes:
    """Return a file of answers on one task, as a job process wrote it.

    Raises:
        ValueError: the blob does not hold these answers, or the task has no key any more.
    """
    tensors = _index(path, path.stat().st_mtime_ns)
    if _NONCE not in tensors:
        return path.read_bytes()
    names = [f"{of}.{place.task}" for of in (place.version, NEW)]
    name = next((name for name in names if name in tensors), None)
    if name is None or place.key is None:
        raise ValueError(f"{path.name} holds no answers of version {place.version} on task {place.task}")
    with path.open("rb") as file:
        nonce, sealed = (_read_bytes(file, tensors[of].begin, tensors[of].end) for of in (_NONCE, name))
    return _crypt(sealed, place.key, nonce, name).tobytes()


@lru_cache(maxsize=32)
def _index(path: Path, _changed_at: int) -> Mapping[str, Tensor]:
    """Return where each file lies in a blob: its readers ask for one task after the other."""
    return {tensor.name: tensor for tensor in read_header(path)}


def _read_bytes(file: BinaryIO, begin: int, end: int) -> bytes:
    file.seek(begin)
    return file.read(end - begin)


def _crypt(data: bytes, key: str, nonce: bytes, name: str) -> npt.NDArray[np.uint8]:
    """Add a key stream to data, or take it off.

    SHAKE256 over key, nonce and name, the first two of fixed length. A nonce serves one blob and a name one of its
    files, so that no two files share a stream.
    """
    stream = hashlib.shake_256(bytes.fromhex(key) + nonce + name.encode()).digest(len(data))
    mixed: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8) ^ np.frombuffer(stream, np.uint8)
    return mixed


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


def open_answers(path: Path, place: Place | None = None) -> tuple[Rows, Probabilities]:
    """Rows ≥ 0 and probabilities, one of each for every image. Raises ValueError when the file is not one.

    place: of a stored blob; None: the file is as a job process wrote it.
    """
    tensors = _read_tensors(path, place)
    return tensors["rows"].astype(np.int32), tensors["probabilities"].astype(np.float16)


def open_ranked_answers(path: Path, place: Place | None = None) -> RankedAnswers | None:
    """Read answers with their rankings; None where the file is from before these were kept.

    Args:
        place: as of `open_answers`.

    Raises:
        ValueError: the file is no file of answers.
    """
    tensors = _read_tensors(path, place)
    if not {"targets", "leaders", "leader_counts"} <= tensors.keys():
        return None
    counts = tensors["leader_counts"].astype(np.int32)
    same_length = len(tensors["targets"]) == len(counts) == len(tensors["rows"])
    if not same_length or int(counts.sum()) != len(tensors["leaders"]) or not (counts > 0).all():
        raise ValueError(f"{path.name} is no file of answers: its leaders do not belong to its images")
    return RankedAnswers(
        *(tensors[name].astype(np.int32) for name in ("rows", "targets", "leaders", "leader_counts"))
    )


def _read_tensors(path: Path, place: Place | None) -> dict[str, npt.NDArray[np.generic]]:
    data = path.read_bytes() if place is None else unseal(path, place)
    tensors: dict[str, npt.NDArray[np.generic]] = {}
    for tensor in parse_header(len(data), lambda offset, length: data[offset : offset + length]):
        code = _TYPES.get(tensor.name, {}).get(tensor.dtype)
        if code is None or len(tensor.shape) != 1:
            raise ValueError(
                f"{path.name} is no file of answers: {tensor.name} is {tensor.dtype} {tensor.shape}"
            )
        tensors[tensor.name] = np.frombuffer(data[tensor.begin : tensor.end], code)
    if not tensors.keys() >= _OLDEST or len(tensors["rows"]) != len(tensors["probabilities"]):
        raise ValueError(f"{path.name} is no file of answers: it has {sorted(tensors)}")
    return tensors
