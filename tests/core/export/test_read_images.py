"""The card's code reads every kind of image file as the service does, to the pixel."""

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from core.contract.architecture import ImageSettings as ImageSpec
from core.export.card_code import build_image_reading_code
from core.ingest.decoding.resizing import SquareResizing
from core.ingest.images import decode_image

SIZES = [(8, 1), (32, 3), (96, 3), (97, 3), (128, 1), (224, 3)]
"""Side and channels of a model's images: up to 96 pixels without a margin, above with one."""


def photo(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """Smooth colours with fine noise: what a decoder does differently, shows."""
    y, x = np.mgrid[0:height, 0:width]
    waves = np.stack([np.sin(x / 7 + k) * np.cos(y / (9 + k)) for k in range(4)], -1) * 90 + 128
    noise = np.random.default_rng(width).integers(-30, 30, (height, width, 4))
    pixels = np.clip(waves + noise, 0, 255).astype(np.uint8)
    if mode in ("RGB", "RGBA"):
        return Image.fromarray(pixels[..., : len(mode)])
    if mode == "I;16":
        return Image.fromarray(pixels[..., 0].astype(np.uint16) * 251 + 7)
    return Image.fromarray(pixels[..., :3]).convert(mode)


def saved(image: Image.Image, format: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def png_exif_last(image: Image.Image, orientation: int) -> bytes:
    """A PNG whose EXIF comes after its pixels: known only when they were read."""
    data, exif = saved(image, "PNG"), turned(orientation).tobytes().removeprefix(b"Exif\0\0")
    chunk = struct.pack(">I", len(exif)) + b"eXIf" + exif
    return data[:-12] + chunk + struct.pack(">I", zlib.crc32(chunk[4:])) + data[-12:]


def palette_with_transparency() -> bytes:
    image = photo(80, 60).quantize(64)
    return saved(image, "PNG", transparency=bytes(255 if i % 3 else i for i in range(64)))


def frames(format: str) -> bytes:
    pictures = [photo(50 + i, 40, "RGB").resize((50, 40)) for i in range(3)]
    return saved(pictures[0], format, save_all=True, append_images=pictures[1:], duration=50)


FILES: dict[str, Callable[[], bytes]] = {
    **{
        f"jpeg {w}x{h}": lambda w=w, h=h: saved(photo(w, h), "JPEG", quality=90)
        for w, h in (
            (3000, 2000),
            (1601, 900),
            (520, 517),
            (256, 300),
            (224, 224),
            (130, 65),
            (33, 32),
            (9, 8),
        )
    },
    "jpeg progressive": lambda: saved(photo(1500, 1100), "JPEG", progressive=True, quality=85),
    "jpeg grey": lambda: saved(photo(700, 500, "L"), "JPEG"),
    "jpeg CMYK": lambda: saved(photo(900, 700, "CMYK"), "JPEG"),
    "jpeg without subsampling": lambda: saved(photo(801, 601), "JPEG", subsampling=0),
    **{
        f"jpeg turned {i}": lambda i=i: saved(photo(640, 300), "JPEG", exif=turned(i).tobytes())
        for i in range(1, 9)
    },
    "jpeg with broken EXIF": lambda: saved(
        photo(300, 200), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\xff"
    ),
    "jpeg of a camera with several pictures": lambda: saved(
        photo(900, 600),
        "MPO",
        save_all=True,
        append_images=[photo(900, 600)],
        exif=turned(6).tobytes(),
    ),
    "png": lambda: saved(photo(300, 200), "PNG"),
    "png RGBA": lambda: saved(photo(301, 203, "RGBA"), "PNG"),
    "png with one transparent colour": lambda: saved(
        photo(40, 30), "PNG", transparency=(128, 128, 128)
    ),
    "png grey with alpha": lambda: saved(photo(90, 70, "LA"), "PNG"),
    "png palette": lambda: saved(photo(90, 70).quantize(100), "PNG"),
    "png palette with transparency": palette_with_transparency,
    "png 16-bit grey": lambda: saved(photo(90, 70, "I;16"), "PNG"),
    "png 1-bit": lambda: saved(photo(90, 71, "1"), "PNG"),
    "png turned": lambda: saved(photo(90, 71), "PNG", exif=turned(8)),
    "png turned by EXIF behind its pixels": lambda: png_exif_last(photo(90, 71), 6),
    "webp": lambda: saved(photo(400, 300, "RGBA"), "WEBP"),
    "webp turned": lambda: saved(photo(400, 300), "WEBP", exif=turned(5).tobytes()),
    "webp animated": lambda: frames("WEBP"),
    "bmp": lambda: saved(photo(60, 50), "BMP"),
    "tiff 16-bit grey": lambda: saved(photo(90, 70, "I;16"), "TIFF"),
    "tiff CMYK": lambda: saved(photo(90, 70, "CMYK"), "TIFF"),
    "tiff turned": lambda: saved(photo(90, 70), "TIFF", exif=turned(6)),
    "tiff of several pages": lambda: frames("TIFF"),
    "strip 1x600": lambda: saved(photo(1, 600), "PNG"),
    "strip 5000x1": lambda: saved(photo(5000, 1), "PNG"),
    "one pixel": lambda: saved(photo(1, 1), "PNG"),
    "strip of a jpeg": lambda: saved(photo(2000, 3), "JPEG"),
}


LARGEST = pytest.param("jpeg 3000x2000", marks=pytest.mark.campaign)


def reader(size: int, channels: int, **resizing: Any) -> dict[str, Any]:
    """The names that the card's second block defines, for a model with such images."""
    image = {"size": size, "channels": channels, **resizing}
    scope: dict[str, Any] = {"torch": torch, "config": {"image": image}}
    exec(compile(build_image_reading_code(ImageSpec.from_json(image)), "README.md", "exec"), scope)
    return scope


@pytest.mark.parametrize("name", [LARGEST, *(name for name in FILES if name != LARGEST.values[0])])
def test_a_file_becomes_the_same_pixels(tmp_path: Path, name: str) -> None:
    data = FILES[name]()
    (tmp_path / "file").write_bytes(data)
    for size, channels in SIZES:
        ours = decode_image(data, size, channels, 1 << 26)
        theirs = reader(size, channels)["read"](tmp_path / "file").numpy()
        assert theirs.dtype == np.uint8 and np.array_equal(theirs, ours), (size, channels)


RESIZING = [
    (32, 0.875, "bicubic"),
    (64, 1.0, "bilinear"),
    (97, 0.9, "bicubic"),
    (160, 0.95, "nearest"),
    (224, 0.96, "bicubic"),
]
"""Side, crop and interpolation that a base may bring."""
OF_A_BASE = (LARGEST, "jpeg 1601x900", "jpeg 224x224", "jpeg 33x32", "jpeg turned 6", "png", "png turned",
             "png RGBA", "strip of a jpeg")  # fmt: skip


@pytest.mark.parametrize("name", OF_A_BASE)
def test_a_file_becomes_the_same_pixels_with_the_crop_and_interpolation_of_a_base(
    tmp_path: Path, name: str
) -> None:
    data = FILES[name]()
    (tmp_path / "file").write_bytes(data)
    for size, crop, interpolation in RESIZING:
        ours = decode_image(data, size, 3, 1 << 26, SquareResizing(crop, interpolation))
        read = reader(size, 3, crop=crop, interpolation=interpolation)["read"]
        assert np.array_equal(read(tmp_path / "file").numpy(), ours), (size, crop, interpolation)


def test_what_the_service_refuses_the_card_refuses_too(tmp_path: Path) -> None:
    Image.fromarray(np.arange(64, dtype=np.int32).reshape(8, 8) << 20).save(tmp_path / "file.tiff")
    with pytest.raises(ValueError, match="32-bit pixels"):
        reader(8, 3)["read"](tmp_path / "file.tiff")
