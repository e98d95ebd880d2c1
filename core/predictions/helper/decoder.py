"""Stage 4 of predict, the process that decodes images: `python -m core.predictions.helper.decoder`.

Without torch and without keys, under limits of memory and CPU time, it turns files or nested arrays
into square uint8 images. `api.predict.decoder` starts it, and ends it if an image takes too long.
Messages are framed as in `core.processes.messages`: a request is JSON followed by the raw bytes that it
announces. The response is `begun`, then `N` and the number of images in the request, then one
message for each requested image: `P` and its pixels; `U` and the reason why it cannot be used; or
`M` and the reason, after which the process has too little memory to continue. `E` instead of the
next one ends a response whose time is over. An invalid request gets `R` and the reason.
"""

import gc
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from core.errors import ImageInvalid
from core.ingest import images
from core.ingest.decoding.resizing import SquareResizingSettings
from core.ingest.limits import PREDICT_IMAGES, ArchiveLimits
from core.processes.messages import (
    read_framed_message,
    read_pipe_bytes_exactly,
    write_framed_message,
)

ARRAY_BYTES = 1 << 30
"""Address space for nested arrays as objects, in bytes, beyond what a file may take."""
START_CPU_S = 60
_NUMBERS = "it must be H×W or H×W×C numbers from 0 to 255"


class InvalidDecodeRequest(Exception):
    """Raised for a decoding request without a list of images; its text says why."""


def decode_image_files(
    files: Sequence[bytes],
    size: int,
    channels: int,
    limits: ArchiveLimits,
    resizing: SquareResizingSettings,
) -> Iterator[bytes | ImageInvalid]:
    """Decode image files: yield the pixels of each, or the reason why it cannot be used."""
    for data in files:
        try:
            image = images.decode_square_image(
                data, size, channels, limits.image_pixels, resizing
            ).image
            yield image.tobytes()
        except ImageInvalid as error:
            yield error


def decode_nested_image_arrays(
    value: Sequence[Any],
    size: int,
    channels: int,
    limits: ArchiveLimits,
    resizing: SquareResizingSettings,
) -> Iterator[bytes | ImageInvalid]:
    """Decode nested JSON arrays H×W or H×W×C of values 0 … 255: yield pixels, or why one cannot be
    used.
    """
    for image in value:
        try:
            yield _decode_image_array_to_pixels(image, size, channels, limits, resizing)
        except ImageInvalid as error:
            yield error


def _decode_image_array_to_pixels(
    image: Any, size: int, channels: int, limits: ArchiveLimits, resizing: SquareResizingSettings
) -> bytes:
    """Convert one nested array of an image to pixels.

    Raises:
        ImageInvalid: the array cannot be used.
    """
    import numpy as np

    # Before NumPy looks at every element: an empty row, or far too many rows, can be seen in the
    # first one.
    if not (isinstance(image, list) and image and isinstance(image[0], list) and image[0]):
        raise ImageInvalid(_NUMBERS)
    if len(image) * len(image[0]) > limits.image_pixels:
        raise ImageInvalid(f"it has more than {limits.image_pixels} pixels")
    try:
        array = np.asarray(image)
        if array.ndim not in (2, 3) or array.dtype.kind not in "iuf" or not array.size:
            raise ImageInvalid(_NUMBERS)
        if array.ndim == 3 and array.shape[2] not in (1, 3, 4):
            raise ImageInvalid(f"it has {array.shape[2]} channels; 1, 3 or 4 are possible")
        if not ((array >= 0) & (array <= 255) & (array == np.floor(array))).all():
            raise ImageInvalid("it must hold whole numbers from 0 to 255")
        return images.convert_to_square_array(
            array.astype(np.uint8), size, channels, resizing
        ).tobytes()
    except (ValueError, OverflowError) as error:
        raise ImageInvalid("it is not a rectangular array") from error
    except MemoryError as error:
        raise ImageInvalid("it takes too much memory") from error


