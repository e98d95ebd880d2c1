"""Predictions, as the API sees them: images are decoded by some processes and answered by another, in turns.

The images of a request are decoded and answered in pieces, each of which takes about `predict_turn_s`; between them
other owners' requests pass (`api.turns`). The helper that answers is started at first use. It is ended when one turn
takes too long; when it dies the request at hand is answered 503 and the next one starts a new helper.
"""

import asyncio
import json
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from api.image_decoder import Decoded, ImageDecoder, Wanted
from api.turns import Turns
from core import helper_process
from core.errors import ImageInvalid, Invalid, PerennialError, StoreCorrupt, Unavailable
from core.messages import read_message, write_message
from core.settings import Settings

T = TypeVar("T")
log = structlog.get_logger(__name__)

START_S = 120.0
FILE_BYTES = 8 << 20
"""Of image files that a decoder gets for one turn, if it is not a single file."""
PIXEL_BYTES = 16 << 20
"""Of decoded images that one request has in memory."""
_ERRORS: dict[str, type[PerennialError]] = {"gone": StoreCorrupt}
"""What the helper calls a refusal, where it is not the request's form."""


@dataclass(frozen=True)
class Question:
    """What is asked about images.

    Attributes:
        version_id, version: whom it is asked, and its number.
        manifest, parts: of that version; part name to path.
        task: whose head answers, in the task scenario.
        classes: that it tells apart there.
        top_k: labels for each image.
    """

    version_id: str
    version: int
    manifest: Mapping[str, Any]
    parts: Mapping[str, str]
    task: int | None
    classes: int
    top_k: int


@dataclass(frozen=True)
class Images:
    """Images as they were sent. kind: `files`, one each with its name, or `arrays`, one JSON text."""

    kind: str
    body: Sequence[bytes | bytearray | memoryview]
    names: Sequence[str | None] = ()


class Predictor:
    """Client of the helper processes. For one event loop.

    Args:
        settings: threads and limits of the helpers.
        command: starts the helper that answers.
        decoders: decode images. Both are replaced in tests.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        command: Sequence[str] | None = None,
        decoders: Sequence[ImageDecoder] | None = None,
    ) -> None:
        self._settings = settings
        self._command = list(command or [sys.executable, "-m", "core.work.predictor", str(settings.threads)])
        self._process: subprocess.Popen[bytes] | None = None
        self._decoders = decoders or [ImageDecoder(settings) for _ in range(settings.predict_decoders)]
        self._decoding = Turns(self._decoders)
        self._asking = Turns([self])
        self._decode_threads = ThreadPoolExecutor(len(self._decoders), thread_name_prefix="decode")
        self._ask_thread = ThreadPoolExecutor(1, thread_name_prefix="predict")
        self._closed = False

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
        if self._process is None:  # it gets ready while images are decoded
            loop.run_in_executor(self._ask_thread, self._running).add_done_callback(_heard)
        manifest = json.dumps(question.manifest).encode()
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
        head = json.dumps({"version": question.version, "task": question.task})
        return head[:-1].encode() + b', "predictions": [' + b", ".join(items) + b"]}"

    def close(self) -> None:
        """End the helpers; no further requests."""
        self._closed = True
        self._end()
        for decoder in self._decoders:
            decoder.close()
        for threads in (self._ask_thread, self._decode_threads):
            threads.shutdown(wait=False, cancel_futures=True)

    @property
    def pid(self) -> int | None:
        """Process id of the helper that answers, or None when none runs."""
        return None if self._process is None else self._process.pid

    async def _decode(
        self, owner: str, question: Question, images: Images, begin: int, count: int | None, left_s: float
    ) -> tuple[Decoded, int]:
        """Some of the images from `begin` on, at least one, and how many there are in the request."""
        size, channels = (int(question.manifest["image"][name]) for name in ("size", "channels"))
        most = max(1, PIXEL_BYTES // (size * size * channels))
        if count is not None:
            self._check_labels(count, question)
            if left_s <= 0:
                late = f"{self._decoders[0].late()}; send fewer at once, or smaller ones"
                return Decoded(count, [late] * (count - begin)), count
        body, passed_over = images.body, begin
        if images.kind == "files":
            body, passed_over = _piece(images.body, begin, most), 0
        wanted = Wanted(images.kind, body, passed_over, most, size, channels, left_s)
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
            "turn_s": self._settings.predict_turn_s,
        }
        found: list[bytes] = []
        while len(found) < len(pixels):
            async with self._asking.turn(owner):
                left = pixels[len(found) :]
                found += await _done(self._ask_thread, self._ask, json.dumps(header).encode(), manifest, left)
        return found

    def _ask(self, header: bytes, manifest: bytes, pixels: Sequence[bytes]) -> list[bytes]:
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        watchdog, expired = self._watch(process, self._settings.predict_answer_s)
        try:
            for message in (header, manifest, b"".join(pixels)):
                write_message(process.stdin, message)
            status = json.loads(read_message(process.stdout))
            items = read_message(process.stdout).split(b"\n") if status.get("ok") else []
        except (EOFError, OSError, ValueError, struct.error):
            self._end()
            log.error("predict helper gone", exit=process.returncode, timeout=expired.is_set())
            if expired.is_set():
                raise Unavailable(
                    f"Predicting took longer than {self._settings.predict_answer_s:.0f} s; send fewer images."
                ) from None
            raise Unavailable("The predict helper stopped while it answered; try again.") from None
        finally:
            watchdog.cancel()
        if not status.get("ok"):
            raise _ERRORS.get(str(status.get("kind")), Invalid)(status["detail"])
        if not 1 <= len(items) <= len(pixels):
            raise Unavailable("The predict helper did not answer what it was asked; try again.")
        return items

    def _running(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise Unavailable("The service is shutting down.")
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        process = subprocess.Popen(
            self._command,
            cwd=helper_process.ROOT,
            env=helper_process.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._process = process
        assert process.stdout is not None
        watchdog, _ = self._watch(process, START_S)
        try:
            read_message(process.stdout)
        except (EOFError, OSError, struct.error):
            self._end()
            raise Unavailable("The predict helper could not be started; try again.") from None
        finally:
            watchdog.cancel()
        return process

    def _watch(
        self, process: "subprocess.Popen[bytes]", seconds: float
    ) -> tuple[threading.Timer, threading.Event]:
        expired = threading.Event()

        def end() -> None:
            expired.set()
            process.kill()

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        return timer, expired

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            helper_process.end(process)


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
