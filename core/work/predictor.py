"""The predict helper: a process beside the API that holds torch, decodes images and answers.

One request at a time over stdin and stdout, framed as `core.messages` says; a request is JSON followed by
the raw bytes it announces. It keeps recent versions loaded, works under the limits of ingest, and ends when
stdin closes. Its death costs the request at hand, nothing else.
"""

import json
import os
import sys
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from core.errors import ImageInvalid
from core.ingest import images
from core.ingest.limits import Limits
from core.messages import read_exactly, read_message, write_message

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from core.learn.methods.base import Method
    from core.learn.networks import Network

    Pixels = npt.NDArray[np.uint8]

MAX_IMAGES = 256
KEPT_VERSIONS = 8
KEPT_BYTES = 2 << 30
NETWORK_BYTES = 6 << 30
"""Address space for networks and their activations, beyond what decoding may take."""
CPU_S = 600
_DIGITS = 7


class Refused(Exception):
    """A request that cannot be answered; `kind` is `image` or `invalid`."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True)
class Loaded:
    """A version in memory, and the files it was loaded from with their bytes."""

    network: "Network"
    method: "Method"
    files: dict[str, int]


class Networks:
    """Recently used versions, least recently used out first.

    A file that several of them were loaded from is in memory once: a chain of experts, a base that never changes.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Loaded] = OrderedDict()
        self._tensors: dict[str, dict[str, Tensor]] = {}

    def get(self, version_id: str, manifest: Mapping[str, Any], parts: Mapping[str, str]) -> Loaded:
        """A version by its id, loaded when it is not kept. parts: name to path of a file that never changes."""
        from core.learn import predicting

        if version_id in self._kept:
            self._kept.move_to_end(version_id)
            return self._kept[version_id]
        files = {path: Path(path).stat().st_size for path in parts.values()}
        while self._kept and (len(self._kept) >= KEPT_VERSIONS or self._bytes(files) > KEPT_BYTES):
            self._kept.popitem(last=False)
            used = {path for kept in self._kept.values() for path in kept.files}
            self._tensors = {path: held for path, held in self._tensors.items() if path in used}
        paths = {name: Path(path) for name, path in parts.items()}
        network, method = predicting.load(manifest, paths), predicting.method_of(manifest, paths)
        self._share(network, parts)
        self._kept[version_id] = Loaded(network, method, files)
        return self._kept[version_id]

    def _bytes(self, more: Mapping[str, int]) -> int:
        """Of all that is kept and some more files."""
        files = dict(more)
        for kept in self._kept.values():
            files |= kept.files
        return sum(files.values())

    def _share(self, network: "Network", parts: Mapping[str, str]) -> None:
        """Let the network use the tensors that are there already for its files."""
        tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
        for part, names in network.part_names().items():
            if part not in parts:
                continue
            held = self._tensors.setdefault(parts[part], {})
            for name in names:
                tensors[name].data = held.setdefault(name, tensors[name].data)


def answer(networks: Networks, limits: Limits, header: Mapping[str, Any], body: Sequence[bytes]) -> bytes:
    """The JSON of one answer.

    Args:
        header: version_id, version, manifest, parts {name: path}, task, format (`files` or `arrays`).
        body: the image files, or one JSON text of nested arrays.

    Raises:
        Refused: the images, or the question, cannot be used.
    """
    from core.learn import predicting

    manifest = header["manifest"]
    size, channels = int(manifest["image"]["size"]), int(manifest["image"]["channels"])
    if header["format"] == "files":
        pixels = from_files(body, size, channels, limits)
    else:
        pixels = from_arrays(body[0], size, channels, limits)
    version = networks.get(header["version_id"], manifest, header["parts"])
    network, task = version.network, header["task"]
    try:
        labels, probabilities = predicting.predict(
            network, pixels, task, manifest.get("normalise"), scores=version.method.predict_logits
        )
    except ValueError as error:
        raise Refused("invalid", str(error)) from error
    names = network.classes_of(task)
    return json.dumps(
        {
            "version": header["version"],
            "task": task,
            "predictions": [
                {
                    "label": label,
                    "probability": round(float(row.max()), _DIGITS),
                    "probabilities": {n: round(p, _DIGITS) for n, p in zip(names, row.tolist(), strict=True)},
                }
                for label, row in zip(labels, probabilities, strict=True)
            ],
        }
    ).encode()


