"""The decoder beside the predict helper: what a poisonous image costs, and that nothing else pays
for it.
"""

import io
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

from api.predict import decoder as decoders
from api.predict.decoder import CRASHED, DecodedImages, DecodeRequest, ImageDecoder
from core.errors import Invalid
from core.ingest.images import convert_to_square_array, decode_image_to_square_pixels
from core.ingest.limits import PREDICT_IMAGES, ArchiveLimits
from core.processes import helper_process
from core.settings import Settings

# Files that end in SEGV read address 0, those that end in HANG say so and sleep, those that end in
# EAT want 64 GiB.
FAKE_CORE = """
import ctypes, pathlib, time
__path__ = [{path!r}]
from core.ingest import images
real = images.decode_square_image
def poisoned(data, *rest):
    if data.endswith(b"SEGV"):
        ctypes.string_at(0)
    if data.endswith(b"HANG"):
        pathlib.Path({hanging!r}).touch()
        time.sleep(1000)
    if data.endswith(b"EAT"):
        kept = bytearray(64 << 30)
    return real(data, *rest)
images.decode_square_image = poisoned
"""


@pytest.fixture(scope="module")
def decoder() -> Iterator[ImageDecoder]:
    made = ImageDecoder(Settings(predict_turn_s=60))
    yield made
    made.close()


@pytest.fixture
def poisonable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ImageDecoder]:
    """A decoder that some files kill, with a second for an image, by a clock that goes on while an
    image hangs.
    """
    (tmp_path / "core").mkdir()
    hanging, now = tmp_path / "hanging", [0.0]
    core = FAKE_CORE.format(path=str(helper_process.ROOT / "core"), hanging=str(hanging))
    (tmp_path / "core" / "__init__.py").write_text(core)
    monkeypatch.setattr(helper_process, "ROOT", tmp_path)

    def is_readable(pipe: Any, end: float) -> bool:
        while not readable(pipe, now[0] + 0.02):
            if hanging.exists():
                hanging.unlink()
                now[0] = end
                return False
        return True

    readable = decoders._wait_until_pipe_readable
    monkeypatch.setattr(decoders, "_wait_until_pipe_readable", is_readable)
    monkeypatch.setattr(decoders, "time", SimpleNamespace(monotonic=lambda: now[0]))
    made = ImageDecoder(Settings(predict_turn_s=60, predict_image_s=1))
    yield made
    made.close()


def test_a_pipe_is_waited_for_until_the_clock_says_so() -> None:
    reading, writing = os.pipe()
    with (
        os.fdopen(reading, "rb", buffering=0) as pipe,
        os.fdopen(writing, "wb", buffering=0) as other,
    ):
        assert not decoders._wait_until_pipe_readable(pipe, time.monotonic() + 0.01)
        other.write(b"x")
        assert decoders._wait_until_pipe_readable(pipe, time.monotonic() - 1)


def decode_body(
    decoder: ImageDecoder,
    kind: str,
    body: list[bytes],
    size: int,
    channels: int,
    left_s: float = 20.0,
) -> DecodedImages:
    return decoder.decode_images(
        DecodeRequest(kind, body, 0, PREDICT_IMAGES, size, channels, left_s)
    )


def find_unusable_images(decoded: DecodedImages) -> dict[int, str]:
    """Return why images cannot be used, by their positions."""
    return {position: one for position, one in enumerate(decoded.images) if isinstance(one, str)}


def collect_pixels(decoded: DecodedImages, size: int = 8, channels: int = 3) -> np.ndarray:
    """Return the pixels of the usable images, as uint8 [count, size, size, channels]."""
    usable = b"".join(one for one in decoded.images if isinstance(one, bytes))
    return np.frombuffer(usable, np.uint8).reshape(-1, size, size, channels)


def draw_image(seed: int = 0, side: int = 12) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)


def encode_png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def test_files_and_arrays_come_back_in_order_as_ingest_decodes_them(decoder: ImageDecoder) -> None:
    pixels = [draw_image(seed) for seed in range(3)]
    files = [encode_png(one) for one in pixels]
    expected = [
        decode_image_to_square_pixels(data, 8, 3, ArchiveLimits().image_pixels) for data in files
    ]
    assert np.array_equal(collect_pixels(decode_body(decoder, "files", files, 8, 3)), expected)
    text = json.dumps({"images": [one.tolist() for one in pixels]}).encode()
    found = decode_body(decoder, "arrays", [text], 8, 1)
    assert np.array_equal(
        collect_pixels(found, channels=1), [convert_to_square_array(one, 8, 1) for one in pixels]
    )
    assert not find_unusable_images(found)


@pytest.mark.slow
def test_an_image_that_crashes_the_decoder_is_named_and_the_others_are_decoded(
    poisonable: ImageDecoder,
) -> None:
    files, first = [encode_png(draw_image(seed)) for seed in range(4)], poisonable.pid
    found = decode_body(
        poisonable, "files", [files[0], files[1] + b"SEGV", files[2], files[3] + b"SEGV"], 8, 3
    )
    assert find_unusable_images(found) == {1: CRASHED, 3: CRASHED}
    assert np.array_equal(
        collect_pixels(found),
        collect_pixels(decode_body(poisonable, "files", [files[0], files[2]], 8, 3)),
    )
    assert poisonable.pid != first


def test_an_image_that_takes_too_long_is_named_and_the_others_are_decoded(
    poisonable: ImageDecoder,
) -> None:
    good = encode_png(draw_image())
    found = decode_body(poisonable, "files", [good, good + b"HANG", good], 8, 3)
    assert (
        find_unusable_images(found) == {1: "decoding takes longer than 1 s"}
        and len(collect_pixels(found)) == 2
    )


