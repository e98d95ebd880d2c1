"""Damaged inputs for the readers of untrusted bytes, made from honest ones by number.

`mutated(target, number)` is a pure function: a finding is reproduced by its number alone. After
most edits the container's own checksums are made true again (tar, PNG, gzip, the length of a
safetensors header), or nearly every input would die at the first check and the code behind it would
never be reached.
"""

import gzip
import io
import json
import random
import struct
import zlib
from collections.abc import Callable
from functools import cache

import numpy as np
from PIL import Image

from tests.core.ingest import hostile_corpus as corpus

Edit = Callable[[random.Random, bytes], bytes]
_EDGES = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    1 << 62,
    (1 << 64) - 1,
)
_WORDS = (
    b"", b"\0", b"../", b"/", b"\xff" * 4, b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x07", b"%s%n", b"\x80\x04",
)  # fmt: skip
_TEXTS = (b'"', b"'", b",", b"\n", b"\r", b"[" * 70, b"{", b"}", b"NaN", b"1e999", b"-1", b"9" * 25, b"\xef\xbb\xbf",
          b"\\ud800", b"\xed\xa0\x80", b"=1+1", b"../x", b"U1073741824", b"|O", b"True", b"\0")  # fmt: skip


def mutate_seed(target: str, number: int) -> bytes:
    """Return input `number` of a target: one of its seeds after one to six edits.
    The numbers 0 … are other seeds.
    """
    draw = random.Random(f"{target}/{number}")
    seeds, repair = _build_seeds(target), TARGETS[target][1]
    data = draw.choice(seeds)
    unwrap, wrap = (
        repair if repair is not None and draw.random() < 0.9 else (_return_same, _return_same)
    )
    inner = unwrap(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 6))):
        inner = _edit_bytes(draw, inner, seeds, text=target in _TEXTUAL)
    try:
        return wrap(inner)
    except (struct.error, OverflowError):  # cut too short to be repaired
        return inner


def _edit_bytes(draw: random.Random, data: bytes, seeds: list[bytes], *, text: bool) -> bytes:
    if not data:
        return draw.randbytes(draw.randrange(64))
    # Heads and tails hold what decides; the middle is pixels.
    at = draw.randrange(len(data))
    if draw.random() < 0.5:
        at = min(draw.randrange(1200), len(data) - 1)
        at = len(data) - 1 - at if draw.random() < 0.5 else at
    match draw.randrange(9):
        case 0:
            return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
        case 1:
            width, order = draw.choice((1, 2, 4, 8)), draw.choice(("little", "big"))
            value = (draw.choice(_EDGES) + draw.randrange(-1, 2)) % (1 << 8 * width)
            return data[:at] + value.to_bytes(width, order) + data[at + width :]
        case 2:
            return data[:at] + data[at + draw.choice((1, 2, 4, 30, 512)) :]
        case 3:
            return data[:at] + draw.choice(_TEXTS if text else _WORDS) + data[at:]
        case 4:
            return data[:at] + draw.randbytes(draw.randrange(1, 12)) + data[at:]
        case 5:
            size = draw.choice((1, 16, 46, 512, 4000))
            return data[:at] + data[at : at + size] * draw.choice((2, 2, 3, 40)) + data[at + size :]
        case 6:
            return data[:at]
        case 7:
            other = draw.choice(seeds)
            return data[:at] + other[draw.randrange(len(other)) :][:4000] + data[at:]
        case _:
            word = draw.choice(_TEXTS if text else _WORDS)
            return data[:at] + word + data[at + len(word) :]


def _return_same(data: bytes) -> bytes:
    return data


def _repair_tar_checksums(data: bytes) -> bytes:
    """Give every block that looks like a header a true checksum."""
    out = bytearray(data)
    for at in range(0, len(out) - 511, 512):
        if out[at + 257 : at + 262] == b"ustar":
            out[at + 148 : at + 156] = b" " * 8
            out[at + 148 : at + 156] = f"{sum(out[at : at + 512]):06o}\0 ".encode()
    return bytes(out)


def _repair_png_checksums(data: bytes) -> bytes:
    out, at = bytearray(data), 8
    while at + 12 <= len(out):
        (length,) = struct.unpack_from(">I", out, at)
        end = at + 8 + length
        if end + 4 > len(out):
            break
        out[end : end + 4] = struct.pack(">I", zlib.crc32(out[at + 4 : end]))
        at = end + 4
    return bytes(out)


def _split_header(data: bytes) -> bytes:
    """Return the JSON header of a safetensors file, and its tensors behind a mark."""
    (length,) = struct.unpack_from("<Q", data)
    return data[8 : 8 + length] + b"\x01\x02MARK" + data[8 + length :]


def _join_header(inner: bytes) -> bytes:
    header, _, rest = inner.partition(b"\x01\x02MARK")
    return struct.pack("<Q", len(header)) + header + rest


def _build_zip_seeds() -> list[bytes]:
    csv = corpus.draw_pictures(1) | {"labels.csv": b"path,label\ncat/0.png,x\ndog/0.png,y\n"}
    return [
        corpus.build_zip(corpus.draw_pictures(2)),
        corpus.build_zip(corpus.draw_pictures(2), 8),
        corpus.build_zip64(),
        corpus.build_zip(csv),
        corpus.build_quoted_overlap_zip(3),
    ]


def _build_tar_seeds() -> list[bytes]:
    long = corpus.build_tar_entry(b"././@LongLink", b"cat/" + b"n" * 150 + b".png", b"L")
    return [
        corpus.build_tar(
            corpus.draw_pictures(2),
            corpus.build_pax_entry({"path": "cat/z.png"}),
            corpus.build_tar_entry(b"x", b"y"),
        ),
        corpus.build_tar(
            corpus.draw_pictures(1), long, corpus.build_tar_entry(b"cat/n", corpus.draw_png(9))
        ),
        corpus.build_tar(corpus.draw_pictures(1) | {"labels.csv": b"path,label\ncat/0.png,x\n"}),
    ]


