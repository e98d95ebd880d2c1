"""The predict helper: a process beside the API that holds torch and answers.

One request at a time over stdin and stdout, framed as `core.messages` says; a request is JSON followed by
the raw bytes it announces, which a process of its own decodes (`image_decoder`). It keeps recent versions
loaded, under a limit of memory, and ends when stdin closes. Its death costs the request at hand, nothing else.
"""

import json
import os
import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from core.ingest import images
from core.ingest.limits import Limits
from core.messages import read_exactly, read_message, write_message
from core.work.image_decoder import ImageDecoder, Refused

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from core.learn.methods.base import Method
    from core.learn.networks import Network

    Pixels = npt.NDArray[np.uint8]

KEPT_VERSIONS = 8
KEPT_BYTES = 2 << 30
NETWORK_BYTES = 6 << 30
"""Address space for networks and their activations."""
CPU_S = 600
_DIGITS = 7


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


def answer(networks: Networks, header: Mapping[str, Any], pixels: "Pixels") -> bytes:
    """The JSON of one answer.

    Args:
        header: version_id, version, manifest, parts {name: path}, task.
        pixels: uint8 [N, S, S, C] as the manifest's image says.

    Raises:
        Refused: the question cannot be answered, or a file of the version is gone.
    """
    from core.learn import predicting

    manifest = header["manifest"]
    try:
        version = networks.get(header["version_id"], manifest, header["parts"])
    except FileNotFoundError as error:  # deleted since the API fetched it
        raise Refused("gone", f"A file of version {header['version']} is gone.") from error
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


def serve(source: BinaryIO, sink: BinaryIO, decoder: ImageDecoder) -> None:
    """Answer requests until the source ends; a request's header also says its format, `files` or `arrays`."""
    networks = Networks()
    while True:
        try:
            header = json.loads(read_message(source))
            body = [read_exactly(source, count) for count in header["sizes"]]
        except EOFError:
            return
        images.renew_cpu(CPU_S)
        try:
            image = header["manifest"]["image"]
            size, channels = int(image["size"]), int(image["channels"])
            result = answer(networks, header, decoder.decode(header["format"], body, size, channels))
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
    decoder = ImageDecoder(limits)
    # Libraries that print must not speak into the protocol.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import torch

    import core.learn.predicting  # noqa: F401 - loaded before the first request waits for it

    torch.set_num_threads(threads)
    images.harden_process(NETWORK_BYTES, CPU_S)
    write_message(sink, b'{"ready": true}')
    try:
        serve(sys.stdin.buffer, sink, decoder)
    finally:
        decoder.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), Limits(**json.loads(sys.argv[2])))
