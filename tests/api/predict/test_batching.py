"""Batching of prediction requests: each request gets its own answer or error.

Helper processes end when they are idle.
"""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.predict import batching as gatherings
from api.predict import predictor as predictors
from api.predict.batching import (
    ENOUGH_IMAGES,
    GATHER_IMAGES,
    SHARED_IMAGES,
    PredictionBatcher,
)
from api.predict.decoder import DecodedImages, DecodeRequest
from api.predict.images import PredictRequestImages
from api.predict.prediction_process import EncodedPredictions
from api.predict.predictor import PredictionHelperClient, VersionPredictionSpec
from core.contract.manifest import Manifest
from core.errors import Invalid, Unavailable
from core.settings import Settings
from tests.api.conftest import create_model
from tests.api.routes.conftest import make_publisher

PIXELS = 12


class Network:
    """A network that answers each image with its own bytes.

    An image that begins with "bad" cannot be answered, and "die" ends the process.

    Attributes:
        asked: the images of each turn.
        free: the event that a turn waits for.
    """

    def __init__(self) -> None:
        self.pid: int | None = 1
        self.asked: list[int] = []
        self.free = threading.Event()
        self.ended = 0

    def ensure_process_running(self) -> None:
        self.pid = 1

    def predict_images_until_turn_ends(
        self, header: bytes, manifest: bytes, pixels: Sequence[bytes]
    ) -> EncodedPredictions:
        self.asked.append(len(pixels))
        assert self.free.wait(60)
        if any(one.startswith(b"die") for one in pixels):
            raise Unavailable("The predict helper stopped while it answered; try again.")
        if any(one.startswith(b"bad") for one in pixels):
            raise Invalid("It cannot be asked that.")
        return EncodedPredictions(
            [json.dumps({"label": one.decode().strip()}).encode() for one in pixels],
            {"onnxruntime"},
        )

    def end_process(self) -> None:
        self.pid = None
        self.ended += 1

    close = end_process


class Decoder:
    """A decoder that uses the bytes of each file as its pixels.

    A file that begins with "cut" cannot be used.
    """

    def __init__(self) -> None:
        self.ended = 0

    def decode_images(self, wanted: DecodeRequest) -> DecodedImages:
        found: list[bytes | str] = []
        for data in wanted.body:
            found.append("cut off" if bytes(data).startswith(b"cut") else bytes(data).ljust(PIXELS))
        return DecodedImages(len(wanted.body), found)

    def end_process(self) -> None:
        self.ended += 1

    close = end_process


@pytest.fixture
def network(client: TestClient) -> Network:
    """Return the process behind an API, which answers nothing until it is free."""
    made = Network()
    settings = client.app.state.settings  # type: ignore[attr-defined]
    decoders = [Decoder(), Decoder()]
    client.app.state.predictor = PredictionHelperClient(settings, network=made, decoders=decoders)  # type: ignore
    return made


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_two_clients_are_asked_about_together_and_an_error_reaches_only_its_own_request(
    client: TestClient, tmp_path: Path, network: Network
) -> None:
    model = create_model(client, "birds")
    make_publisher(client, tmp_path)(model)
    gathering = client.app.state.predictor._gathering  # type: ignore[attr-defined]

    def predict_images(*images: bytes) -> Any:
        files = [("image", ("a.png", data, "image/png")) for data in images]
        return client.post(f"/v1/models/{model}/versions/latest/predict", files=files)

    with ThreadPoolExecutor(5) as threads:
        first = threads.submit(predict_images, b"first")
        wait_until(lambda: network.asked)
        others = [
            threads.submit(predict_images, *images)
            for images in ([b"good", b"cut", b"fine"], [b"bad"], [b"die"], [b"well"])
        ]
        wait_until(lambda: [len(pieces) for pieces in gathering._waiting.values()] == [5])
        network.free.set()
        good, bad, die, well = (one.result() for one in others)
    assert first.result().json()["predictions"][0]["label"] == "first"
    assert first.result().json()["engine"] == "onnxruntime"
    assert [item.get("label") for item in good.json()["predictions"]] == ["good", None, "fine"]
    assert good.json()["predictions"][1]["error"]["code"] == "image-invalid"
    assert bad.status_code == 422 and bad.json()["detail"] == "It cannot be asked that."
    assert die.status_code == 503
    assert well.json()["predictions"][0]["label"] == "well"
    assert network.asked[:2] == [1, 5] and sorted(network.asked[2:]) == [1, 1, 1, 2]


