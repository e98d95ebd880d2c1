"""Images of a prediction, decoded beside the predict helper: the helper itself touches no untrusted byte.

A process of its own, without torch and without keys, under limits of memory and CPU time, turns files or nested
arrays into square uint8 images. One that crashes or takes too long costs its own request: the helper, its loaded
versions and whoever is next in line stay. Messages are those of `core.messages`: a request is JSON and the raw bytes
it announces; an answer is one message per image (`P` and its pixels), and at the end `E`, or `R` and a refusal.
"""

import gc
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, BinaryIO

from core import helper_process
from core.errors import ImageInvalid
from core.ingest import images
from core.ingest.limits import Limits
from core.ingest.members import write_all
from core.ingest.pool import ROOT, environment
from core.messages import read_exactly, read_message, write_message

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Pixels = npt.NDArray[np.uint8]

MAX_IMAGES = 256
DECODE_S = 20.0
"""Seconds that the images of one request may take together; the line of predictions waits for so long at most."""
ARRAY_BYTES = 1 << 30
"""Address space for nested arrays as objects, beyond what a file may take."""
CRASHED = "it crashed the decoder, or took too much memory"


class Refused(Exception):
    """A request that cannot be answered; `kind` is `image`, `invalid` or `gone`."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class _Gone(Exception):
    """The decoder's process ended after `done` images."""

    def __init__(self, done: int) -> None:
        super().__init__(done)
        self.done = done


