"""Stage 4 of predict: the client of an image decoder, a separate process that receives only images.

An unusable image affects only itself, even if it crashes the process or takes too long: a new
process decodes the other images of its request. The protocol is described in
`core.predictions.helper.decoder`.
"""

import json
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from core.errors import Invalid, Unavailable
from core.ingest.limits import ArchiveLimits
from core.ingest.members import write_all_bytes_to_descriptor
from core.processes import helper_process
from core.processes.messages import read_framed_message, write_framed_message
from core.settings import Settings

CRASHED = "it crashed the decoder, or took too much memory"
_SAID_BYTES = 64 << 10
"""Maximum size of a message without pixels."""


class _DecoderProcessEnded(Exception):
    """The helper process that decodes images ended in the middle of a request."""


@dataclass
class DecodeRequest:
    """A request to the decoder process: encoded images, and how to decode them.

    Attributes:
        kind: `files`, one image each, or `arrays`, one JSON text.
        body: the files to decode, or the text.
        begin: number of images of the text to skip.
        max_images: maximum number of images to decode.
        size, channels, crop, interpolation, decoding: properties of the decoded images, as in the
            manifest's `image`.
        left_s: seconds that all images together may take.
    """

    kind: str
    body: Sequence[bytes | bytearray | memoryview]
    begin: int
    max_images: int
    size: int
    channels: int
    left_s: float
    crop: float | None = None
    interpolation: str | None = None
    decoding: int | None = None


@dataclass
class DecodedImages:
    """Decoded pixels of some images of a predict request, or why an image cannot be used.

    Attributes:
        count: number of images in the body; None: not known yet.
        images: for each image so far, uint8 pixels [size, size, channels], or why it cannot be
            used, as the continuation of "The image cannot be used:". There may be fewer than
            requested: the rest is decoded in a later turn.
        spent_s: seconds that decoding took.
        paused: True if the decoder stopped to let other requests pass.
    """

    count: int | None = None
    images: list[bytes | str] = field(default_factory=list)
    spent_s: float = 0.0
    paused: bool = False

    def is_decoding_turn_done(self, request: DecodeRequest) -> bool:
        """Return True if the decoder has no more images to decode in this turn."""
        if self.count is None:
            return False
        return self.paused or len(self.images) >= min(
            request.max_images, self.count - request.begin
        )


