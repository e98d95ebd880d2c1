"""Stage 4 of predict: predictions for decoded images, one turn at a time over stdin and stdout.

A turn is framed as in `core.processes.messages`: JSON, the version's manifest as JSON, and decoded images as
raw bytes. The only untrusted data that arrives here is numbers.
"""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from core.contract.responses.versions.predict import EngineName
from core.ingest import images
from core.learning.evaluation import predicting
from core.learning.export.graph import ExportFailed
from core.predictions.helper.graphs import OnnxGraphMaker
from core.predictions.helper.networks import LoadedVersion, LoadedVersionCache
from core.processes.messages import read_framed_message, write_framed_message

CPU_S = 600
MAX_BATCH = 16
"""Number of images that a network sees at once.

More would not be faster, and their activations share the memory.
"""
# A float32 has no more digits.
_DIGITS = 7


class PredictionRefused(Exception):
    """Raised for a prediction request that cannot be answered; `kind` is `invalid` or `gone`."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


def predict_request_images_within_turn(
    networks: LoadedVersionCache, header: Mapping[str, Any], manifest: bytes, raw: bytes
) -> tuple[list[bytes], EngineName]:
    """Predict the images of a request; return a JSON document per image, and the engine that
    predicted.

    There are fewer predictions than images if `turn_s` has passed.

    Args:
        networks: versions in memory.
        header: owner, version_id, version, parts {name: path}, task, top_k (labels per image),
            turn_s; and sure (`core.contract.responses.versions.sure`), if the model promises confident
            predictions.
        manifest: manifest of the version as JSON.
        raw: images, uint8 [N, size, size, channels] as the manifest's image says.

    Raises:
        PredictionRefused: the request cannot be answered, or a file of the version is gone.
    """
    try:
        version = networks.load_version(
            header["owner"], header["version_id"], manifest, header["parts"]
        )
    except FileNotFoundError as error:  # deleted after the API had fetched it
        raise PredictionRefused(
            "gone", f"A file of version {header['version']} is gone."
        ) from error
    size, channels = version.image
    # A copy, since torch warns about arrays that cannot be written to.
    pixels = np.frombuffer(bytearray(raw), np.uint8).reshape(-1, size, size, channels)
    # Between two requests, since this process has a single thread.
    networks.graphs.advance_graph_making()
    engine = version.graph.engine
    items: list[bytes] = []
    batch, end = 1, time.monotonic() + header["turn_s"]
    # Begin with one image and double: only now it shows how long this network takes for each.
    # At least one image each turn, so that a slow network also comes to an end.
    while len(items) < len(pixels) and (not items or time.monotonic() < end):
        items += _predict_images_as_json(
            networks.graphs, version, header, pixels[len(items) : len(items) + batch]
        )
        batch = min(2 * batch, MAX_BATCH)
    # the engine failed, and the network has predicted the rest
    if version.graph.engine is not engine:
        engine = None
    if engine is None:
        networks.graphs.record_images_and_queue_graph(
            version.graph, pixels[: len(items)], header["task"]
        )
    return items, "torch" if engine is None else engine.name


def _predict_images_as_json(
    graphs: OnnxGraphMaker,
    version: LoadedVersion,
    header: Mapping[str, Any],
    pixels: NDArray[np.uint8],
) -> Iterator[bytes]:
    """Predict images, and yield the label and most probable labels of each as JSON.

    Raises:
        PredictionRefused: the version cannot predict for this task.
    """
    promise = header.get("sure")
    sure_from = None if promise is None else promise["threshold"]
    try:
        probabilities = _predict_request_probabilities(
            graphs, version, header["task"], pixels, sure_from
        )
    except ValueError as error:
        raise PredictionRefused("invalid", str(error)) from error
    classes = version.network.list_classes(header["task"])
    # Stable, so that equal probabilities keep the order of classes.
    best = (-probabilities).argsort(axis=1, kind="stable")[:, : header["top_k"]]
    for row, order in zip(probabilities, best, strict=True):
        top = row.argmax()
        item = {
            "label": classes[top],
            "probability": round(float(row[top]), _DIGITS),
            "probabilities": {classes[i]: round(float(row[i]), _DIGITS) for i in order},
        }
        if promise is not None:
            item["sure"] = None if sure_from is None else bool(row[top] >= sure_from)
        yield json.dumps(item).encode()


def _predict_request_probabilities(
    graphs: OnnxGraphMaker,
    version: LoadedVersion,
    task: int | None,
    pixels: NDArray[np.uint8],
    sure_from: float | None,
) -> NDArray[np.float32]:
    """Predict probabilities, float32 [N, classes], by the version's exported graph or else its
    network.

    Raises:
        ValueError: see `predicting.predict_images`.
    """

    def predict_by_network(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        scoring = predicting.SoftmaxScoring(version.method.predict_logits, version.temperature)
        return predicting.predict_images(
            version.network, images, task, version.normalise, scoring=scoring
        )[1]

    if version.graph.engine is not None:
        try:
            return version.graph.engine.predict_probabilities(
                pixels, task, predict_by_network, sure_from
            )
        # The network predicts the same, so a graph that fails costs no request.
        except ExportFailed as error:
            graphs.give_up_graph(version.graph, str(error))
    probabilities = predict_by_network(pixels)
    graphs.try_fused_layers_as_engine(version.graph, pixels, task, probabilities)
    return probabilities


def serve_prediction_requests(source: BinaryIO, sink: BinaryIO, graphs: OnnxGraphMaker) -> None:
    """Serve prediction requests from a pipe until it ends.

    A response is `ok` with the engine, then the predictions, one per line; or the reason why there
    are none. `notes` beside `ok` are for the service's log.
    """
    networks = LoadedVersionCache(graphs)
    while True:
        try:
            header = json.loads(read_framed_message(source))
            manifest, raw = read_framed_message(source), read_framed_message(source)
        # The API process closed the pipe: it has ended, or wants to replace this process.
        except EOFError:
            return
        # CPU time counts for the whole process, so each request gets a new limit.
        images.extend_process_cpu_limit(CPU_S)
        try:
            items, engine = predict_request_images_within_turn(networks, header, manifest, raw)
            notes, graphs.notes = graphs.notes, []
            write_framed_message(
                sink, json.dumps({"ok": True, "engine": engine, "notes": notes}).encode()
            )
            write_framed_message(sink, b"\n".join(items))
        except PredictionRefused as error:
            write_framed_message(
                sink, json.dumps({"kind": error.kind, "detail": error.detail}).encode()
            )
        except MemoryError:
            detail = (
                "Predicting takes more memory than is allowed here; send fewer or smaller images."
            )
            write_framed_message(sink, json.dumps({"kind": "invalid", "detail": detail}).encode())
        # The next request may come much later; until then, this memory would stay in use.
        del manifest, raw
