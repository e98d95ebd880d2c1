"""Stored answers: a version's answers on a task's held-out images, in the order of their dataset.

A job process writes those on all tasks to one file (`core.learning.evaluation.stored_predictions`).
The store holds them as one blob (`write_encrypted_predictions`). In it, the answers on each task are
encrypted with a key of that task. The key is in the task's row and is deleted in the transaction
that deletes the task's images. Nobody can read these answers then, and the blob stays for the other
tasks. Blobs of older releases hold the answers on one task unencrypted.

The format is safetensors with `rows` int32 [N], predicted classes as rows of the head in question,
and `probabilities` float16 [N] of these rows. Current files also have `targets` [N], the true rows,
and `leaders` with `leader_counts` [N]: the rows of each image that score higher than all rows
before them. These determine the best of the first k classes. Everything is read here without torch.
"""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load, save_file

from core.contract.jobs.job_result import MeasuredVersion, TaskPredictionsByteRange
from core.files.safetensors_header import TensorHeader, read_safetensors_header

Rows = npt.NDArray[np.int32]
Probabilities = npt.NDArray[np.float16]
_INTEGERS = {"uint8", "int16", "int32"}
_TYPES = {
    "rows": {"int32"},
    "probabilities": {"float16"},
    "targets": _INTEGERS,
    "leaders": _INTEGERS,
    "leader_counts": _INTEGERS,
}
_OLDEST = {"rows", "probabilities"}
"""Tensors that every file has."""
NEW = "new"
"""Placeholder for the version made by an update, whose number is unknown until it is published."""
_NONCE = "nonce"
_KEY_BYTES, _NONCE_BYTES = 32, 16


@dataclass(frozen=True)
class TaskPredictionsPlaceInBlob:
    """Place of a version's stored predictions on one task, in the blob that its matrix cell names.

    Attributes:
        version, task: their numbers.
        key: the task's key, hexadecimal; None if it has none.
    """

    version: int
    task: int
    key: str | None


def draw_predictions_encryption_key() -> str:
    """Return a new random key that encrypts the predictions on a task."""
    return secrets.token_hex(_KEY_BYTES)


def read_predictions_written_by_job(
    folder: Path, files: Sequence[TaskPredictionsByteRange]
) -> dict[tuple[MeasuredVersion, int], bytes]:
    """Read the predictions that a job process has written, by version and task.

    Args:
        folder: folder of the job's result.
        files: the parts of its files.
    """
    # Each file is read once: there is a part for each task.
    contents = {name: (folder / name).read_bytes() for name in {part.file for part in files}}
    return {(part.version, part.task): contents[part.file][part.begin : part.end] for part in files}


def write_encrypted_predictions(
    predictions: Mapping[str, bytes], keys: Mapping[str, str], target: Path
) -> None:
    """Write predictions on several tasks to one file, each encrypted with its task's own key.

    Args:
        predictions: `VERSION.TASK` → what a job wrote; `NEW` stands for the version that is about to be published.
        keys: keys by the same names.
        target: file to write.
    """
    # An earlier attempt may have left one, which may be linked into a cache by now.
    target.unlink(missing_ok=True)
    nonce = secrets.token_bytes(_NONCE_BYTES)
    sealed = {
        name: _apply_key_stream(data, keys[name], nonce, name) for name, data in predictions.items()
    }
    save_file({**sealed, _NONCE: np.frombuffer(nonce, np.uint8)}, target)


def decrypt_predictions(path: Path, place_in_blob: TaskPredictionsPlaceInBlob) -> bytes:
    """Return the decrypted predictions on one task, as the job wrote them.

    Raises:
        ValueError: the blob does not have these answers, or the task's key is deleted.
    """
    tensors = _read_tensor_headers_of_predictions_blob(path, path.stat().st_mtime_ns)
    # A blob of an older release, which is one task's answers as they are.
    if _NONCE not in tensors:
        return path.read_bytes()
    # The version's own answers were sealed before its number was known.
    names = [f"{identifier}.{place_in_blob.task}" for identifier in (place_in_blob.version, NEW)]
    name = next((name for name in names if name in tensors), None)
    if name is None or place_in_blob.key is None:
        raise ValueError(
            f"{path.name} holds no answers of version {place_in_blob.version} on task {place_in_blob.task}"
        )
    with path.open("rb") as file:
        nonce, sealed = (
            _read_byte_range(file, tensors[identifier].begin, tensors[identifier].end)
            for identifier in (_NONCE, name)
        )
    return _apply_key_stream(sealed, place_in_blob.key, nonce, name).tobytes()


