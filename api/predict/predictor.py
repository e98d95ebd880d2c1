"""Station 3 of predict: images are decoded by some processes and answered by another, in turns.

The images of a request are decoded and answered in pieces, each of which takes about `predict_turn_s`; between them
other owners' requests pass (`api.turns`).
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from api.predict.decoder import Decoded, ImageDecoder, Wanted
from api.predict.images import Images
from api.predict.network import NetworkProcess
from api.turns import Turns
from core.errors import ImageInvalid, Invalid
from core.protocol.answers.sure import SureOut
from core.protocol.manifest import Manifest
from core.requests.predictions import Predictable
from core.settings import Settings
from core.store.blobs import Blobs

T = TypeVar("T")

FILE_BYTES = 8 << 20
"""Of image files that a decoder gets for one turn, if it is not a single file."""
PIXEL_BYTES = 16 << 20
"""Of decoded images that one request has in memory."""


@dataclass(frozen=True)
class Question:
    """What is asked about images.

    Attributes:
        version_id, version: whom it is asked, and its number.
        manifest, parts: of that version; part name to path.
        task: whose head answers, in the task scenario.
        classes: that it tells apart there.
        top_k: labels for each image.
        sure: from which probability on an answer is sure; None: the model promises nothing.
    """

    version_id: str
    version: int
    manifest: Manifest
    parts: Mapping[str, str]
    task: int | None
    classes: int
    top_k: int
    sure: SureOut | None = None

    @staticmethod
    def to(found: Predictable, blobs: Blobs, task: int | None, top_k: int) -> "Question":
        """A question to a version whose parts are fetched first. Raises StoreCorrupt, Unavailable."""
        paths, classes = found.paths(blobs), found.classes(task)
        return Question(found.id, found.number, found.manifest, paths, task, classes, top_k, found.sure)


class Predictor:
    """Client of the helper processes. For one event loop.

    Args:
        settings: threads and limits of the helpers.
        network: the process that answers.
        decoders: decode images. Both are replaced in tests.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        network: NetworkProcess | None = None,
        decoders: Sequence[ImageDecoder] | None = None,
    ) -> None:
        self._settings = settings
        self._network = network or NetworkProcess(settings)
        self._decoders = decoders or [ImageDecoder(settings) for _ in range(settings.predict_decoders)]
        self._decoding = Turns(self._decoders)
        self._asking = Turns([self._network])
        self._decode_threads = ThreadPoolExecutor(len(self._decoders), thread_name_prefix="decode")
        self._ask_thread = ThreadPoolExecutor(1, thread_name_prefix="predict")

    async def predict(self, owner: str, question: Question, images: Images) -> bytes:
        """The answer as JSON: a prediction or an error for each image, in the order sent.

        Args:
            owner: whose turn it is.

        Raises:
            ImageInvalid: the only image cannot be used.
            Invalid: the request cannot be answered.
            StoreCorrupt: a file of the version is gone.
            Unavailable: the helper died or took too long.
        """
        loop = asyncio.get_running_loop()
        if self._network.pid is None:  # it gets ready while images are decoded
            loop.run_in_executor(self._ask_thread, self._network.running).add_done_callback(_heard)
        manifest = json.dumps(question.manifest.to_json()).encode()
        items: list[bytes] = []
        count: int | None = len(images.body) if images.kind == "files" else None
        left_s = self._settings.predict_decode_s
        while count is None or len(items) < count:
            decoded, count = await self._decode(owner, question, images, len(items), count, left_s)
            left_s -= decoded.spent_s
            if count == 1 and decoded.found and isinstance(decoded.found[0], str):
                raise ImageInvalid(_unusable(decoded.found[0]))
            pixels = [one for one in decoded.found if isinstance(one, bytes)]
            answers = iter(await self._answers(owner, question, manifest, pixels))
            for one in decoded.found:
                name = images.names[len(items)] if images.names else None
                items.append(_item(name, _error(one) if isinstance(one, str) else next(answers)))
        promised = {} if question.sure is None else {"answers": question.sure}
        head = json.dumps({"version": question.version, "task": question.task, **promised})
        return head[:-1].encode() + b', "predictions": [' + b", ".join(items) + b"]}"

    def close(self) -> None:
        """End the helpers; no further requests."""
        self._network.close()
        for decoder in self._decoders:
            decoder.close()
        for threads in (self._ask_thread, self._decode_threads):
            threads.shutdown(wait=False, cancel_futures=True)

    @property
    def pid(self) -> int | None:
        """Process id of the helper that answers, or None when none runs."""
        return self._network.pid

    async def _decode(
        self, owner: str, question: Question, images: Images, begin: int, count: int | None, left_s: float
    ) -> tuple[Decoded, int]:
        """Some of the images from `begin` on, at least one, and how many there are in the request."""
        image = question.manifest.image
        size, channels = image.size, image.channels
        most = max(1, PIXEL_BYTES // (size * size * channels))
        if count is not None:
            self._check_labels(count, question)
            if left_s <= 0:
                late = f"{self._decoders[0].late()}; send fewer at once, or smaller ones"
                return Decoded(count, [late] * (count - begin)), count
        body, passed_over = images.body, begin
        if images.kind == "files":
            body, passed_over = _piece(images.body, begin, most), 0
        wanted = Wanted(
            images.kind, body, passed_over, most, size, channels, left_s, image.crop, image.interpolation
        )
        async with self._decoding.turn(owner) as decoder:
            decoded = await _done(self._decode_threads, decoder.decode, wanted)
        if count is None:
            assert decoded.count is not None
            count = decoded.count
            self._check_labels(count, question)
        return decoded, count

    def _check_labels(self, count: int, question: Question) -> None:
        """Raises Invalid: the answer would hold more labels than one may."""
        each, most = min(question.top_k, question.classes), self._settings.predict_max_labels
        if count * each > most:
            raise Invalid(
                f"{count} images with {each} labels each are {count * each} labels, and an answer may hold {most}:"
                f" send at most {most // each} images at once, or ?top_k={max(1, most // count)}.",
                fields=[{"field": "top_k", "message": f"at most {most // count} for {count} images"}],
            )

    async def _answers(
        self, owner: str, question: Question, manifest: bytes, pixels: Sequence[bytes]
    ) -> list[bytes]:
        """The answer to each decoded image."""
        header = {
            "owner": owner,
            "version_id": question.version_id,
            "version": question.version,
            "parts": dict(question.parts),
            "task": question.task,
            "top_k": question.top_k,
            "sure": question.sure,
            "turn_s": self._settings.predict_turn_s,
        }
        found: list[bytes] = []
        while len(found) < len(pixels):
            async with self._asking.turn(owner) as network:
                left = pixels[len(found) :]
                found += await _done(
                    self._ask_thread, network.ask, json.dumps(header).encode(), manifest, left
                )
        return found


async def _done(threads: ThreadPoolExecutor, call: Callable[..., T], *given: object) -> T:
    """What a call in a thread returns; whoever is cancelled waits for its end, since what it uses is lent."""
    call_ends = asyncio.get_running_loop().run_in_executor(threads, call, *given)
    try:
        return await asyncio.shield(call_ends)
    except asyncio.CancelledError:
        await asyncio.wait([call_ends])
        raise


def _heard(start: "asyncio.Future[Any]") -> None:
    """Whoever asks is told that the helper could not be started: not here."""
    if not start.cancelled():
        start.exception()


def _piece(
    files: Sequence[bytes | bytearray | memoryview], begin: int, most: int
) -> list[bytes | bytearray | memoryview]:
    """Files from `begin` on for one turn."""
    piece: list[bytes | bytearray | memoryview] = []
    for data in files[begin : begin + most]:
        if piece and sum(map(len, piece)) + len(data) > FILE_BYTES:
            break
        piece.append(data)
    return piece


def _item(name: str | None, answer: bytes) -> bytes:
    """One of the predictions: its name, and what `answer` says, which is a JSON object."""
    return b'{"name": ' + json.dumps(name).encode() + b", " + answer[1:]


def _error(why: str) -> bytes:
    return json.dumps({"error": {"code": ImageInvalid.code, "detail": _unusable(why)}}).encode()


def _unusable(why: str) -> str:
    return f"The image cannot be used: {why}."
