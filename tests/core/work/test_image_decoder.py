"""The decoder beside the predict helper: what a poisonous image costs, and that nothing else pays for it."""

import io
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from core.ingest.images import decode, square_array
from core.ingest.limits import Limits
from core.work import image_decoder
from core.work.image_decoder import CRASHED, ImageDecoder, Refused

ROOT = Path(__file__).resolve().parents[3]
# Files that end in SEGV read address 0, those that end in HANG sleep, those that end in EAT want 64 GiB.
FAKE_CORE = """
import ctypes, time
__path__ = [{path!r}]
from core.ingest import images
real = images.open_square
def poisoned(data, *rest):
    if data.endswith(b"SEGV"):
        ctypes.string_at(0)
    if data.endswith(b"HANG"):
        time.sleep(1000)
    if data.endswith(b"EAT"):
        kept = bytearray(64 << 30)
    return real(data, *rest)
images.open_square = poisoned
"""


@pytest.fixture(scope="module")
def decoder() -> Iterator[ImageDecoder]:
    made = ImageDecoder(Limits())
    yield made
    made.close()


@pytest.fixture
def poisonable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ImageDecoder]:
    """A decoder that some files kill, with two seconds for a request."""
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").write_text(FAKE_CORE.format(path=str(ROOT / "core")))
    monkeypatch.setattr(image_decoder, "ROOT", tmp_path)
    made = ImageDecoder(Limits(), decode_s=2)
    yield made
    made.close()


def picture(seed: int = 0, side: int = 12) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)


def png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def test_files_and_arrays_come_back_in_order_as_ingest_decodes_them(decoder: ImageDecoder) -> None:
    pixels = [picture(seed) for seed in range(3)]
    files = [png(one) for one in pixels]
    expected = [decode(data, 8, 3, Limits().image_pixels) for data in files]
    assert np.array_equal(decoder.decode("files", files, 8, 3), expected)
    text = json.dumps({"images": [one.tolist() for one in pixels]}).encode()
    assert np.array_equal(decoder.decode("arrays", [text], 8, 1), [square_array(one, 8, 1) for one in pixels])


def test_an_image_that_crashes_the_decoder_is_refused_by_its_number_and_the_next_request_is_answered(
    poisonable: ImageDecoder,
) -> None:
    good, first = png(picture()), poisonable.pid
    with pytest.raises(Refused, match="Image 1 cannot be used") as caught:
        poisonable.decode("files", [good, good + b"SEGV", good], 8, 3)
    assert CRASHED in caught.value.detail
    assert len(poisonable.decode("files", [good], 8, 3)) == 1
    assert poisonable.pid != first


def test_an_image_that_takes_too_long_is_refused_by_its_number(poisonable: ImageDecoder) -> None:
    good = png(picture())
    with pytest.raises(Refused, match=r"Image 2 cannot be used: decoding takes longer than 2 s"):
        poisonable.decode("files", [good, good, good + b"HANG"], 8, 3)
    assert len(poisonable.decode("files", [good], 8, 3)) == 1


def test_an_image_that_takes_too_much_memory_is_refused_and_leaves_a_fresh_process(
    poisonable: ImageDecoder,
) -> None:
    good, first = png(picture()), poisonable.pid
    with pytest.raises(Refused, match="memory"):
        poisonable.decode("files", [good + b"EAT"], 8, 3)
    assert len(poisonable.decode("files", [good], 8, 3)) == 1
    assert poisonable.pid != first


def test_a_bad_image_ends_no_process(decoder: ImageDecoder) -> None:
    pid = decoder.pid
    for bad in (b"", png(picture())[:60], b"GIF89a" + bytes(60)):
        with pytest.raises(Refused, match="Image 0 cannot be used"):
            decoder.decode("files", [bad], 8, 3)
    assert decoder.pid == pid


def test_a_decoder_killed_from_outside_costs_nothing(decoder: ImageDecoder) -> None:
    good = png(picture())
    assert decoder.pid is not None
    os.kill(decoder.pid, signal.SIGKILL)
    assert len(decoder.decode("files", [good], 8, 3)) == 1


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ('{"images": [[[1]]], "images": [[[2]]]}', "invalid", "twice"),
        ("[[[NaN]]]", "image", "whole numbers"),
        ("[[[1e999]]]", "image", "whole numbers"),
        (f"[[[{'9' * 5000}]]]", "invalid", "not JSON"),
        (f"[[[{'9' * 30}]]]", "image", "numbers"),
        ("[" * 100_000, "invalid", "not JSON"),
        (f"[{'[' * 80}{']' * 80}]", "image", "rectangular|numbers"),
        ('[[["1"]]]', "image", "numbers"),
        ("[[[true]]]", "image", "numbers"),
        ("[[[]]]", "image", "numbers"),
        ("[[[1, 2], [3]]]", "image", "rectangular"),
        ('{"images": {}}', "invalid", "list"),
        ("\ud800", "invalid", "UTF-8"),
    ],
)
def test_arrays_that_are_none_are_refused(decoder: ImageDecoder, text: str, kind: str, said: str) -> None:
    with pytest.raises(Refused, match=said) as caught:
        decoder.decode("arrays", [text.encode("utf-8", "surrogatepass")], 8, 3)
    assert caught.value.kind == kind


def test_text_that_numpy_would_spread_over_memory_is_refused(decoder: ImageDecoder) -> None:
    row = ['"' + "x" * (1 << 20) + '"', *["1"] * 100_000]
    with pytest.raises(Refused, match="memory"):
        decoder.decode("arrays", [f"[[[{','.join(row)}]]]".encode()], 8, 3)


def test_the_decoder_has_no_secrets_no_torch_and_little_memory(
    decoder: ImageDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERENNIAL_STORE_SECRET_KEY", "hush")
    decoder.start()
    decoder.decode("files", [png(picture())], 8, 3)
    process = psutil.Process(decoder.pid)
    assert "PERENNIAL_STORE_SECRET_KEY" not in process.environ()
    assert not any("torch" in found.path for found in process.memory_maps())
    assert process.memory_info().rss < 128 << 20