def build_prediction_request(version: str = "ver") -> VersionPredictionSpec:
    """Build a request to a version whose images have 2 × 2 pixels."""
    manifest = Manifest.from_json(
        {
            "version": 1,
            "architecture": {"name": "mlp", "hidden": [1]},
            "image": {"size": 2, "channels": 3},
            "scenario": "class",
            "classes": ["a"],
        }
    )
    return VersionPredictionSpec(version, 1, manifest, b"{}", {}, None, 1, 1)


def read_labels(answer: bytes) -> list[str]:
    return [item["label"] for item in json.loads(answer)["predictions"]]


def test_a_free_process_does_not_wait_for_more_than_enough_images(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gatherings, "GATHER_S", 600)

    async def predict_while_others_are_decoded() -> list[int]:
        network = Network()
        network.free.set()
        with ThreadPoolExecutor(1) as thread:
            batcher = PredictionBatcher(network, thread)  # type: ignore[arg-type]
            with batcher.hold_batch_while_decoding_images("a"):
                predictions = (
                    batcher.predict_in_shared_batch("a", b"{}", b"{}", [b"pixels"])
                    for _ in range(ENOUGH_IMAGES)
                )
                async with asyncio.timeout(60):
                    await asyncio.gather(*predictions)
        return network.asked

    assert asyncio.run(predict_while_others_are_decoded()) == [ENOUGH_IMAGES]


@pytest.mark.parametrize(
    ("others", "turns"),
    [
        ([], [1, GATHER_IMAGES, 3, 1]),
        # The owner who had no turn yet comes before the second one of the first, whose turns get
        # shorter.
        (["three"], [1, 1, SHARED_IMAGES, SHARED_IMAGES, SHARED_IMAGES, SHARED_IMAGES, 3, 1]),
    ],
)
def test_a_turn_is_of_one_owner_and_one_version_and_has_so_many_images(
    others: list[str], turns: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gatherings, "SHARED_S", 1e9)

    async def ask_predictor_in_turns() -> None:
        network = Network()
        helper = PredictionHelperClient(Settings(), network=network, decoders=[Decoder()])  # type: ignore[arg-type, list-item]

        def request_prediction(owner: str, version: str, *images: str) -> "asyncio.Task[bytes]":
            sent = PredictRequestImages("files", [image.encode() for image in images])
            return asyncio.create_task(
                helper.predict_and_encode_response(owner, build_prediction_request(version), sent)
            )

        first = request_prediction("a", "one", "first")
        while not network.asked:
            await asyncio.sleep(0.001)
        tasks = [
            request_prediction("a", "one", f"one {number}") for number in range(GATHER_IMAGES + 3)
        ]
        tasks += [
            request_prediction("a", "two", "two"),
            *(request_prediction("b", other, other) for other in others),
        ]
        while sum(len(pieces) for pieces in helper._gathering._waiting.values()) < len(tasks) + 1:
            await asyncio.sleep(0.001)
        network.free.set()
        found = [read_labels(answer) for answer in await asyncio.gather(first, *tasks)]
        assert found[1 : GATHER_IMAGES + 4] == [
            [f"one {number}"] for number in range(GATHER_IMAGES + 3)
        ]
        assert found[GATHER_IMAGES + 4 :] == [["two"], *([other] for other in others)]
        assert network.asked == turns
        helper.close()

    asyncio.run(ask_predictor_in_turns())


def test_helpers_end_after_ten_minutes_without_a_prediction_and_the_next_one_is_answered() -> None:
    async def let_helpers_end_and_predict() -> None:
        loop = asyncio.get_running_loop()
        passed, real = 0.0, loop.time
        loop.time = lambda: real() + passed  # type: ignore[method-assign]
        network, decoders = Network(), [Decoder(), Decoder()]
        network.free.set()
        helper = PredictionHelperClient(Settings(), network=network, decoders=decoders)  # type: ignore[arg-type]

        async def predict_labels() -> list[str]:
            return read_labels(
                await helper.predict_and_encode_response(
                    "a", build_prediction_request(), PredictRequestImages("files", [b"x"])
                )
            )

        async def settle_event_loop() -> None:
            for _ in range(50):
                await asyncio.sleep(0.001)

        assert await predict_labels() == ["x"]
        passed += predictors.IDLE_S - 100
        assert await predict_labels() == ["x"]  # the time begins again
        passed += predictors.IDLE_S - 100
        await settle_event_loop()
        assert network.ended == 0
        passed += 101
        end = real() + 60
        while [network.ended, *(one.ended for one in decoders)] != [1, 1, 1]:
            assert real() < end
            await asyncio.sleep(0.001)
        assert await predict_labels() == ["x"] and network.pid is not None
        helper.close()

    asyncio.run(let_helpers_end_and_predict())