def from_files(files: Sequence[bytes], size: int, channels: int, limits: Limits) -> "Pixels":
    """uint8 [N, size, size, channels] of image files. Raises Refused naming the image."""
    import numpy as np

    decoded = []
    for number, data in enumerate(files):
        try:
            decoded.append(images.decode(data, size, channels, limits.image_pixels))
        except ImageInvalid as error:
            raise Refused("image", f"Image {number} cannot be used: {error.detail}.") from error
    return np.stack(decoded)


def from_arrays(text: bytes, size: int, channels: int, limits: Limits) -> "Pixels":
    """uint8 [N, size, size, channels] of JSON: nested arrays N×H×W or N×H×W×C of values 0 … 255.

    The arrays may stand alone or as `{"images": …}`. Raises Refused.
    """
    import numpy as np

    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused("invalid", "The body is not JSON.") from error
    if isinstance(value, dict):
        unknown = sorted(set(value) - {"images"})
        if unknown or "images" not in value:
            raise Refused("invalid", 'The body must be nested arrays or {"images": nested arrays}.')
        value = value["images"]
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_IMAGES:
        raise Refused("invalid", f"images must be a list of 1 to {MAX_IMAGES} images.")
    squared = []
    for number, image in enumerate(value):
        try:
            array = np.asarray(image)
        except (ValueError, OverflowError) as error:
            raise Refused("image", f"Image {number} is not a rectangular array.") from error
        if array.ndim not in (2, 3) or array.dtype.kind not in "iuf" or not array.size:
            raise Refused("image", f"Image {number} must be H×W or H×W×C numbers from 0 to 255.")
        if array.ndim == 3 and array.shape[2] not in (1, 3, 4):
            raise Refused("image", f"Image {number} has {array.shape[2]} channels; 1, 3 or 4 are possible.")
        if array.shape[0] * array.shape[1] > limits.image_pixels:
            raise Refused("image", f"Image {number} has more than {limits.image_pixels} pixels.")
        if not ((array >= 0) & (array <= 255) & (array == np.floor(array))).all():
            raise Refused("image", f"Image {number} must hold whole numbers from 0 to 255.")
        try:
            squared.append(images.square_array(array.astype(np.uint8), size, channels))
        except ImageInvalid as error:
            raise Refused("image", f"Image {number} cannot be used: {error.detail}.") from error
    return np.stack(squared)


def serve(source: BinaryIO, sink: BinaryIO, limits: Limits) -> None:
    """Answer requests until the source ends."""
    networks = Networks()
    while True:
        try:
            header = json.loads(read_message(source))
            body = [read_exactly(source, count) for count in header["sizes"]]
        except EOFError:
            return
        images.renew_cpu(CPU_S)
        try:
            result = answer(networks, limits, header, body)
            write_message(sink, b'{"ok": true}')
            write_message(sink, result)
        except Refused as error:
            write_message(sink, json.dumps({"kind": error.kind, "detail": error.detail}).encode())
        except MemoryError:
            detail = "Predicting takes more memory than is allowed here; send fewer or smaller images."
            write_message(sink, json.dumps({"kind": "invalid", "detail": detail}).encode())
        del body


def main(threads: int, limits: Limits) -> None:
    """Load torch, drop what is not needed, say that the helper is ready, and serve."""
    # Libraries that print must not speak into the protocol.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import torch

    import core.learn.predicting  # noqa: F401 - loaded before the first request waits for it

    torch.set_num_threads(threads)
    images.harden_process(limits.decoder_bytes + NETWORK_BYTES, CPU_S)
    warnings.simplefilter(
        "default"
    )  # the limit on pixels is checked by itself; torch's warnings are not errors
    write_message(sink, b'{"ready": true}')
    serve(sys.stdin.buffer, sink, limits)


if __name__ == "__main__":
    main(int(sys.argv[1]), Limits(**json.loads(sys.argv[2])))
