"""Station 4 of predict: what a version says of decoded images, one turn at a time over stdin and stdout.

A turn is framed as `core.messages` says: JSON, the version's manifest as JSON, and decoded images as raw bytes; nothing
untrusted but numbers comes here.
"""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from core.ingest import images
from core.learn import predicting
from core.messages import read_message, write_message
from core.work.predict.networks import Loaded, Networks

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


def answer(networks: Networks, header: Mapping[str, Any], manifest: bytes, raw: bytes) -> list[bytes]:
    """The JSON of one answer for each image, in the order sent; fewer than all once `turn_s` has passed.

    Args:
        header: owner, version_id, version, parts {name: path}, task, top_k (labels per image), turn_s; sure
            (`core.protocol.answers.sure`), where the model promises something of sure answers.
        manifest: JSON.
        raw: the images, uint8 [N, size, size, channels] as the manifest's image says.

    Raises:
        Refused: the question cannot be answered, or a file of the version is gone.
    """
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


def _predictions(version: Loaded, header: Mapping[str, Any], pixels: NDArray[np.uint8]) -> Iterator[bytes]:
    """Label and the most probable labels of each image, as JSON. Raises Refused."""
    network, task = version.network, header["task"]
    try:
        labels, probabilities = predicting.predict(
            network,
            pixels,
            task,
            version.normalise,
            scores=version.method.predict_logits,
            temperature=version.temperature,
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
        if (promise := header.get("sure")) is not None:
            least = promise["threshold"]
            item["sure"] = None if least is None else bool(row.max() >= least)
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