# The time of change is part of the cache's key, so that a replaced file is read again.
@lru_cache(maxsize=32)
def _read_tensor_headers_of_predictions_blob(
    path: Path, _changed_at: int
) -> Mapping[str, TensorHeader]:
    """Return where in a blob the predictions on each task are.

    The result is cached, because readers request one task after another.
    """
    return {tensor.name: tensor for tensor in read_safetensors_header(path)}


def _read_byte_range(file: BinaryIO, begin: int, end: int) -> bytes:
    file.seek(begin)
    return file.read(end - begin)


def _apply_key_stream(data: bytes, key: str, nonce: bytes, name: str) -> npt.NDArray[np.uint8]:
    """Encrypt or decrypt predictions by XOR with a key stream.

    The stream is SHAKE256 over key, nonce and name, the first two of fixed length. Each blob has
    its own nonce and each of its tensors its own name, so that no two of them share a stream.
    """
    stream = hashlib.shake_256(bytes.fromhex(key) + nonce + name.encode()).digest(len(data))
    mixed: npt.NDArray[np.uint8] = np.frombuffer(data, np.uint8) ^ np.frombuffer(stream, np.uint8)
    return mixed


@dataclass(frozen=True)
class PredictionsByKnownClassCount:
    """A version's predictions on a task's images, with the best class among the first k for every
    k.

    Attributes:
        rows, targets: [N], predicted and true rows of the same head.
        leaders: rows of one image after another, ascending: each scores higher than all rows before
            it.
        leader_counts: [N], at least 1 each.
    """

    rows: Rows
    targets: Rows
    leaders: Rows
    leader_counts: Rows

    def choose_best_known_classes(self, n_known: int) -> Rows:
        """Return, for every image, the most probable of the first `n_known` classes."""
        # reduceat fails without any group.
        if not len(self.leader_counts):
            return self.rows
        begins = np.cumsum(self.leader_counts) - self.leader_counts
        # Leaders of an image ascend, so the last one below `known` is the best of these rows.
        within = np.add.reduceat((self.leaders < n_known).astype(np.int64), begins)
        best: Rows = self.leaders[begins + within - 1]
        return best


def read_encrypted_predictions(
    path: Path, place_in_blob: TaskPredictionsPlaceInBlob
) -> tuple[Rows, Probabilities]:
    """Read and decrypt a blob's predictions on a task: class and probability for each image.

    Raises:
        ValueError: the blob does not have these answers.
    """
    return parse_predictions(decrypt_predictions(path, place_in_blob))


def parse_predictions(data: bytes) -> tuple[Rows, Probabilities]:
    """Parse stored predictions: the predicted class and its probability for each image.

    Args:
        data: as a job process wrote it.

    Raises:
        ValueError: it is no answers.
    """
    tensors = _parse_stored_prediction_tensors(data)
    return tensors["rows"].astype(np.int32), tensors["probabilities"].astype(np.float16)


def parse_predictions_by_known_class_count(data: bytes) -> PredictionsByKnownClassCount | None:
    """Parse stored predictions with rankings of classes; None for those of an older release.

    Args:
        data: as a job process wrote it.

    Raises:
        ValueError: it is no answers.
    """
    tensors = _parse_stored_prediction_tensors(data)
    if not {"targets", "leaders", "leader_counts"} <= tensors.keys():
        return None
    counts = tensors["leader_counts"].astype(np.int32)
    same_length = len(tensors["targets"]) == len(counts) == len(tensors["rows"])
    # They come from a job process, which has read images of strangers.
    if not same_length or int(counts.sum()) != len(tensors["leaders"]) or not (counts > 0).all():
        raise ValueError(
            "These are no stored answers: their leaders do not belong to their images."
        )
    return PredictionsByKnownClassCount(
        *(
            tensors[name].astype(np.int32)
            for name in ("rows", "targets", "leaders", "leader_counts")
        )
    )


def _parse_stored_prediction_tensors(data: bytes) -> dict[str, npt.NDArray[np.generic]]:
    # By the library, in compiled code: a publish reads the answers on each task.
    try:
        tensors: dict[str, npt.NDArray[np.generic]] = load(data)
    # Errors of its own type, and KeyError for a type that NumPy lacks.
    except Exception as error:
        raise ValueError(f"These are no stored answers: {error}.") from error
    for name, tensor in tensors.items():
        if tensor.dtype.name not in _TYPES.get(name, ()) or tensor.ndim != 1:
            raise ValueError(
                f"These are no stored answers: {name} is {tensor.dtype} {tensor.shape}."
            )
    if not tensors.keys() >= _OLDEST or len(tensors["rows"]) != len(tensors["probabilities"]):
        raise ValueError(f"These are no stored answers: they have {sorted(tensors)}.")
    return tensors
