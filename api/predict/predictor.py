"""Station 3 of predict: images are decoded by some processes and answered by another, in turns.

The images of a request are decoded and answered in pieces, each of which takes about `predict_turn_s` at most; between
them other owners' requests pass (`api.turns`). While a piece is answered, the next one is decoded. The processes are
ended when nobody has asked for a while, and start again at the next request.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from api.predict.decoder import Decoded, ImageDecoder, Wanted
from api.predict.gathering import Gathering
from api.predict.images import Images
from api.predict.network import Answered, NetworkProcess
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
PIXEL_BYTES = 8 << 20
"""Of decoded images in one piece of a request, which has two of them in memory."""
PIECE_IMAGES = 16
"""Files in one piece: those of a longer request are answered while the next ones are decoded."""
IDLE_S = 600.0
"""Without a prediction for so long, the processes are ended: the one with torch holds hundreds of megabytes."""
_NOBODY = ""
"""The owner of a turn that no request has asked for."""


@dataclass(frozen=True)
class Question:
    """What is asked about images.

    Attributes:
        version_id, version: whom it is asked, and its number.
        manifest, manifest_json, parts: of that version; part name to path.
        task: whose head answers, in the task scenario.
        classes: that it tells apart there.
        top_k: labels for each image.
        sure: from which probability on an answer is sure; None: the model promises nothing.
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
    def to(found: Predictable, blobs: Blobs, task: int | None, top_k: int) -> "Question":
        """A question to a version whose parts are fetched first. Raises StoreCorrupt, Unavailable."""
        paths, classes = found.paths(blobs), found.classes(task)
        manifest = json.dumps(found.manifest.to_json()).encode()
        return Question(
            found.id, found.number, found.manifest, manifest, paths, task, classes, top_k, found.sure
        )


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
        self._decoding = Turns(self._decoders, len(self._decoders))
        self._decode_threads = ThreadPoolExecutor(len(self._decoders), thread_name_prefix="decode")
        self._ask_thread = ThreadPoolExecutor(1, thread_name_prefix="predict")
        self._gathering = Gathering(self._network, self._ask_thread)
        self._under_way = 0
        self._rest: asyncio.TimerHandle | None = None

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
        self._under_way += 1
        try:
            return await self._predict(owner, question, images)
        finally:
            self._under_way -= 1
            self._rest_later()

    async def _predict(self, owner: str, question: Question, images: Images) -> bytes:
        if self._network.pid is None:  # it gets ready while images are decoded
            loop = asyncio.get_running_loop()
            loop.run_in_executor(self._ask_thread, self._network.running).add_done_callback(_ignore_failure)
        header = _header(owner, question, self._settings.predict_turn_s)
        items: list[bytes] = []
        engines: set[str] = set()
        decoded_images = 0
        count: int | None = len(images.body) if images.kind == "files" else None
        left_s = self._settings.predict_decode_s
        asking: asyncio.Task[tuple[list[bytes | str], Answered]] | None = None
        try:
            while count is None or decoded_images < count:
                with self._gathering.expect(owner):
                    decoded, count = await self._decode(
                        owner, question, images, decoded_images, count, left_s
                    )
                left_s -= decoded.spent_s
                decoded_images += len(decoded.found)
                if count == 1 and decoded.found and isinstance(decoded.found[0], str):
                    raise ImageInvalid(_unusable(decoded.found[0]))
                if asking is not None:
                    _add_items(items, engines, images.names, *await asking)
                answers = self._answers(owner, header, question.manifest_json, decoded.found)
                asking = asyncio.create_task(answers)
                asking.add_done_callback(_ignore_failure)
            if asking is not None:
                _add_items(items, engines, images.names, *await asking)
        finally:
            if asking is not None:
                asking.cancel()
        return _answer(question, items, engines)

    def close(self) -> None:
        """End the helpers; no further requests."""
        self._network.close()
        for decoder in self._decoders:
            decoder.close()
        for threads in (self._ask_thread, self._decode_threads):
            threads.shutdown(wait=False, cancel_futures=True)
        if self._rest is not None:
            self._rest.cancel()

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
        if images.kind == "files":  # a text is read whole for each piece
            most = min(most, PIECE_IMAGES)
        if count is not None:
            self._check_labels(count, question)
            if left_s <= 0:
                late = f"{self._decoders[0].late()}; send fewer at once, or smaller ones"
                return Decoded(count, [late] * (count - begin)), count
        body, passed_over = images.body, begin
        if images.kind == "files":
            body, passed_over = _piece(images.body, begin, most), 0
        wanted = Wanted(
            images.kind,
            body,
            passed_over,
            most,
            size,
            channels,
            left_s,
            image.crop,
            image.interpolation,
            image.decoding,
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
        self, owner: str, header: bytes, manifest: bytes, found: list[bytes | str]
    ) -> tuple[list[bytes | str], Answered]:
        """Findings of the decoder, and the answer to each image that it decoded."""
        pixels = [one for one in found if isinstance(one, bytes)]
        if not pixels:
            return found, Answered()
        return found, await self._gathering.ask(owner, header, manifest, pixels)

    def _rest_later(self) -> None:
        """Let the processes end when `IDLE_S` have passed from now on without a prediction."""
        if self._rest is not None:
            self._rest.cancel()
        loop = asyncio.get_running_loop()
        self._rest = loop.call_later(IDLE_S, lambda: loop.create_task(self._end_idle()))

    async def _end_idle(self) -> None:
        if self._under_way:
            return  # its end starts the time again
        await _done(self._ask_thread, self._network.end)
        async with AsyncExitStack() as turns:
            for _ in self._decoders:
                decoder = await turns.enter_async_context(self._decoding.turn(_NOBODY))
                await _done(self._decode_threads, decoder.end)


def _header(owner: str, question: Question, turn_s: float) -> bytes:
    """A question about images, as `core.work.predict.answers` reads it."""
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


def _add_items(
    items: list[bytes],
    engines: set[str],
    names: Sequence[str | None],
    found: Sequence[bytes | str],
    answered: Answered,
) -> None:
    """Append the predictions of a piece: an answer for each image that could be decoded, else the error."""
    engines |= answered.engines
    answers = iter(answered.items)
    for one in found:
        name = names[len(items)] if names else None
        items.append(_item(name, _error(one) if isinstance(one, str) else next(answers)))


def _answer(question: Question, items: Sequence[bytes], engines: set[str]) -> bytes:
    """The whole answer; several engines are named by the one that the others stand in for."""
    engine = "torch" if "torch" in engines else next(iter(engines), None)
    promised = {} if question.sure is None else {"answers": question.sure}
    head = json.dumps({"version": question.version, "task": question.task, "engine": engine, **promised})
    return head[:-1].encode() + b', "predictions": [' + b", ".join(items) + b"]}"


async def _done(threads: ThreadPoolExecutor, call: Callable[..., T], *given: object) -> T:
    """What a call in a thread returns; whoever is cancelled waits for its end, since what it uses is lent."""
    call_ends = asyncio.get_running_loop().run_in_executor(threads, call, *given)
    try:
        return await asyncio.shield(call_ends)
    except asyncio.CancelledError:
        await asyncio.wait([call_ends])
        raise


def _ignore_failure(start: "asyncio.Future[Any]") -> None:
    """Whoever waits for the result is told, and nobody waits once something else has failed."""
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
