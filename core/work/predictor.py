"""The predict helper: a process beside the API that holds torch and answers.

One turn at a time over stdin and stdout, framed as `core.messages` says: JSON, the version's manifest as JSON, and
decoded images as raw bytes; nothing untrusted but numbers comes here. It keeps recent versions loaded, under a limit
of memory, and ends when stdin closes. Its death costs the request at hand, nothing else.
"""

import json
import os
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from core.ingest import images
from core.messages import read_message, write_message

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from core.learn.method import Method
    from core.learn.networks import Network

    Pixels = npt.NDArray[np.uint8]

KEPT_VERSIONS = 8
KEPT_BYTES = 2 << 30
NETWORK_BYTES = 6 << 30
"""Address space for networks and their activations."""
CPU_S = 600
MAX_BATCH = 64
"""Images that a network sees at once: their activations and probabilities are in memory together."""
_DIGITS = 7


class Refused(Exception):
    """A question that cannot be answered; `kind` is `invalid` or `gone`."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True)
class Loaded:
    """A version in memory, for whom it was loaded, and the files it was loaded from with their bytes."""

    network: "Network"
    method: "Method"
    image: tuple[int, int]
    """Size and channels."""
    normalise: Mapping[str, Any] | None
    owner: str
    files: dict[str, int]


class Networks:
    """Recently used versions. The owner with the most of them loses the one that he has not used for longest.

    A file that several of them were loaded from is in memory once: a chain of experts, a base that never changes.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Loaded] = OrderedDict()
        self._tensors: dict[str, dict[str, Tensor]] = {}

    def get(self, owner: str, version_id: str, manifest: bytes, parts: Mapping[str, str]) -> Loaded:
        """A version by its id, loaded when it is not kept.

        Args:
            manifest: JSON; read only when it is loaded.
            parts: name to path of a file that never changes.
        """
        from core.learn import predicting

        if version_id in self._kept:
            self._kept.move_to_end(version_id)
            return self._kept[version_id]
        files = {path: Path(path).stat().st_size for path in parts.values()}
        self._make_room(files)
        paths = {name: Path(path) for name, path in parts.items()}
        document = json.loads(manifest)
        network, method = predicting.load(document, paths), predicting.method_of(document, paths)
        self._share(network, parts)
        image = int(document["image"]["size"]), int(document["image"]["channels"])
        loaded = Loaded(network, method, image, document.get("normalise"), owner, files)
        self._kept[version_id] = loaded
        return loaded

    def _make_room(self, files: Mapping[str, int]) -> None:
        while self._kept and (len(self._kept) >= KEPT_VERSIONS or self._bytes(files) > KEPT_BYTES):
            full = len(self._kept) >= KEPT_VERSIONS
            held: Counter[str] = Counter()
            for kept in self._kept.values():
                held[kept.owner] += 1 if full else sum(kept.files.values())
            most = max(held.values())
            del self._kept[next(id for id, kept in self._kept.items() if held[kept.owner] == most)]
            used = {path for kept in self._kept.values() for path in kept.files}
            self._tensors = {path: tensors for path, tensors in self._tensors.items() if path in used}

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


def answer(networks: Networks, header: Mapping[str, Any], manifest: bytes, raw: bytes) -> list[bytes]:
    """The JSON of one answer for each image, in the order sent; fewer than all once `turn_s` has passed.

    Args:
        header: owner, version_id, version, parts {name: path}, task, top_k (labels per image), turn_s.
        manifest: JSON.
        raw: the images, uint8 [N, size, size, channels] as the manifest's image says.

    Raises:
        Refused: the question cannot be answered, or a file of the version is gone.
    """
    import numpy as np

    try:
        version = networks.get(header["owner"], header["version_id"], manifest, header["parts"])
    except FileNotFoundError as error:  # deleted since the API fetched it
        raise Refused("gone", f"A file of version {header['version']} is gone.") from error
    size, channels = version.image
    pixels = np.frombuffer(bytearray(raw), np.uint8).reshape(-1, size, size, channels)
    items: list[bytes] = []
    batch, end = 1, time.monotonic() + header["turn_s"]
    # From one image on to more of them: it shows only now how long this network takes for each.
    while len(items) < len(pixels) and (not items or time.monotonic() < end):
        items += _predictions(version, header, pixels[len(items) : len(items) + batch])
        batch = min(2 * batch, MAX_BATCH)
    return items


def _predictions(version: Loaded, header: Mapping[str, Any], pixels: "Pixels") -> Iterator[bytes]:
    """Label and the most probable labels of each image, as JSON. Raises Refused."""
    from core.learn import predicting

    network, task = version.network, header["task"]
    try:
        labels, probabilities = predicting.predict(
            network, pixels, task, version.normalise, scores=version.method.predict_logits
        )
    except ValueError as error:
        raise Refused("invalid", str(error)) from error
    classes = network.classes_of(task)
    best = (-probabilities).argsort(axis=1, kind="stable")[:, : header["top_k"]]
    for label, row, order in zip(labels, probabilities, best, strict=True):
        item = {
            "label": label,
            "probability": round(float(row.max()), _DIGITS),
            "probabilities": {classes[i]: round(float(row[i]), _DIGITS) for i in order},
        }
        yield json.dumps(item).encode()


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer until the source ends: `ok` and the answers, one a line, or why there are none."""
    networks = Networks()
    while True:
        try:
            header = json.loads(read_message(source))
            manifest, raw = read_message(source), read_message(source)
        except EOFError:
            return
        images.renew_cpu(CPU_S)
        try:
            items = answer(networks, header, manifest, raw)
            write_message(sink, b'{"ok": true}')
            write_message(sink, b"\n".join(items))
        except Refused as error:
            write_message(sink, json.dumps({"kind": error.kind, "detail": error.detail}).encode())
        except MemoryError:
            detail = "Predicting takes more memory than is allowed here; send fewer or smaller images."
            write_message(sink, json.dumps({"kind": "invalid", "detail": detail}).encode())
        del manifest, raw


def main(threads: int) -> None:
    """Load torch, drop what is not needed, say that the helper is ready, and serve."""
    # Libraries that print must not speak into the protocol.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import torch

    import core.learn.predicting  # noqa: F401 - loaded before the first request waits for it

    torch.set_num_threads(threads)
    images.harden_process(NETWORK_BYTES, CPU_S)
    write_message(sink, b'{"ready": true}')
    serve(sys.stdin.buffer, sink)


if __name__ == "__main__":
    main(int(sys.argv[1]))
