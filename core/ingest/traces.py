"""What a task keeps of its images to recognise them by: their hashes and paths, as one safetensors file.

`train` and `held_out` are uint64 [N, 2] as `core.ingest.near` makes them, in the order of the datasets;
`names` holds the paths of both as JSON, packed. No image can be made of it. It goes when the task's held-out
part goes.
"""

import json
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from core.ingest.near import Hashes

MAX_NAMES_BYTES = 512 << 20
"""Of unpacked paths: half a million of a kilobyte each."""


@dataclass(frozen=True)
class Traces:
    """Hashes of both parts; `names`: the paths of the training part, then of the held-out part."""

    train: Hashes
    held_out: Hashes
    names: list[str]

    @property
    def all(self) -> Hashes:
        """Both parts, in the order of `names`."""
        return np.concatenate([self.train, self.held_out])


def write_traces(path: Path, traces: Traces) -> None:
    """Write a file of traces; its bytes depend on nothing but them."""
    packed = zlib.compress(json.dumps(traces.names, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    names = np.frombuffer(packed, np.uint8)
    save_file({"train": traces.train, "held_out": traces.held_out, "names": names}, path)


def read_traces(path: Path) -> Traces:
    """Read a file of `write_traces`. Raises ValueError for any other."""
    try:
        found = load_file(path)
        train, held_out = found["train"], found["held_out"]
        unpacked = zlib.decompressobj().decompress(found["names"].tobytes(), MAX_NAMES_BYTES)
        names = json.loads(unpacked.decode("utf-8", "surrogatepass"))
    except Exception as error:  # a library's own types; the file is ours, and damaged
        raise ValueError(f"{path.name} holds no traces: {type(error).__name__}") from error
    fits = all(part.dtype == np.uint64 and part.shape[1:] == (2,) for part in (train, held_out))
    if not fits or not isinstance(names, list) or len(names) != len(train) + len(held_out):
        raise ValueError(f"{path.name} holds no traces: its sizes do not add up")
    return Traces(train, held_out, names)
