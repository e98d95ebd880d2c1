"""The dataset file: `images` uint8 [N, S, S, C] and `labels` int64 [N] as one safetensors file.

It is written without `__metadata__`, labels first (the widest type comes first in the format's
canonical order). The bytes therefore depend only on the images and labels. Files are read by memory
map; torch is not needed.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
_MAX_HEADER_BYTES = 4096


def write_image_dataset_file(
    path: Path, labels: Labels, shape: tuple[int, int, int], blocks: Iterable[Images]
) -> None:
    """Write a dataset of images and labels: `labels` [N], then `blocks` of uint8 [n, S, S, C].

    `shape` is (S, S, C) of one image. Making the file durable is left to the store. Raises
    ValueError if the blocks do not add up.
    """
    count, image_bytes = len(labels), int(np.prod(shape))
    end = 8 * count + count * image_bytes
    header = json.dumps(
        {
            "labels": {"dtype": "I64", "shape": [count], "data_offsets": [0, 8 * count]},
            "images": {"dtype": "U8", "shape": [count, *shape], "data_offsets": [8 * count, end]},
        },
        separators=(",", ":"),
    ).encode()
    # The format's own writer aligns the data by blanks as well, so that both write the same bytes.
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        # Little endian on every machine, as the format defines.
        file.write(np.ascontiguousarray(labels, "<i8").data)
        written = 0
        for block in blocks:
            if block.dtype != np.uint8 or block.shape[1:] != shape:
                raise ValueError(
                    f"a block of {block.dtype} {block.shape} is not uint8 [n, {shape}]"
                )
            if block.size:
                file.write(np.ascontiguousarray(block).data)
            written += len(block)
        if written != count:
            raise ValueError(f"{written} images for {count} labels")


def memory_map_image_dataset(path: Path) -> tuple[Images, Labels]:
    """Memory-map a dataset file: (images uint8 [N, S, S, C], labels int64 [N]), both read-only.

    Raises ValueError if the file does not have exactly the form of `write_image_dataset_file`.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        # Checked before the header is read: a damaged file may claim any number.
        if not 2 <= header_bytes <= min(_MAX_HEADER_BYTES, size):
            raise ValueError(f"{path.name} is not a dataset: header of {header_bytes} bytes")
        try:
            header = json.loads(file.read(header_bytes))
            labels, images = (
                _read_tensor_shape(header, "labels", "I64", 1),
                _read_tensor_shape(header, "images", "U8", 4),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path.name} is not a dataset: {error}") from error
    count = labels[0]
    begin = 8 + header_bytes
    if images[0] != count or size != begin + 8 * count + int(np.prod(images)) or len(header) != 2:
        raise ValueError(f"{path.name} is not a dataset: its sizes do not add up")
    # There is nothing to map.
    if not int(np.prod(images)):
        return np.empty(images, np.uint8), np.empty(labels, np.int64)
    mapped = np.memmap(path, np.uint8, "r")
    return (
        mapped[begin + 8 * count :].reshape(images),
        np.frombuffer(mapped[begin : begin + 8 * count], "<i8"),
    )


def _read_tensor_shape(header: Any, name: str, dtype: str, dimensions: int) -> tuple[int, ...]:
    entry = header[name]
    shape = tuple(entry["shape"])
    if entry["dtype"] != dtype or len(shape) != dimensions:
        raise ValueError(f"{name} is {entry['dtype']} {shape}")
    if not all(isinstance(n, int) and n >= 0 for n in shape):
        raise ValueError(f"{name} has the shape {shape}")
    return shape