def _build_npz_seeds() -> list[bytes]:
    named = corpus.build_good_arrays(4) | {"classes": np.array(["cat", "dög"])}
    test = corpus.build_good_arrays(4) | {
        "test_images": np.zeros((2, 8, 8, 3), np.uint8),
        "test_labels": np.array([0, 1]),
    }
    text = corpus.build_good_arrays(4) | {"labels": np.array(["a", "b", "a", "b"])}
    return [corpus.build_npz(arrays, method) for arrays in (named, test, text) for method in (0, 8)]


def _build_npy_seeds() -> list[bytes]:
    return [corpus.build_npy(value) for value in corpus.build_good_arrays(4).values()]  # type: ignore[arg-type]


def _wrap_in_npz(labels: bytes) -> bytes:
    """Build an honest zip around one member that is not.
    Its sizes and checksums are those of the zip.
    """
    return corpus.build_npz(corpus.build_good_arrays(4) | {"labels": labels})


def _build_csv_seeds() -> list[bytes]:
    rows = "".join(
        f"{label}/{i}.png,{label},{'test' if i else 'train'}\n"
        for label in ("cat", "dog")
        for i in range(2)
    )
    return [
        ("path,label,split\n" + rows).encode(),
        '\ufeffpath,label\r\n"cat/0.png","dög, 1"\r\n'.encode(),
    ]


def _build_image_seeds() -> list[bytes]:
    found = [corpus.draw_png(seed, (24, 17), mode, kind) for seed, (mode, kind) in enumerate(
        [("RGB", "PNG"), ("L", "PNG"), ("RGB", "JPEG"), ("RGB", "WEBP"), ("RGB", "BMP"), ("RGB", "TIFF"),
         ("L", "TIFF"), ("L", "GIF"), ("RGB", "AVIF")])]  # fmt: skip
    pixels = Image.fromarray(np.random.default_rng(5).integers(0, 256, (17, 24, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    wide = Image.fromarray(np.arange(24 * 17, dtype=np.uint16).reshape(17, 24))
    for image, kind, options in (
        (pixels, "JPEG", {"progressive": True, "exif": exif.tobytes()}),
        (pixels.convert("CMYK"), "JPEG", {}),
        (pixels, "WEBP", {"lossless": True, "exif": exif.tobytes()}),
        (pixels, "PNG", {"save_all": True, "append_images": [pixels.rotate(90)]}),
        (pixels.convert("P"), "PNG", {"transparency": 0}),
        (wide, "PNG", {}),
        (pixels, "TIFF", {"compression": "tiff_lzw"}),
        (pixels, "TIFF", {"compression": "tiff_adobe_deflate"}),
        (pixels.convert("1"), "TIFF", {"compression": "group4"}),
        (pixels.convert("P"), "BMP", {}),
    ):
        out = io.BytesIO()
        image.save(out, kind, **options)
        found.append(out.getvalue())
    return found


def _build_safetensors_seeds() -> list[bytes]:
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "I64", "shape": [], "data_offsets": [24, 32]},
    }
    text = json.dumps(header).encode()
    return [struct.pack("<Q", len(text)) + text + bytes(32), struct.pack("<Q", 2) + b"{}"]


def _build_json_seeds() -> list[bytes]:
    body = {
        "name": "birds",
        "scenario": "class",
        "recipe": {"method": "er", "epochs": 3, "rate": 1.5e-3},
    }
    return [json.dumps(body).encode(), json.dumps({"images": [[[1, 2], [3, 4]]]}).encode()]


def _build_form_seeds() -> list[bytes]:
    part = (
        b'--xx\r\nContent-Disposition: form-data; name="%s"; filename="a"\r\nContent-Type: '
        b"image/png\r\n\r\n%s\r\n"
    )
    picture = corpus.draw_png(1)
    return [
        part % (b"file", b"PK\x03\x04data") + part % (b"recipe", b"{}") + b"--xx--\r\n",
        part % (b"image", picture) + part % (b"image", picture) + b"--xx--\r\n",
    ]


def _build_array_seeds() -> list[bytes]:
    return [
        json.dumps([[[1, 2], [3, 4]]] * 2).encode(),
        json.dumps({"images": [[[[1, 2, 3]] * 2] * 2]}).encode(),
    ]


Repair = tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]] | None
TARGETS: dict[str, tuple[Callable[[], list[bytes]], Repair]] = {
    "zip": (_build_zip_seeds, None),
    "tar": (_build_tar_seeds, (_return_same, _repair_tar_checksums)),
    "gzip": (
        _build_tar_seeds,
        (_return_same, lambda data: gzip.compress(_repair_tar_checksums(data), 1, mtime=0)),
    ),
    "npz": (_build_npz_seeds, None),
    "npy": (_build_npy_seeds, (_return_same, _wrap_in_npz)),
    "csv": (_build_csv_seeds, None),
    "image": (_build_image_seeds, (_return_same, _repair_png_checksums)),
    "safetensors": (_build_safetensors_seeds, (_split_header, _join_header)),
    "json": (_build_json_seeds, None),
    "arrays": (_build_array_seeds, None),
    "form": (_build_form_seeds, None),
}
"""Name → (its seeds, how to make an edited input consistent again)."""
_TEXTUAL = frozenset({"csv", "safetensors", "json", "form", "npy", "arrays"})


@cache
def _build_seeds(target: str) -> list[bytes]:
    return TARGETS[target][0]()