def test_images_that_take_too_long_together_leave_a_decoder_that_answers(
    poisonable: ImageDecoder,
) -> None:
    good, slow = encode_png(draw_image()), "decoding takes longer than 1 s"
    found = decode_body(poisonable, "files", [good, *[good + b"HANG"] * 20, good], 8, 3, left_s=2.5)
    assert found.paused and found.spent_s == 2.5 and len(found.images) == 3
    assert find_unusable_images(found) == {1: slow, 2: slow}
    assert len(collect_pixels(decode_body(poisonable, "files", [good], 8, 3))) == 1


@pytest.mark.parametrize("kind", ["files", "arrays"])
def test_a_decoder_that_has_taken_its_time_pauses_after_an_image_and_goes_on_from_there(
    kind: str,
) -> None:
    pixels = [draw_image(seed) for seed in range(5)]
    body = (
        [encode_png(one) for one in pixels]
        if kind == "files"
        else [json.dumps([p.tolist() for p in pixels]).encode()]
    )
    hasty, found = ImageDecoder(Settings(predict_turn_s=1e-9)), []
    try:
        for position in range(5):
            files = kind == "files"
            given = body[position:] if files else body
            wanted = DecodeRequest(kind, given, 0 if files else position, 5, 8, 3, 20.0)
            decoded = hasty.decode_images(wanted)
            assert len(decoded.images) == 1 and decoded.paused == (position < 4)
            found += decoded.images
    finally:
        hasty.close()
    assert np.array_equal(
        collect_pixels(DecodedImages(5, found)),
        [convert_to_square_array(one, 8, 3) for one in pixels],
    )


def test_an_image_that_takes_too_much_memory_is_named_and_the_others_are_decoded_by_a_fresh_process(
    poisonable: ImageDecoder,
) -> None:
    good, first = encode_png(draw_image()), poisonable.pid
    found = decode_body(poisonable, "files", [good + b"EAT", good], 8, 3)
    assert (
        list(find_unusable_images(found)) == [0]
        and "memory" in find_unusable_images(found)[0]
        and len(collect_pixels(found)) == 1
    )
    assert poisonable.pid != first


def test_a_bad_image_ends_no_process(decoder: ImageDecoder) -> None:
    pid, good = decoder.pid, encode_png(draw_image())
    for bad in (b"", good[:60], b"BM" + bytes(60)):
        found = decode_body(decoder, "files", [good, bad, good], 8, 3)
        assert list(find_unusable_images(found)) == [1] and len(collect_pixels(found)) == 2
    assert decoder.pid == pid


def test_a_bad_array_costs_itself_alone(decoder: ImageDecoder) -> None:
    good = draw_image()
    found = decode_body(
        decoder, "arrays", [json.dumps([[[300]], good.tolist(), [[1], [2, 3]]]).encode()], 8, 3
    )
    assert np.array_equal(collect_pixels(found), [convert_to_square_array(good, 8, 3)])
    reasons = {0: "it must hold whole numbers from 0 to 255", 2: "it is not a rectangular array"}
    assert find_unusable_images(found) == reasons


def test_a_decoder_killed_from_outside_costs_nothing(decoder: ImageDecoder) -> None:
    good = encode_png(draw_image())
    assert decoder.pid is not None
    os.kill(decoder.pid, signal.SIGKILL)
    assert len(collect_pixels(decode_body(decoder, "files", [good], 8, 3))) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[[NaN]]]", "whole numbers"),
        ("[[[1e999]]]", "whole numbers"),
        (f"[[[{'9' * 30}]]]", "numbers"),
        (f"[{'[' * 80}{']' * 80}]", "rectangular|numbers"),
        ('[[["1"]]]', "numbers"),
        ("[[[true]]]", "numbers"),
        ("[[[]]]", "numbers"),
        ("[[[1, 2], [3]]]", "rectangular"),
    ],
)
def test_an_array_that_is_no_image_is_named(decoder: ImageDecoder, text: str, said: str) -> None:
    found = decode_body(decoder, "arrays", [text.encode()], 8, 3)
    assert list(find_unusable_images(found)) == [0] and re.search(
        said, find_unusable_images(found)[0]
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"images": [[[1]]], "images": [[[2]]]}', "twice"),
        (f"[[[{'9' * 5000}]]]", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"images": {}}', "list"),
        ("\ud800", "UTF-8"),
    ],
)
def test_a_body_that_is_no_list_of_arrays_is_refused(
    decoder: ImageDecoder, text: str, said: str
) -> None:
    with pytest.raises(Invalid, match=said):
        decode_body(decoder, "arrays", [text.encode("utf-8", "surrogatepass")], 8, 3)


def test_text_that_numpy_would_spread_over_memory_is_named(decoder: ImageDecoder) -> None:
    row = ['"' + "x" * (1 << 20) + '"', *["1"] * 100_000]
    found = decode_body(decoder, "arrays", [f"[[[{','.join(row)}]], [[1]]]".encode()], 8, 3)
    assert (
        list(find_unusable_images(found)) == [0]
        and "memory" in find_unusable_images(found)[0]
        and len(collect_pixels(found)) == 1
    )


def test_the_decoder_has_no_torch_and_little_memory(decoder: ImageDecoder) -> None:
    decode_body(decoder, "files", [encode_png(draw_image())], 8, 3)
    process = psutil.Process(decoder.pid)
    assert not any("torch" in found.path for found in process.memory_maps())
    assert process.memory_info().rss < 128 << 20