def parse_json_images(text: bytes) -> list[Any]:
    """Parse the images in a JSON text: nested arrays N×H×W or N×H×W×C, or `{"images": …}`.

    Raises:
        InvalidDecodeRequest: the text is something else.
    """
    try:
        # Repeated names are refused, since parsers disagree about which one counts.
        value = json.loads(
            text.decode("utf-8"), object_pairs_hook=_build_dict_without_repeated_names
        )
    except (ValueError, RecursionError) as error:
        raise InvalidDecodeRequest(
            "The body is not JSON in UTF-8, or names something twice."
        ) from error
    if isinstance(value, dict):
        if set(value) != {"images"}:
            raise InvalidDecodeRequest(
                'The body must be nested arrays, {"images": nested arrays} or {"instances": '
                '[{"b64": "…"}]}.'
            )
        value = value["images"]
    if not isinstance(value, list) or not 1 <= len(value) <= PREDICT_IMAGES:
        raise InvalidDecodeRequest(f"images must be a list of 1 to {PREDICT_IMAGES} images.")
    return value


def _build_dict_without_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a dict from the pairs of a JSON object; ValueError for a repeated name."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name appears twice")
    return value


def serve_decoding_requests(source: BinaryIO, sink: BinaryIO, limits: ArchiveLimits) -> None:
    """Serve requests to decode images until the source ends or memory runs out."""
    while True:
        try:
            header = json.loads(read_framed_message(source))
            body = [read_pipe_bytes_exactly(source, count) for count in header["sizes"]]
        # The API process closed the pipe: it has ended, or wants to replace this process.
        except EOFError:
            return
        # CPU time counts for the whole process, so each request gets a new limit.
        images.extend_process_cpu_limit(int(header["cpu_s"]) + 1)
        write_framed_message(sink, b"begun")
        try:
            for message in _decode_images_to_messages(header, body, limits):
                write_framed_message(sink, message)
                if message[:1] == b"M":
                    return
        except InvalidDecodeRequest as error:
            write_framed_message(sink, b"R" + str(error).encode())
        except MemoryError:
            write_framed_message(
                sink,
                b"RReading the images takes more memory than is allowed here; send fewer or "
                b"smaller ones.",
            )
            return
        # The next request may come much later; until then, this memory would stay in use.
        del body


def _decode_images_to_messages(
    header: Mapping[str, Any], body: Sequence[bytes], limits: ArchiveLimits
) -> Iterator[bytes]:
    """Yield the messages of a decoding response after `begun`: one per image.

    Raises:
        InvalidDecodeRequest: before the first message.
    """
    files = header["kind"] == "files"
    all_images: Sequence[Any] = body if files else parse_json_images(body[0])
    yield b"N%d" % len(all_images)
    begin, count, end = header["begin"], header["most"], time.monotonic() + header["turn_s"]
    read = decode_image_files if files else decode_nested_image_arrays
    chosen = all_images[begin : begin + count]
    resizing = SquareResizingSettings.from_json(header)
    for done, pixels in enumerate(
        read(chosen, header["size"], header["channels"], limits, resizing), 1
    ):
        if isinstance(pixels, bytes):
            yield b"P" + pixels
        else:
            scarce = isinstance(pixels.__cause__, MemoryError)
            yield (b"M" if scarce else b"U") + pixels.detail.encode()
        if time.monotonic() > end and done < len(chosen):
            # The caller gives other owners their turn, and asks for the rest later.
            yield b"E"
            return


def run_image_decoder(limits: ArchiveLimits) -> None:
    """Limit this decoder process's memory and CPU time, then serve decoding requests."""
    import numpy as np  # noqa: F401 - loaded before memory is limited

    sink = os.fdopen(os.dup(1), "wb")
    # What image decoders print is discarded: a file may cause megabytes of it.
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    # nested arrays have no cycles, and looking for some takes longer than reading the arrays
    gc.disable()
    images.limit_decoding_process_resources(limits.decoder_memory_bytes + ARRAY_BYTES, START_CPU_S)
    serve_decoding_requests(sys.stdin.buffer, sink, limits)


if __name__ == "__main__":
    run_image_decoder(ArchiveLimits(**json.loads(sys.argv[1])))