class ImageDecoder:
    """One decoder process, started at once and again whenever it is gone. Not safe for threads.

    Args:
        limits: those of ingest.
        decode_s: seconds that one request may take.
    """

    def __init__(self, limits: Limits, decode_s: float = DECODE_S) -> None:
        self._limits = limits
        self._decode_s = decode_s
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def pid(self) -> int | None:
        """Process id of the decoder, or None when none runs."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process; it gets ready while the caller does other things."""
        self.close()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "core.work.image_decoder", json.dumps(asdict(self._limits))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # what a buffer holds already, a selector does not see
            cwd=ROOT,
            env=environment(),
        )

    def decode(self, kind: str, body: Sequence[bytes], size: int, channels: int) -> "Pixels":
        """uint8 [N, size, size, channels].

        Args:
            kind: `files`, one image each, or `arrays`, one JSON text.

        Raises:
            Refused: an image cannot be used, or the images take too long or too much memory.
            OSError, EOFError: no decoder can be started.
        """
        import numpy as np

        try:
            decoded = self._ask(kind, body, size, channels)
        except _Gone:
            try:  # the first death may have been an accident
                decoded = self._ask(kind, body, size, channels)
            except _Gone as gone:
                raise Refused("image", f"Image {gone.done} cannot be used: {CRASHED}.") from None
        count, joined = len(decoded), bytearray().join(decoded)
        return np.frombuffer(joined, np.uint8).reshape(count, size, size, channels)

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            helper_process.end(process)

    def _ask(self, kind: str, body: Sequence[bytes], size: int, channels: int) -> list[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.start()
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        header = {"kind": kind, "size": size, "channels": channels, "sizes": [len(data) for data in body]}
        decoded: list[bytes] = []
        end: float | None = None
        try:
            write_message(process.stdin, json.dumps(header).encode())
            for data in body:
                write_all(process.stdin.fileno(), data)
            while True:
                # The first message says that it has begun: its start is not the client's delay.
                left = None if end is None else end - time.monotonic()
                if not _readable(process.stdout, left):
                    self.close()
                    raise Refused(
                        "image",
                        f"Image {len(decoded)} cannot be used: decoding takes longer than {self._decode_s:.0f} s; "
                        "send fewer or smaller images.",
                    )
                message = read_message(process.stdout)
                if end is None:
                    end = time.monotonic() + self._decode_s
                    continue
                match message[:1]:
                    case b"P":
                        decoded.append(message[1:])
                    case b"E":
                        return decoded
                    case _:
                        raise Refused(**json.loads(message[1:]))
        except (EOFError, BrokenPipeError):
            self.close()
            raise _Gone(len(decoded)) from None


def from_files(files: Sequence[bytes], size: int, channels: int, limits: Limits) -> Iterator[bytes]:
    """The pixels of image files. Raises Refused naming the image."""
    for number, data in enumerate(files):
        try:
            image, _ = images.open_square(data, size, channels, limits.image_pixels)
        except ImageInvalid as error:
            raise Refused("image", f"Image {number} cannot be used: {error.detail}.") from error
        yield image.tobytes()


def from_arrays(text: bytes, size: int, channels: int, limits: Limits) -> Iterator[bytes]:
    """The pixels of JSON: nested arrays N×H×W or N×H×W×C of values 0 … 255.

    The arrays may stand alone or as `{"images": …}`. Raises Refused.
    """
    import numpy as np

    value = _images(text)
    for number, image in enumerate(value):
        # Before NumPy looks at every element: an empty row, or far too many of them, shows at the first.
        if not (isinstance(image, list) and image and isinstance(image[0], list) and image[0]):
            raise Refused("image", f"Image {number} must be H×W or H×W×C numbers from 0 to 255.")
        if len(image) * len(image[0]) > limits.image_pixels:
            raise Refused("image", f"Image {number} has more than {limits.image_pixels} pixels.")
        try:
            array = np.asarray(image)
        except (ValueError, OverflowError) as error:
            raise Refused("image", f"Image {number} is not a rectangular array.") from error
        if array.ndim not in (2, 3) or array.dtype.kind not in "iuf" or not array.size:
            raise Refused("image", f"Image {number} must be H×W or H×W×C numbers from 0 to 255.")
        if array.ndim == 3 and array.shape[2] not in (1, 3, 4):
            raise Refused("image", f"Image {number} has {array.shape[2]} channels; 1, 3 or 4 are possible.")
        if not ((array >= 0) & (array <= 255) & (array == np.floor(array))).all():
            raise Refused("image", f"Image {number} must hold whole numbers from 0 to 255.")
        try:
            yield images.square_array(array.astype(np.uint8), size, channels).tobytes()
        except ImageInvalid as error:
            raise Refused("image", f"Image {number} cannot be used: {error.detail}.") from error


def _images(text: bytes) -> list[Any]:
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise Refused("invalid", "The body is not JSON in UTF-8, or names something twice.") from error
    if isinstance(value, dict):
        if set(value) != {"images"}:
            raise Refused("invalid", 'The body must be nested arrays or {"images": nested arrays}.')
        value = value["images"]
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_IMAGES:
        raise Refused("invalid", f"images must be a list of 1 to {MAX_IMAGES} images.")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name appears twice")
    return value


def _readable(pipe: Any, seconds: float | None) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        return bool(selector.select(None if seconds is None else max(0.0, seconds)))


def serve(source: BinaryIO, sink: BinaryIO, limits: Limits) -> None:
    """Answer requests until the source ends, or memory does: what is left of it may be in small pieces."""
    while True:
        try:
            header = json.loads(read_message(source))
            body = [read_exactly(source, count) for count in header["sizes"]]
        except EOFError:
            return
        images.renew_cpu(int(2 * DECODE_S))
        write_message(sink, b"begun")
        size, channels = header["size"], header["channels"]
        scarce = False
        try:
            if header["kind"] == "files":
                decoded = from_files(body, size, channels, limits)
            else:
                decoded = from_arrays(body[0], size, channels, limits)
            for pixels in decoded:
                write_message(sink, b"P" + pixels)
            write_message(sink, b"E")
        except Refused as error:
            scarce = isinstance(getattr(error.__cause__, "__cause__", None), MemoryError)
            refusal = {"kind": error.kind, "detail": error.detail}
            write_message(sink, b"R" + json.dumps(refusal).encode())
        except MemoryError:
            scarce = True
            detail = "Reading the images takes more memory than is allowed here; send fewer or smaller ones."
            write_message(sink, b"R" + json.dumps({"kind": "invalid", "detail": detail}).encode())
        del body
        if scarce:
            return


def main(limits: Limits) -> None:
    """Drop what is not needed, and serve."""
    import numpy as np  # noqa: F401 - loaded before memory is limited

    sink = os.fdopen(os.dup(1), "wb")
    # What decoders of images print goes nowhere: a file may have it print megabytes.
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    gc.disable()  # nested arrays hold no cycles, and looking for some takes longer than reading them
    images.harden_process(limits.decoder_bytes + ARRAY_BYTES, int(2 * DECODE_S))
    serve(sys.stdin.buffer, sink, limits)


if __name__ == "__main__":
    main(Limits(**json.loads(sys.argv[1])))
