"""Traces of a task's images, by which they can be recognised, in one safetensors file.

`train` and `held_out` are uint64 [N, 2] as `core.statistics.near_duplicates` makes them, in the order of the datasets.
`names` holds the paths of both as JSON, packed. `pixels`, uint8 [N, 16], has digests of the decoded
pixels; `labels`, int64 [N], has numbers of `classes` (JSON, packed); both have the training part
first. Files written by earlier releases lack the last three. No image can be restored from traces.
They are deleted together with the task's held-out part.
"""

import json
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from core.statistics.near_duplicates import Hashes, Rows

Digests = npt.NDArray[np.uint8]
"""Digests [N, 16] of the decoded pixels of images."""

MAX_NAMES_BYTES = 512 << 20
"""Most bytes of unpacked paths: half a million of a kilobyte each."""


@dataclass(frozen=True)
class ImageFingerprints:
    """Fingerprints of a task's images (digests and perceptual hashes), by which equal and similar
    images are found.

    Attributes:
        train, held_out: perceptual hashes of the two parts.
        names: paths of the training part, then of the held-out part.
        pixels: digests of the decoded pixels, in the order of `names`.
        labels: numbers of `classes`, in the order of `names`. Both are None in files of earlier
            releases.
    """

    train: Hashes
    held_out: Hashes
    names: list[str]
    pixels: Digests | None = None
    labels: Rows | None = None
    classes: list[str] = field(default_factory=list)

    @property
    def all_perceptual_hashes(self) -> Hashes:
        """Perceptual hashes of all training and held-out images, in the order of `names`."""
        return np.concatenate([self.train, self.held_out])


def write_image_fingerprints(path: Path, traces: ImageFingerprints) -> None:
    """Write fingerprints of images to a file; equal fingerprints give equal bytes."""
    tensors: dict[str, npt.NDArray[Any]] = {
        "train": traces.train,
        "held_out": traces.held_out,
        "names": _pack_texts_as_bytes(traces.names),
    }
    if traces.pixels is not None and traces.labels is not None:
        tensors |= {
            "pixels": traces.pixels,
            "labels": traces.labels,
            "classes": _pack_texts_as_bytes(traces.classes),
        }
    save_file(tensors, path)


def read_image_fingerprints(path: Path) -> ImageFingerprints:
    """Read a file of image fingerprints that `write_image_fingerprints` wrote. Raises ValueError
    for any other.
    """
    try:
        tensors = load_file(path)
        train, held_out, names = (
            tensors["train"],
            tensors["held_out"],
            _unpack_texts_from_bytes(tensors["names"]),
        )
        pixels, labels = tensors.get("pixels"), tensors.get("labels")
        classes = _unpack_texts_from_bytes(tensors["classes"]) if "classes" in tensors else []
    # libraries raise types of their own; the service wrote the file, so it is damaged
    except Exception as error:
        raise ValueError(f"{path.name} holds no traces: {type(error).__name__}") from error
    count = len(train) + len(held_out)
    fits = all(part.dtype == np.uint64 and part.shape[1:] == (2,) for part in (train, held_out))
    if not fits or not isinstance(names, list) or len(names) != count:
        raise ValueError(f"{path.name} holds no traces: its sizes do not add up")
    if pixels is None and labels is None:
        return ImageFingerprints(train, held_out, names)
    if not _are_fingerprints_consistent(pixels, labels, classes, count):
        raise ValueError(f"{path.name} holds no traces: its labels do not fit its images")
    return ImageFingerprints(train, held_out, names, pixels, labels, classes)


def _are_fingerprints_consistent(
    pixels: object, labels: object, classes: object, count: int
) -> bool:
    """Return True if fingerprints have a digest and a label for each of `count` images."""
    return (
        isinstance(pixels, np.ndarray)
        and isinstance(labels, np.ndarray)
        and isinstance(classes, list)
        and (pixels.dtype, pixels.shape) == (np.uint8, (count, 16))
        and (labels.dtype, labels.shape) == (np.int64, (count,))
        and (not count or 0 <= int(labels.min()) <= int(labels.max()) < len(classes))
    )


def _pack_texts_as_bytes(texts: list[str]) -> npt.NDArray[np.uint8]:
    # Names of files may hold surrogates, which plain UTF-8 rejects.
    packed = zlib.compress(json.dumps(texts, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return np.frombuffer(packed, np.uint8)


def _unpack_texts_from_bytes(packed: npt.NDArray[np.uint8]) -> list[str]:
    # Bounded, because a damaged file may unpack to anything.
    unpacked = zlib.decompressobj().decompress(packed.tobytes(), MAX_NAMES_BYTES)
    return json.loads(unpacked.decode("utf-8", "surrogatepass"))  # type: ignore[no-any-return]