class ImageDecoder:
    """A helper process that decodes images, started when needed. Not thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._limits = ArchiveLimits.from_settings(settings)
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the image decoder, or None if none is running."""
        return None if self._process is None else self._process.pid

    def decode_images(self, request: DecodeRequest) -> DecodedImages:
        """Decode at least one image of a predict request, and more within `predict_turn_s` seconds.

        Raises:
            Invalid: the body is not a list of images, or reading it takes too long or too much
                memory.
            Unavailable: the service is shutting down.
            OSError: no decoder can be started.
        """
        so_far = DecodedImages()
        died_at: int | None = None
        while not so_far.is_decoding_turn_done(request):
            done_before = len(so_far.images)
            try:
                self._decode_remaining_images(request, so_far)
            # Try each image twice: the first crash may have had another cause.
            except _DecoderProcessEnded:
                if len(so_far.images) > done_before or died_at != len(so_far.images):
                    died_at = len(so_far.images)
                elif so_far.count is None:
                    raise Invalid(f"The images cannot be read: {CRASHED}.") from None
                else:
                    so_far.images.append(CRASHED)
        return so_far

    def end_process(self) -> None:
        """End the image decoder process; the next request starts another."""
        self._end_decoder_process()

    def close(self) -> None:
        """End the image decoder process for good; further requests fail."""
        self._closed = True
        self._end_decoder_process()

    def _decode_remaining_images(self, request: DecodeRequest, so_far: DecodedImages) -> None:
        """Have the decoder process decode the images that `so_far` lacks."""
        process = self._ensure_decoder_running()
        assert process.stdin is not None and process.stdout is not None
        try:
            write_framed_message(
                process.stdin, json.dumps(self._build_decoder_header(request, so_far)).encode()
            )
            for data in request.body:
                write_all_bytes_to_descriptor(process.stdin.fileno(), data)
            # The first message says that the process is ready: its start-up does not count as
            # decoding time.
            read_framed_message(process.stdout, _SAID_BYTES)
            began = time.monotonic()
            try:
                self._read_decoded_images_until_deadline(
                    process, request, so_far, began + request.left_s - so_far.spent_s
                )
            finally:
                # Also after a crash, so that repeated attempts share the time of the request.
                so_far.spent_s += time.monotonic() - began
        except (EOFError, BrokenPipeError):
            self._end_decoder_process()
            raise _DecoderProcessEnded from None

    def _read_decoded_images_until_deadline(
        self,
        process: "subprocess.Popen[bytes]",
        request: DecodeRequest,
        so_far: DecodedImages,
        end: float,
    ) -> None:
        """Read messages of the decoder process until it has finished or must be ended."""
        assert process.stdout is not None
        if not _wait_until_pipe_readable(process.stdout, end):
            self._end_decoder_process()
            raise Invalid(
                f"The images cannot be used: {self.describe_decoding_timeout()}; send fewer or smaller ones."
            )
        so_far.count = _parse_decoder_image_count_message(
            request, read_framed_message(process.stdout, _SAID_BYTES)
        )
        pixels = 1 + request.size * request.size * request.channels
        while not so_far.is_decoding_turn_done(request):
            image_end = time.monotonic() + self._settings.predict_image_s
            if not _wait_until_pipe_readable(process.stdout, min(image_end, end)):
                self._end_decoder_process()
                if end > image_end:
                    so_far.images.append(
                        f"decoding takes longer than {self._settings.predict_image_s:g} s"
                    )
                else:
                    so_far.paused = True  # the request has no time left
                return
            message = read_framed_message(process.stdout, max(pixels, _SAID_BYTES))
            kind, payload = message[:1], message[1:]
            if kind == b"E":
                so_far.paused = True
            elif kind == b"P" and len(message) == pixels:
                so_far.images.append(payload)
            elif kind in (b"U", b"M"):
                so_far.images.append(payload.decode())
                # This process has too little memory left; another one decodes the remaining images.
                if kind == b"M":
                    return self._end_decoder_process()
            else:
                # This is not the protocol: treat the process as gone.
                raise EOFError

    def describe_decoding_timeout(self) -> str:
        """Return the message that decoding a request's images took too long."""
        return (
            f"decoding the images of this request takes longer than "
            f"{self._settings.predict_decode_s:g} s"
        )

    def _build_decoder_header(
        self, request: DecodeRequest, so_far: DecodedImages
    ) -> dict[str, Any]:
        return {
            "kind": request.kind,
            "size": request.size,
            "channels": request.channels,
            "crop": request.crop,
            "interpolation": request.interpolation,
            "decoding": request.decoding,
            "sizes": [len(data) for data in request.body],
            "begin": request.begin + len(so_far.images),
            "most": request.max_images - len(so_far.images),
            "turn_s": self._settings.predict_turn_s,
            "cpu_s": 2 * self._settings.predict_decode_s,
        }

    def _ensure_decoder_running(self) -> "subprocess.Popen[bytes]":
        if self._closed:
            raise Unavailable("The service is shutting down.")
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end_decoder_process()
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "core.predictions.helper.decoder",
                json.dumps(asdict(self._limits)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # `poll` does not see bytes that a buffer holds.
            cwd=helper_process.ROOT,
            # One thread each: there are several decoders, which share the cores.
            env=helper_process.build_helper_environment(
                OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"
            ),
        )
        return self._process

    def _end_decoder_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            helper_process.kill_helper_process(process)


def _parse_decoder_image_count_message(request: DecodeRequest, message: bytes) -> int:
    """Parse the decoder's message with the number of images. Raises Invalid if the body has no
    list.
    """
    if message[:1] == b"R":
        raise Invalid(message[1:].decode())
    if message[:1] != b"N":
        raise EOFError
    return int(message[1:])


def _wait_until_pipe_readable(pipe: Any, end: float) -> bool:
    """Wait until a pipe has data or the clock reaches `end`; return True if it has."""
    # One system call, where a selector would take four.
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return bool(poll.poll(1000 * max(0.0, end - time.monotonic())))
