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
from core.ingest.decoding.resizing import SquareResizingSettings
from core.ingest.images import decode_image_to_square_pixels

SIZES = [(8, 1), (32, 3), (96, 3), (97, 3), (128, 1), (224, 3)]
"""Side and channels of a model's images: up to 96 pixels without a margin, above with one."""


def draw_photo(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """Draw smooth colours with fine noise, which shows what a decoder does differently."""
    y, x = np.mgrid[0:height, 0:width]
    waves = np.stack([np.sin(x / 7 + k) * np.cos(y / (9 + k)) for k in range(4)], -1) * 90 + 128
    noise = np.random.default_rng(width).integers(-30, 30, (height, width, 4))
    pixels = np.clip(waves + noise, 0, 255).astype(np.uint8)
    if mode in ("RGB", "RGBA"):
        return Image.fromarray(pixels[..., : len(mode)])
    if mode == "I;16":
        return Image.fromarray(pixels[..., 0].astype(np.uint16) * 251 + 7)
    return Image.fromarray(pixels[..., :3]).convert(mode)


def encode_image(image: Image.Image, format: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def build_orientation_exif(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def build_png_with_exif_last(image: Image.Image, orientation: int) -> bytes:
    """Build a PNG whose EXIF comes after its pixels, and is known only once they are read."""
    data, exif = (
        encode_image(image, "PNG"),
        build_orientation_exif(orientation).tobytes().removeprefix(b"Exif\0\0"),
    )
    chunk = struct.pack(">I", len(exif)) + b"eXIf" + exif
    return data[:-12] + chunk + struct.pack(">I", zlib.crc32(chunk[4:])) + data[-12:]


def build_transparent_palette_png() -> bytes:
    image = draw_photo(80, 60).quantize(64)
    return encode_image(image, "PNG", transparency=bytes(255 if i % 3 else i for i in range(64)))


def encode_frames(format: str) -> bytes:
    pictures = [draw_photo(50 + i, 40, "RGB").resize((50, 40)) for i in range(3)]
    return encode_image(pictures[0], format, save_all=True, append_images=pictures[1:], duration=50)


FILES: dict[str, Callable[[], bytes]] = {
    **{
        f"jpeg {w}x{h}": lambda w=w, h=h: encode_image(draw_photo(w, h), "JPEG", quality=90)
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
    "jpeg progressive": lambda: encode_image(
        draw_photo(1500, 1100), "JPEG", progressive=True, quality=85
    ),
    "jpeg grey": lambda: encode_image(draw_photo(700, 500, "L"), "JPEG"),
    "jpeg CMYK": lambda: encode_image(draw_photo(900, 700, "CMYK"), "JPEG"),
    "jpeg without subsampling": lambda: encode_image(draw_photo(801, 601), "JPEG", subsampling=0),
    **{
        f"jpeg turned {i}": lambda i=i: encode_image(
            draw_photo(640, 300), "JPEG", exif=build_orientation_exif(i).tobytes()
        )
        for i in range(1, 9)
    },
    "jpeg with broken EXIF": lambda: encode_image(
        draw_photo(300, 200), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\xff"
    ),
    "jpeg of a camera with several pictures": lambda: encode_image(
        draw_photo(900, 600),
        "MPO",
        save_all=True,
        append_images=[draw_photo(900, 600)],
        exif=build_orientation_exif(6).tobytes(),
    ),
    "png": lambda: encode_image(draw_photo(300, 200), "PNG"),
    "png RGBA": lambda: encode_image(draw_photo(301, 203, "RGBA"), "PNG"),
    "png with one transparent colour": lambda: encode_image(
        draw_photo(40, 30), "PNG", transparency=(128, 128, 128)
    ),
    "png grey with alpha": lambda: encode_image(draw_photo(90, 70, "LA"), "PNG"),
    "png palette": lambda: encode_image(draw_photo(90, 70).quantize(100), "PNG"),
    "png palette with transparency": build_transparent_palette_png,
    "png 16-bit grey": lambda: encode_image(draw_photo(90, 70, "I;16"), "PNG"),
    "png 1-bit": lambda: encode_image(draw_photo(90, 71, "1"), "PNG"),
    "png turned": lambda: encode_image(draw_photo(90, 71), "PNG", exif=build_orientation_exif(8)),
    "png turned by EXIF behind its pixels": lambda: build_png_with_exif_last(draw_photo(90, 71), 6),
    "webp": lambda: encode_image(draw_photo(400, 300, "RGBA"), "WEBP"),
    "webp turned": lambda: encode_image(
        draw_photo(400, 300), "WEBP", exif=build_orientation_exif(5).tobytes()
    ),
    "webp animated": lambda: encode_frames("WEBP"),
    "bmp": lambda: encode_image(draw_photo(60, 50), "BMP"),
    "tiff 16-bit grey": lambda: encode_image(draw_photo(90, 70, "I;16"), "TIFF"),
    "tiff CMYK": lambda: encode_image(draw_photo(90, 70, "CMYK"), "TIFF"),
    "tiff turned": lambda: encode_image(draw_photo(90, 70), "TIFF", exif=build_orientation_exif(6)),
    "tiff of several pages": lambda: encode_frames("TIFF"),
    "strip 1x600": lambda: encode_image(draw_photo(1, 600), "PNG"),
    "strip 5000x1": lambda: encode_image(draw_photo(5000, 1), "PNG"),
    "one pixel": lambda: encode_image(draw_photo(1, 1), "PNG"),
    "strip of a jpeg": lambda: encode_image(draw_photo(2000, 3), "JPEG"),
}


LARGEST = pytest.param("jpeg 3000x2000", marks=pytest.mark.campaign)


def run_reading_code(size: int, channels: int, **resizing: Any) -> dict[str, Any]:
    """Return the names that the card's second block defines, for a model with such images."""
    image = {"size": size, "channels": channels, **resizing}
    scope: dict[str, Any] = {"torch": torch, "config": {"image": image}}
    exec(compile(build_image_reading_code(ImageSpec.from_json(image)), "README.md", "exec"), scope)
    return scope


@pytest.mark.parametrize("name", [LARGEST, *(name for name in FILES if name != LARGEST.values[0])])
def test_a_file_becomes_the_same_pixels(tmp_path: Path, name: str) -> None:
    data = FILES[name]()
    (tmp_path / "file").write_bytes(data)
    for size, channels in SIZES:
        ours = decode_image_to_square_pixels(data, size, channels, 1 << 26)
        theirs = run_reading_code(size, channels)["read"](tmp_path / "file").numpy()
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
        ours = decode_image_to_square_pixels(
            data, size, 3, 1 << 26, SquareResizingSettings(crop, interpolation)
        )
        read = run_reading_code(size, 3, crop=crop, interpolation=interpolation)["read"]
        assert np.array_equal(read(tmp_path / "file").numpy(), ours), (size, crop, interpolation)


def test_what_the_service_refuses_the_card_refuses_too(tmp_path: Path) -> None:
    Image.fromarray(np.arange(64, dtype=np.int32).reshape(8, 8) << 20).save(tmp_path / "file.tiff")
    with pytest.raises(ValueError, match="32-bit pixels"):
        run_reading_code(8, 3)["read"](tmp_path / "file.tiff")
