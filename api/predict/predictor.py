"""Stage 3 of predict: images are decoded by some processes and predicted by another, in turns.

The images of a request are processed in pieces that take about `predict_turn_s` each. Requests of
other owners pass between them (`api.limits.resource_pool`). While a piece is predicted, the next one is decoded.
The processes end after a period without requests, and restart on the next request.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from api.limits.resource_pool import ResourcePool
from api.predict.batching import PredictionBatcher
from api.predict.decoder import DecodedImages, DecodeRequest, ImageDecoder
from api.predict.images import PredictRequestImages
from api.predict.prediction_process import EncodedPredictions, PredictionProcess
from core.contract.manifest import Manifest
from core.contract.responses.versions.sure import SureOut
from core.errors import ImageInvalid, Invalid
from core.predictions.predictions import PredictableVersion
from core.settings import Settings

T = TypeVar("T")

FILE_BYTES = 8 << 20
"""Maximum bytes of image files per decoder turn, unless it is a single file."""
PIXEL_BYTES = 8 << 20
"""Maximum bytes of decoded images in a piece; a request has two pieces in memory."""
PIECE_IMAGES = 16
"""Maximum number of files in a piece, so that decoding and predicting overlap."""
IDLE_S = 600.0
"""Seconds without a prediction after which the processes end: torch holds hundreds of megabytes."""
_NOBODY = ""
"""The owner of a turn that belongs to no request."""


@dataclass(frozen=True)
class VersionPredictionSpec:
    """Everything the helper needs to predict with a version: manifest, parts, task, label count.

    Attributes:
        version_id, version: id and number of the version.
        manifest, manifest_json, parts: manifest of that version; part name → path.
        task: the task whose head predicts, in the task scenario.
        classes: number of classes that it distinguishes.
        top_k: number of labels per image.
        sure: probability from which a prediction counts as sure; None: the model has no threshold.
    """

    version_id: str
    version: int
    manifest: Manifest
    manifest_json: bytes
    parts: Mapping[str, str]
    task: int | None
    classes: int
    top_k: int
    sure: SureOut | None = None

    @staticmethod
    def build(
        version: PredictableVersion, parts: Mapping[str, str], task: int | None, top_k: int
    ) -> "VersionPredictionSpec":
        """Build the prediction spec of a version whose parts are local files."""
        return VersionPredictionSpec(
            version.id,
            version.number,
            version.manifest,
            version.manifest_json,
            parts,
            task,
            version.count_classes(task),
            top_k,
            version.sure,
        )


class PredictionHelperClient:
    """Client of the helper processes that decode and predict images. For one event loop.

    Args:
        settings: threads and limits of the helpers.
        network: the process that predicts; replaced in tests.
        decoders: the processes that decode images; replaced in tests.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        network: PredictionProcess | None = None,
        decoders: Sequence[ImageDecoder] | None = None,
    ) -> None:
        self._settings = settings
        self._network = network or PredictionProcess(settings)
        self._decoders = decoders or [
            ImageDecoder(settings) for _ in range(settings.predict_decoders)
        ]
        self._decoding = ResourcePool(self._decoders, len(self._decoders))
        self._decode_threads = ThreadPoolExecutor(len(self._decoders), thread_name_prefix="decode")
        # One thread, because `PredictionProcess` serves one at a time.
        self._ask_thread = ThreadPoolExecutor(1, thread_name_prefix="predict")
        self._gathering = PredictionBatcher(self._network, self._ask_thread)
        self._under_way = 0
        self._rest: asyncio.TimerHandle | None = None

    async def predict_and_encode_response(
        self, owner: str, question: VersionPredictionSpec, images: PredictRequestImages
    ) -> bytes:
        """Predict images and return the JSON response, with a prediction or an error for each.

        Args:
            owner: the owner whose turn it uses.

        Raises:
            ImageInvalid: the only image cannot be used.
            Invalid: the request cannot be answered.
            StoredObjectDamaged: a file of the version is gone.
            Unavailable: the helper died or took too long.
        """
        self._under_way += 1
        try:
            return await self._predict_in_pieces(owner, question, images)
        finally:
            self._under_way -= 1
            self._schedule_idle_shutdown()

    async def _predict_in_pieces(
        self, owner: str, question: VersionPredictionSpec, images: PredictRequestImages
    ) -> bytes:
        # Start the process now, so that it becomes ready while images are decoded.
        if self._network.pid is None:
            loop = asyncio.get_running_loop()
            # A process that fails to start is reported by the first question that needs it.
            loop.run_in_executor(
                self._ask_thread, self._network.ensure_process_running
            ).add_done_callback(_mark_exception_retrieved)
        header = _encode_prediction_request(owner, question, self._settings.predict_turn_s)
        items: list[bytes] = []
        engines: set[str] = set()
        decoded_images = 0
        count: int | None = len(images.body) if images.kind == "files" else None
        left_s = self._settings.predict_decode_s
        asking: asyncio.Task[tuple[list[bytes | str], EncodedPredictions]] | None = None
        try:
            while count is None or decoded_images < count:
                with self._gathering.hold_batch_while_decoding_images(owner):
                    decoded, count = await self._decode_next_image_group(
                        owner, question, images, decoded_images, count, left_s
                    )
                # Decoding alone counts: waiting for a turn is due to the requests of others.
                left_s -= decoded.spent_s
                decoded_images += len(decoded.images)
                if count == 1 and decoded.images and isinstance(decoded.images[0], str):
                    raise ImageInvalid(_describe_unusable_image(decoded.images[0]))
                if asking is not None:
                    _append_predictions_and_image_errors(
                        items, engines, images.names, *await asking
                    )
                prediction = self._predict_decoded_images(
                    owner, header, question.manifest_json, decoded.images
                )
                # A task of its own, so that the next piece is decoded while this one is predicted.
                asking = asyncio.create_task(prediction)
                asking.add_done_callback(_mark_exception_retrieved)
            if asking is not None:
                _append_predictions_and_image_errors(items, engines, images.names, *await asking)
        finally:
            if asking is not None:
                asking.cancel()
        return _encode_prediction_response(question, items, engines)

    def close(self) -> None:
        """End the helper processes that decode and predict, for good."""
        self._network.close()
        for decoder in self._decoders:
            decoder.close()
        # The helpers have been killed, which ends the calls in progress: no need to wait.
        for threads in (self._ask_thread, self._decode_threads):
            threads.shutdown(wait=False, cancel_futures=True)
        if self._rest is not None:
            self._rest.cancel()

    @property
    def pid(self) -> int | None:
        """Process id of the helper that predicts, or None if none is running."""
        return self._network.pid

    async def _decode_next_image_group(
        self,
        owner: str,
        question: VersionPredictionSpec,
        images: PredictRequestImages,
        begin: int,
        count: int | None,
        left_s: float,
    ) -> tuple[DecodedImages, int]:
        """Decode images from `begin` on, at least one; return them and the request's image count."""
        image = question.manifest.image
        size, channels = image.size, image.channels
        max_images = max(1, PIXEL_BYTES // (size * size * channels))
        # Limit files only: a JSON text is read as a whole for each piece.
        if images.kind == "files":
            max_images = min(max_images, PIECE_IMAGES)
        if count is not None:
            self._require_label_count_allowed(count, question)
            # The images before these keep their predictions.
            if left_s <= 0:
                late = f"{self._decoders[0].describe_decoding_timeout()}; send fewer at once, or smaller ones"
                return DecodedImages(count, [late] * (count - begin)), count
        body, passed_over = images.body, begin
        if images.kind == "files":
            body, passed_over = _select_files_for_decoding_turn(images.body, begin, max_images), 0
        images_to_decode = DecodeRequest(
            images.kind,
            body,
            passed_over,
            max_images,
            size,
            channels,
            left_s,
            image.crop,
            image.interpolation,
            image.decoding,
        )
        async with self._decoding.lend_resource_in_turn(owner) as decoder:
            decoded = await _run_in_thread_despite_cancellation(
                self._decode_threads, decoder.decode_images, images_to_decode
            )
        if count is None:
            assert decoded.count is not None
            # Now known, and checked before any image is predicted.
            count = decoded.count
            self._require_label_count_allowed(count, question)
        return decoded, count

    def _require_label_count_allowed(self, count: int, question: VersionPredictionSpec) -> None:
        """Raise Invalid if a predict response would contain more labels than allowed."""
        labels, limit = min(question.top_k, question.classes), self._settings.predict_max_labels
        if count * labels > limit:
            raise Invalid(
                f"{count} images with {labels} labels each are {count * labels} labels, and an "
                f"answer may hold {limit}: send at most {limit // labels} images at once, or "
                f"?top_k={max(1, limit // count)}.",
                fields=[
                    {"field": "top_k", "message": f"at most {limit // count} for {count} images"}
                ],
            )

    async def _predict_decoded_images(
        self, owner: str, header: bytes, manifest: bytes, images: list[bytes | str]
    ) -> tuple[list[bytes | str], EncodedPredictions]:
        """Predict the successfully decoded images; return decoding results and predictions."""
        pixels = [one for one in images if isinstance(one, bytes)]
        if not pixels:
            return images, EncodedPredictions()
        return images, await self._gathering.predict_in_shared_batch(
            owner, header, manifest, pixels
        )

    def _schedule_idle_shutdown(self) -> None:
        """Schedule the end of the helper processes after `IDLE_S` seconds without a prediction."""
        if self._rest is not None:
            self._rest.cancel()
        loop = asyncio.get_running_loop()
        self._rest = loop.call_later(IDLE_S, lambda: loop.create_task(self._end_idle_processes()))

    async def _end_idle_processes(self) -> None:
        if self._under_way:
            return  # The end of that prediction restarts the timer.
        await _run_in_thread_despite_cancellation(self._ask_thread, self._network.end_process)
        # Take every decoder's turn before ending it, so that none is in use.
        async with AsyncExitStack() as lent_decoders:
            for _ in self._decoders:
                decoder = await lent_decoders.enter_async_context(
                    self._decoding.lend_resource_in_turn(_NOBODY)
                )
                await _run_in_thread_despite_cancellation(self._decode_threads, decoder.end_process)


def _encode_prediction_request(owner: str, question: VersionPredictionSpec, turn_s: float) -> bytes:
    """Encode the header of a prediction request for `core.predictions.helper.serving`."""
    header = {
        "owner": owner,
        "version_id": question.version_id,
        "version": question.version,
        "parts": dict(question.parts),
        "task": question.task,
        "top_k": question.top_k,
        "sure": question.sure,
        "turn_s": turn_s,
    }
    return json.dumps(header).encode()


def _append_predictions_and_image_errors(
    items: list[bytes],
    engines: set[str],
    names: Sequence[str | None],
    images_or_errors: Sequence[bytes | str],
    encoded_predictions: EncodedPredictions,
) -> None:
    """Append the results for some images: a prediction for each decoded one, an error for others."""
    engines |= encoded_predictions.engines
    predictions = iter(encoded_predictions.items)
    for one in images_or_errors:
        name = names[len(items)] if names else None
        items.append(
            _add_image_name_to_prediction_json(
                name, _encode_image_error(one) if isinstance(one, str) else next(predictions)
            )
        )


def _encode_prediction_response(
    question: VersionPredictionSpec, items: Sequence[bytes], engines: set[str]
) -> bytes:
    """Encode the JSON response of a predict request. Of several engines it names torch."""
    engine = "torch" if "torch" in engines else next(iter(engines), None)
    promised = {} if question.sure is None else {"answers": question.sure}
    head = json.dumps(
        {"version": question.version, "task": question.task, "engine": engine, **promised}
    )
    return head[:-1].encode() + b', "predictions": [' + b", ".join(items) + b"]}"


async def _run_in_thread_despite_cancellation(
    threads: ThreadPoolExecutor, call: Callable[..., T], *arguments: object
) -> T:
    """Run a function in a thread pool and return its result.

    A cancelled caller waits for the end of the call, since the call uses things that are lent to
    it.
    """
    call_ends = asyncio.get_running_loop().run_in_executor(threads, call, *arguments)
    try:
        return await asyncio.shield(call_ends)
    except asyncio.CancelledError:
        await asyncio.wait([call_ends])
        raise


def _mark_exception_retrieved(start: "asyncio.Future[Any]") -> None:
    """Mark a future's exception as retrieved, so that asyncio does not log it as unhandled."""
    if not start.cancelled():
        start.exception()


def _select_files_for_decoding_turn(
    files: Sequence[bytes | bytearray | memoryview], begin: int, max_images: int
) -> list[bytes | bytearray | memoryview]:
    """Select the image files to decode in one turn, limited in number and bytes."""
    piece: list[bytes | bytearray | memoryview] = []
    for data in files[begin : begin + max_images]:
        if piece and sum(map(len, piece)) + len(data) > FILE_BYTES:
            break
        piece.append(data)
    return piece


def _add_image_name_to_prediction_json(name: str | None, prediction_json: bytes) -> bytes:
    """Add the image's name to its prediction, which is a JSON object."""
    return b'{"name": ' + json.dumps(name).encode() + b", " + prediction_json[1:]


def _encode_image_error(why: str) -> bytes:
    return json.dumps(
        {"error": {"code": ImageInvalid.code, "detail": _describe_unusable_image(why)}}
    ).encode()


def _describe_unusable_image(why: str) -> str:
    return f"The image cannot be used: {why}."
