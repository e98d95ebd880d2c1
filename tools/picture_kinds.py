"""Generator of `tests/data/picture-kinds.zip`: pictures of many kinds with their expected pixels.

    PYTHONPATH=.:FOLDER python -m tools.picture_kinds [--out FILE]

FOLDER has the oracles, which are not dependencies of the service: `pip install --no-deps --target
FOLDER tifffile imagecodecs pyvips pyvips-binary pillow-heif`. For lossless kinds, the samples that
were written are correct by definition of their format. tifffile reads them again, and libvips all
that it supports; its differences are printed. For lossy kinds, libvips, imagecodecs and pillow-heif
determine the pixels. Colours of matrix profiles are computed here, by the formula of the ICC.

The zip has `kinds.json`, a list of {"name", "tolerance", "oracle"} or {"name", "refused"}, the
files by name, and `expected.npy`, uint8 [readable kinds, 16, 16, 3]: the centre of each picture,
upright, over white, in sRGB.
"""

import argparse
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

OUT = Path(__file__).parent.parent / "tests" / "data" / "picture-kinds.zip"
WIDTH, HEIGHT, SIDE = 24, 16, 16
Pixels = npt.NDArray[Any]


@dataclass(frozen=True)
class DecoderTestPicture:
    """A test image file with the pixels that a decoder must give, or the reason it must refuse it.

    Attributes:
        name: name of the kind.
        data: bytes of the file.
        pixels: uint8 [height, width, 3]; None if the file is rejected.
        tolerance: largest difference from `pixels` that is correct.
        oracle: source of the pixels.
        refused: part of the error message if the file is rejected.
    """

    name: str
    data: bytes
    pixels: Pixels | None = None
    tolerance: int = 0
    oracle: str = "definition"
    refused: str = ""


def make_noise_pixel_samples(channels: int = 3, dtype: str = "uint8", seed: int = 0) -> Pixels:
    """Generate random pixel samples [16, 24, channels] over the whole range of an unsigned type."""
    largest = np.iinfo(dtype).max
    samples = np.random.default_rng(seed).integers(
        0, largest, (HEIGHT, WIDTH, channels), dtype, endpoint=True
    )
    # Both ends of the range occur, inside the part that is compared, whatever was drawn.
    samples[0, 4], samples[0, 5] = 0, largest
    return samples


def make_smooth_pixel_samples(channels: int = 3) -> Pixels:
    """Generate smooth pixel samples that a lossy format preserves nearly unchanged."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    planes = [40 + 7 * x + 2 * y, 230 - 5 * x - 4 * y, 30 + 3 * x + 8 * y, 250 - 4 * x - 3 * y]
    return np.stack(planes[:channels], -1).astype(np.uint8)


def convert_to_8_bits(samples: Pixels) -> Pixels:
    """Convert 16-bit pixel samples to 8 bits, rounded."""
    # 65535 / 255 is 257: both ends of the range stay ends.
    return np.rint(samples.astype(np.float64) / 257).astype(np.uint8)


def convert_to_three_channels(samples: Pixels) -> Pixels:
    """Repeat grey pixel samples as three channels; colours stay unchanged."""
    return np.repeat(samples, 3, -1) if samples.shape[-1] == 1 else samples


def blend_over_white(colours: Pixels, alpha: Pixels) -> Pixels:
    """Blend colours [.., 3] over a white background by their alpha [.., 1] of 0 to 255."""
    share = alpha.astype(np.float64) / 255
    return np.rint(convert_to_three_channels(colours) * share + 255 * (1 - share)).astype(np.uint8)


def convert_cmyk_to_rgb(samples: Pixels) -> Pixels:
    """Convert CMYK samples to RGB without a colour profile."""
    light = 1 - samples.astype(np.float64) / np.iinfo(samples.dtype).max
    return np.rint(255 * light[..., :3] * light[..., 3:]).astype(np.uint8)


# Colour profiles (ICC.1:2022), and their colours in sRGB.

# ICC describes all colours as they look under D50.
D50 = (0.9642, 1.0, 0.8249)
SRGB = np.array(
    [[0.43607, 0.38515, 0.14307], [0.22249, 0.71687, 0.06061], [0.01392, 0.09708, 0.71410]]
)
P3 = np.array(
    [[0.51512, 0.29198, 0.15710], [0.24120, 0.69225, 0.06657], [-0.00105, 0.04189, 0.78407]]
)
ADOBE = np.array(
    [[0.60974, 0.20528, 0.14919], [0.31111, 0.62567, 0.06322], [0.01947, 0.06087, 0.74457]]
)
PROPHOTO = np.array([[0.79767, 0.13519, 0.03134], [0.28804, 0.71188, 0.00009], [0.0, 0.0, 0.82491]])


def _pack_fixed_point(value: float) -> bytes:
    return struct.pack(">i", round(value * 65536))


def _build_icc_profile_curve(gamma: float | None) -> bytes:
    """Build the tone curve of an ICC profile: a power, or that of sRGB (None)."""
    if gamma is not None:
        return b"curv\0\0\0\0" + struct.pack(">IH", 1, round(gamma * 256))
    # The curve of sRGB (IEC 61966-2-1) as a parametric curve of type 3.
    numbers = (2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045)
    return b"para\0\0\0\0\0\3\0\0" + b"".join(map(_pack_fixed_point, numbers))


def _build_icc_profile(
    space: bytes, kind: bytes, tags: dict[bytes, bytes], pcs: bytes = b"XYZ "
) -> bytes:
    text = b"profile of a test\0"
    all_tags = {
        b"desc": b"desc\0\0\0\0" + struct.pack(">I", len(text)) + text + bytes(12 + 67),
        b"cprt": b"text\0\0\0\0none\0",
        b"wtpt": b"XYZ \0\0\0\0" + b"".join(map(_pack_fixed_point, D50)),
        **tags,
    }
    at, table, body = 128 + 4 + 12 * len(all_tags), b"", b""
    for name, value in all_tags.items():
        # ICC aligns tags to four bytes.
        value += bytes(-len(value) % 4)
        table += name + struct.pack(">2I", at + len(body), len(value))
        body += value
    head = struct.pack(">I4sI4s4s4s", at + len(body), b"none", 0x02400000, kind, space, pcs)
    head += (
        struct.pack(">6H", 2020, 1, 1, 0, 0, 0)
        + b"acsp"
        + bytes(28)
        + b"".join(map(_pack_fixed_point, D50))
    )
    return head.ljust(128, b"\0") + struct.pack(">I", len(all_tags)) + table + body


def build_display_profile(columns: Pixels, gamma: float | None) -> bytes:
    """Build an ICC profile of an RGB display from its primaries and gamma."""
    tags = {
        name + b"XYZ": b"XYZ \0\0\0\0" + b"".join(map(_pack_fixed_point, columns[:, i]))
        for i, name in enumerate((b"r", b"g", b"b"))
    }
    return _build_icc_profile(
        b"RGB ",
        b"mntr",
        tags | {name + b"TRC": _build_icc_profile_curve(gamma) for name in (b"r", b"g", b"b")},
    )


def build_grey_profile(gamma: float) -> bytes:
    """Build an ICC profile of a grey display with this gamma."""
    return _build_icc_profile(b"GRAY", b"mntr", {b"kTRC": _build_icc_profile_curve(gamma)})


def build_cmyk_press_profile() -> bytes:
    """Build an ICC profile of a CMYK printing press, from its sixteen solid colours in CIELab."""
    grid = b""
    for i in range(16):
        inks = [(i >> (3 - k)) & 1 for k in range(4)]
        light = 95 * 0.75 ** inks[0] * 0.6 ** inks[1] * 0.93 ** inks[2] * 0.2 ** inks[3]
        a = -30 * inks[0] + 60 * inks[1] - 5 * inks[2]
        b = -45 * inks[0] - 5 * inks[1] + 75 * inks[2]
        dark = 1 - 0.8 * inks[3]
        grid += bytes((round(light * 2.55), round(128 + a * dark), round(128 + b * dark)))
    ramp = bytes(range(256))
    table = (
        b"mft1\0\0\0\0" + bytes((4, 3, 2, 0)) + b"".join(map(_pack_fixed_point, np.eye(3).ravel()))
    )
    return _build_icc_profile(
        b"CMYK", b"prtr", {b"A2B0": table + ramp * 4 + grid + ramp * 3}, b"Lab "
    )


def _convert_to_linear_light(values: Pixels, gamma: float | None) -> Pixels:
    if gamma is not None:
        return values**gamma
    linear: Pixels = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    return linear


def _encode_as_srgb(values: Pixels) -> Pixels:
    values = np.clip(values, 0, 1)
    encoded: Pixels = np.where(
        values <= 0.0031308, values * 12.92, 1.055 * values ** (1 / 2.4) - 0.055
    )
    return encoded


def convert_colours_of_profile_to_srgb(
    colours: Pixels, columns: Pixels, gamma: float | None
) -> Pixels:
    """Convert colours uint8 [.., 3] from a matrix ICC profile to sRGB."""
    xyz = _convert_to_linear_light(colours / 255, gamma) @ columns.T
    converted: Pixels = np.rint(255 * _encode_as_srgb(xyz @ np.linalg.inv(SRGB).T)).astype(np.uint8)
    return converted


def convert_grey_to_srgb(grey: Pixels, gamma: float) -> Pixels:
    """Convert grey values [.., 1] with a gamma to sRGB colours."""
    return convert_to_three_channels(
        np.rint(255 * _encode_as_srgb(_convert_to_linear_light(grey / 255, gamma))).astype(np.uint8)
    )


PROFILE_P3, PROFILE_ADOBE = (
    build_display_profile(P3, None),
    build_display_profile(ADOBE, 2.19921875),
)
PROFILE_PROPHOTO, PROFILE_SRGB = (
    build_display_profile(PROPHOTO, 1.8),
    build_display_profile(SRGB, None),
)
# The head looks like a profile and what follows is garbage, as in a damaged file.
BROKEN_PROFILE = PROFILE_P3[:90] + b"\xff" * 200


def encode_image(pixels: Pixels | Image.Image, format: str, **options: Any) -> bytes:
    """Encode pixels or a Pillow image as an image file with Pillow."""
    if isinstance(pixels, Image.Image):
        image = pixels
    else:
        image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def build_exif_orientation(orientation: int) -> bytes:
    """Build EXIF data with an orientation tag."""
    exif_data = Image.Exif()
    exif_data[0x0112] = orientation
    return exif_data.tobytes()


def orient_pixels_as_stored(upright: Pixels, orientation: int) -> Pixels:
    """Rotate or mirror upright pixels as a file with this EXIF orientation stores them."""
    undo: dict[int, Callable[[Pixels], Pixels]] = {
        1: lambda p: p,
        2: lambda p: p[:, ::-1],
        3: lambda p: p[::-1, ::-1],
        4: lambda p: p[::-1],
        5: lambda p: p.transpose(1, 0, 2),
        6: lambda p: p.transpose(1, 0, 2)[::-1],
        7: lambda p: p[::-1, ::-1].transpose(1, 0, 2),
        8: lambda p: p.transpose(1, 0, 2)[:, ::-1],
    }
    return np.ascontiguousarray(undo[orientation](upright))


# Oracles.


def decode_with_libvips(data: bytes, *, turn: bool = True) -> Pixels:
    """Decode an image file with libvips: upright, over white, in 8 bits."""
    import pyvips

    image = pyvips.Image.new_from_buffer(data, "")
    image = image.autorot() if turn else image
    if image.interpretation in ("rgb16", "grey16", "b-w", "multiband"):
        image = image.colourspace("srgb" if image.bands > 2 else "b-w")
    if image.hasalpha():
        image = image.flatten(background=255)
    pixels = np.asarray(image.numpy())
    return convert_to_three_channels(pixels.reshape(*pixels.shape[:2], -1)).astype(np.uint8)


def decode_heif(data: bytes) -> Pixels:
    """Decode a HEIF file with pillow-heif."""
    import pillow_heif

    image = pillow_heif.decode_heif(data).to_pillow()
    if image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.asarray(image.convert("RGB"))


def decode_avif(data: bytes) -> Pixels:
    """Decode an AVIF file with imagecodecs."""
    import imagecodecs

    pixels = imagecodecs.avif_decode(data)
    # 10 bits become 16 by six more.
    pixels = convert_to_8_bits(pixels * np.uint16(64)) if pixels.dtype == np.uint16 else pixels
    return blend_over_white(pixels[..., :3], pixels[..., 3:]) if pixels.shape[-1] == 4 else pixels


def encode_tiff(samples: Pixels, **options: Any) -> bytes:
    """Encode samples as a TIFF with tifffile, and check that lossless ones read back equal."""
    import tifffile

    out = io.BytesIO()
    # Without texts of tifffile, whose version would change the bytes.
    tifffile.imwrite(out, samples, metadata=None, software=False, **options)
    # JPEG is lossy, and does not return the samples that were written.
    if options.get("photometric") != "palette" and "jpeg" not in str(options.get("compression")):
        assert np.array_equal(tifffile.imread(io.BytesIO(out.getvalue())), samples), options
    return out.getvalue()


def build_raw_tiff(tags: dict[int, tuple[int, list[int]]], strip: bytes, order: str = "<") -> bytes:
    """Build an uncompressed TIFF of one strip from raw tags and data."""
    codes = {1: "B", 3: "H", 4: "I"}
    tags = {**tags, 273: (4, [8]), 279: (4, [len(strip)])}
    # TIFF requires even offsets.
    at = 8 + len(strip) + len(strip) % 2
    beyond = at + 2 + 12 * len(tags) + 4
    table, more = b"", b""
    # TIFF requires ascending tags.
    for tag, (kind, values) in sorted(tags.items()):
        packed = struct.pack(f"{order}{len(values)}{codes[kind]}", *values)
        # Up to four bytes stand in the entry itself; longer values stand elsewhere.
        if len(packed) > 4:
            field, more = (
                struct.pack(f"{order}I", beyond + len(more)),
                more + packed + bytes(len(packed) % 2),
            )
        else:
            field = packed.ljust(4, b"\0")
        table += struct.pack(f"{order}2HI", tag, kind, len(values)) + field
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", at)
    body = (
        head
        + strip
        + bytes(len(strip) % 2)
        + struct.pack(f"{order}H", len(tags))
        + table
        + bytes(4)
        + more
    )
    return body


def pack_into_bits(values: Pixels, bits: int) -> bytes:
    """Pack values [height, width, samples] below 2^bits row by row, highest bit first."""
    rows = (values.reshape(len(values), -1, 1) >> np.arange(bits)[::-1]) & 1
    return np.packbits(rows.reshape(len(values), -1).astype(np.uint8), axis=1).tobytes()


def build_tiff_tags(
    bits: list[int], photometric: int, **more: list[int]
) -> dict[int, tuple[int, list[int]]]:
    """Build the TIFF tags of a picture packed by `pack_into_bits`; `more` are further tags, t<tag>."""
    tags = {
        256: [WIDTH],
        257: [HEIGHT],
        258: bits,
        259: [1],
        262: [photometric],
        277: [len(bits)],
        278: [HEIGHT],
    }
    return {
        tag: (3, values)
        for tag, values in (tags | {int(k[1:]): v for k, v in more.items()}).items()
    }


def generate_tiff_test_pictures() -> Iterator[DecoderTestPicture]:
    """Generate test TIFFs of many kinds, with their expected pixels."""
    eight, wide, grey, wide_grey = (
        make_noise_pixel_samples(),
        make_noise_pixel_samples(3, "uint16"),
        make_noise_pixel_samples(1),
        make_noise_pixel_samples(1, "uint16"),
    )
    for packing, name in (
        (None, "stored"),
        ("lzw", "LZW"),
        ("adobe_deflate", "deflate"),
        ("packbits", "packbits"),
        ("zstd", "Zstandard"),
        ("lzma", "LZMA"),
    ):
        yield DecoderTestPicture(
            f"tiff {name}", encode_tiff(eight, photometric="rgb", compression=packing), eight
        )
    for packing in ("lzw", "adobe_deflate"):
        data = encode_tiff(
            eight, photometric="rgb", compression=packing, predictor=2, rowsperstrip=5
        )
        yield DecoderTestPicture(f"tiff {packing} predictor 2 in strips", data, eight)
        data = encode_tiff(wide, photometric="rgb", compression=packing, predictor=2, byteorder=">")
        yield DecoderTestPicture(
            f"tiff 16-bit {packing} predictor 2 big-endian", data, convert_to_8_bits(wide)
        )
    yield DecoderTestPicture(
        "tiff big-endian", encode_tiff(eight, photometric="rgb", byteorder=">"), eight
    )
    yield DecoderTestPicture(
        "tiff big-tiff", encode_tiff(eight, photometric="rgb", bigtiff=True), eight
    )
    yield DecoderTestPicture(
        "tiff 16-bit", encode_tiff(wide, photometric="rgb"), convert_to_8_bits(wide)
    )
    yield DecoderTestPicture(
        "tiff 16-bit grey",
        encode_tiff(wide_grey[..., 0], photometric="minisblack"),
        convert_to_three_channels(convert_to_8_bits(wide_grey)),
    )
    yield DecoderTestPicture(
        "tiff 16-bit white is zero",
        encode_tiff(wide_grey[..., 0], photometric="miniswhite"),
        convert_to_three_channels(convert_to_8_bits(65535 - wide_grey)),
    )
    yield DecoderTestPicture(
        "tiff 16-bit white is zero big-endian LZW",
        encode_tiff(wide_grey[..., 0], photometric="miniswhite", byteorder=">", compression="lzw"),
        convert_to_three_channels(convert_to_8_bits(65535 - wide_grey)),
    )
    yield DecoderTestPicture(
        "tiff grey",
        encode_tiff(grey[..., 0], photometric="minisblack"),
        convert_to_three_channels(grey),
    )
    yield DecoderTestPicture(
        "tiff white is zero",
        encode_tiff(grey[..., 0], photometric="miniswhite"),
        convert_to_three_channels(255 - grey),
    )
    planes = np.ascontiguousarray(eight.transpose(2, 0, 1))
    wide_planes = np.ascontiguousarray(wide.transpose(2, 0, 1))
    apart: dict[str, Any] = {"photometric": "rgb", "planarconfig": "separate"}
    yield DecoderTestPicture("tiff planes apart", encode_tiff(planes, **apart), eight)
    yield DecoderTestPicture(
        "tiff planes apart in strips",
        encode_tiff(planes, rowsperstrip=5, compression="lzw", **apart),
        eight,
    )
    yield DecoderTestPicture(
        "tiff 16-bit planes apart LZW",
        encode_tiff(wide_planes, compression="lzw", **apart),
        convert_to_8_bits(wide),
    )
    yield DecoderTestPicture(
        "tiff planes apart in tiles",
        encode_tiff(planes, tile=(16, 16), compression="adobe_deflate", **apart),
        eight,
    )
    yield DecoderTestPicture(
        "tiff in tiles", encode_tiff(eight, photometric="rgb", tile=(16, 16)), eight
    )
    yield DecoderTestPicture(
        "tiff 16-bit tiles predictor 2",
        encode_tiff(wide, photometric="rgb", tile=(16, 16), compression="lzw", predictor=2),
        convert_to_8_bits(wide),
    )
    for dtype in ("float16", "float32", "float64"):
        share = (make_noise_pixel_samples(3) / 255).astype(dtype)
        as_bytes = np.rint(share.astype(np.float64) * 255).astype(np.uint8)
        yield DecoderTestPicture(f"tiff {dtype}", encode_tiff(share, photometric="rgb"), as_bytes)
        yield DecoderTestPicture(
            f"tiff {dtype} grey big-endian",
            encode_tiff(share[..., 0], photometric="minisblack", byteorder=">"),
            convert_to_three_channels(as_bytes[..., :1]),
        )
    share = (make_noise_pixel_samples(3) / 255).astype(np.float32)
    as_bytes = np.rint(share.astype(np.float64) * 255).astype(np.uint8)
    yield DecoderTestPicture(
        "tiff float32 predictor 3",
        encode_tiff(share, photometric="rgb", compression="adobe_deflate", predictor=3),
        as_bytes,
    )
    yield DecoderTestPicture(
        "tiff float32 predictor 3 tiles big-endian",
        encode_tiff(
            share, photometric="rgb", compression="lzw", predictor=3, tile=(16, 16), byteorder=">"
        ),
        as_bytes,
    )
    inks, wide_inks = make_noise_pixel_samples(4), make_noise_pixel_samples(4, "uint16")
    yield DecoderTestPicture(
        "tiff CMYK", encode_tiff(inks, photometric="separated"), convert_cmyk_to_rgb(inks), 1
    )
    yield DecoderTestPicture(
        "tiff 16-bit CMYK LZW",
        encode_tiff(wide_inks, photometric="separated", compression="lzw"),
        convert_cmyk_to_rgb(wide_inks),
        1,
    )
    apart_inks = np.ascontiguousarray(inks.transpose(2, 0, 1))
    yield DecoderTestPicture(
        "tiff CMYK planes apart",
        encode_tiff(apart_inks, photometric="separated", planarconfig="separate"),
        convert_cmyk_to_rgb(inks),
        1,
    )
    yield DecoderTestPicture(
        "tiff of three pages",
        encode_tiff(
            np.stack([eight, make_noise_pixel_samples(seed=1), make_noise_pixel_samples(seed=2)]),
            photometric="rgb",
        ),
        eight,
    )
    alpha = make_noise_pixel_samples(4, seed=3)
    yield DecoderTestPicture(
        "tiff alpha",
        encode_tiff(alpha, photometric="rgb", extrasamples=["unassalpha"]),
        blend_over_white(alpha[..., :3], alpha[..., 3:]),
        1,
    )
    multiplied = alpha.copy()
    # Multiplied colours are never above their alpha.
    multiplied[..., :3] = alpha[..., :3].astype(int) * alpha[..., 3:] // 255
    yield DecoderTestPicture(
        "tiff multiplied alpha",
        encode_tiff(multiplied, photometric="rgb", extrasamples=["assocalpha"]),
        (multiplied[..., :3].astype(int) + 255 - multiplied[..., 3:]).clip(0, 255).astype(np.uint8),
        2,
    )
    yield DecoderTestPicture(
        "tiff grey with alpha",
        encode_tiff(
            alpha[..., :2],
            photometric="minisblack",
            extrasamples=["unassalpha"],
            planarconfig="contig",
        ),
        blend_over_white(alpha[..., :1], alpha[..., 1:2]),
        1,
    )
    five = make_noise_pixel_samples(5, seed=4)
    yield DecoderTestPicture(
        "tiff of two more samples",
        encode_tiff(five, photometric="rgb", extrasamples=["unspecified"] * 2),
        five[..., :3],
    )
    for bits in (1, 2, 4, 8):
        largest = (1 << bits) - 1
        index = make_noise_pixel_samples(1, seed=bits) & largest
        table = np.random.default_rng(bits).integers(0, 65536, (3, 1 << bits), np.uint16)
        more = {"t320": table.ravel().tolist()}
        yield DecoderTestPicture(
            f"tiff palette of {bits} bits",
            build_raw_tiff(build_tiff_tags([bits], 3, **more), pack_into_bits(index, bits)),
            # A TIFF's palette has 16 bits, of which readers take the upper 8.
            (table.T >> 8).astype(np.uint8)[index[..., 0]],
        )
        if bits < 8:
            level = (index * (255 // largest)).astype(np.uint8)
            yield DecoderTestPicture(
                f"tiff grey of {bits} bits",
                build_raw_tiff(build_tiff_tags([bits], 1), pack_into_bits(index, bits)),
                convert_to_three_channels(level),
            )
            yield DecoderTestPicture(
                f"tiff white is zero of {bits} bits",
                build_raw_tiff(build_tiff_tags([bits], 0), pack_into_bits(index, bits)),
                convert_to_three_channels(255 - level),
            )
    index = make_noise_pixel_samples(1, seed=9) & 1
    # FillOrder 2: the lowest bit of each byte comes first.
    turned = bytes(int(f"{byte:08b}"[::-1], 2) for byte in pack_into_bits(index, 1))
    yield DecoderTestPicture(
        "tiff 1 bit lowest first",
        build_raw_tiff(build_tiff_tags([1], 1, t266=[2]), turned),
        convert_to_three_channels(index * 255),
    )
    bilevel = Image.fromarray((index[..., 0] * 255).astype(np.uint8)).convert("1")
    for packing in ("group3", "group4"):
        yield DecoderTestPicture(
            f"tiff fax {packing}",
            encode_image(bilevel, "TIFF", compression=packing),
            convert_to_three_channels(index * 255),
        )
    for orientation in (3, 6, 7):
        stored = orient_pixels_as_stored(eight, orientation)
        yield DecoderTestPicture(
            f"tiff turned {orientation}",
            encode_tiff(stored, photometric="rgb", extratags=[(274, 3, 1, orientation, True)]),
            eight,
        )
    colours = encode_tiff(eight, photometric="rgb", iccprofile=PROFILE_P3)
    yield DecoderTestPicture(
        "tiff Display P3",
        colours,
        convert_colours_of_profile_to_srgb(eight, P3, None),
        2,
        "formula",
    )
    packed = encode_tiff(make_smooth_pixel_samples(), photometric="rgb", compression="jpeg")
    yield DecoderTestPicture("tiff JPEG in RGB", packed, decode_with_libvips(packed), 3, "libvips")
    packed = encode_image(make_smooth_pixel_samples(), "TIFF", compression="jpeg", quality=95)
    yield DecoderTestPicture(
        "tiff JPEG in YCbCr", packed, decode_with_libvips(packed), 3, "libvips"
    )
    plain = Image.fromarray(eight).convert("YCbCr")
    yield DecoderTestPicture(
        "tiff YCbCr without packing",
        build_raw_tiff(build_tiff_tags([8] * 3, 6, t530=[1, 1]), plain.tobytes()),
        np.asarray(plain.convert("RGB")),
        1,
    )
    yield from generate_refused_tiff_test_pictures(grey)


def generate_refused_tiff_test_pictures(grey: Pixels) -> Iterator[DecoderTestPicture]:
    """Generate test TIFFs that must be refused: ambiguous samples, unsupported packings."""
    for dtype, reason in (
        ("uint32", "32-bit integers"),
        ("int32", "signed 32-bit"),
        ("int16", "signed 16-bit"),
        ("uint64", "64-bit integers"),
        ("int8", "signed 8-bit"),
        ("complex64", "complex"),
    ):
        yield DecoderTestPicture(
            f"tiff {dtype}",
            encode_tiff(grey[..., 0].astype(dtype), photometric="minisblack"),
            refused=reason,
        )
    share = grey[..., 0].astype(np.float32)
    yield DecoderTestPicture(
        "tiff float32 up to 255",
        encode_tiff(share, photometric="minisblack"),
        refused="floats from 0 to 255",
    )
    yield DecoderTestPicture(
        "tiff 12-bit",
        build_raw_tiff(
            build_tiff_tags([12], 1), pack_into_bits(make_noise_pixel_samples(1, "uint16") >> 4, 12)
        ),
        refused="12-bit",
    )
    yield DecoderTestPicture(
        "tiff CIELab",
        build_raw_tiff(build_tiff_tags([8] * 3, 8), make_smooth_pixel_samples().tobytes()),
        refused="CIELab",
    )
    yield DecoderTestPicture(
        "tiff of 5, 6 and 5 bits",
        build_raw_tiff(build_tiff_tags([5, 6, 5], 2), make_smooth_pixel_samples().tobytes()),
        refused="of 5, 6, 5 bits",
    )
    half = build_raw_tiff(
        build_tiff_tags([8] * 3, 6, t530=[2, 2]), make_smooth_pixel_samples().tobytes()
    )
    yield DecoderTestPicture("tiff YCbCr at half the resolution", half, refused="YCbCr")
    yield DecoderTestPicture(
        "tiff LERC",
        encode_tiff(grey[..., 0], photometric="minisblack", compression="lerc"),
        refused="LERC",
    )
    yield DecoderTestPicture(
        "tiff of a camera's sensor",
        build_raw_tiff(build_tiff_tags([16], 32803), bytes(2 * WIDTH * HEIGHT)),
        refused="RAW",
    )


# PNG is written by hand, because Pillow writes few of its kinds.


def encode_png_chunk(kind: bytes, data: bytes) -> bytes:
    """Encode one chunk of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def encode_png(
    samples: Pixels, bits: int, colour: int, *more: bytes, interlaced: bool = False
) -> bytes:
    """Encode samples [height, width, channels] below 2^bits as a PNG file.

    `more` are chunks before its pixels.
    """
    passes = [samples]
    if interlaced:
        # Adam7 (PNG 8.2): first row, step of rows, first column and step of columns in each pass.
        adam = (
            (0, 8, 0, 8),
            (0, 8, 4, 8),
            (4, 8, 0, 4),
            (0, 4, 2, 4),
            (2, 4, 0, 2),
            (0, 2, 1, 2),
            (1, 2, 0, 1),
        )
        passes = [samples[y::dy, x::dx] for y, dy, x, dx in adam]
    rows = b""
    for one in passes:
        for row in one:
            values = row[None]
            packed = values.astype(">u2").tobytes() if bits == 16 else pack_into_bits(values, bits)
            # A zero before each row says that it is not filtered.
            rows += b"\0" + packed
    head = struct.pack(
        ">2I5B", samples.shape[1], samples.shape[0], bits, colour, 0, 0, int(interlaced)
    )
    pixels = encode_png_chunk(b"IDAT", zlib.compress(rows, 9))
    return (
        b"\x89PNG\r\n\x1a\n"
        + encode_png_chunk(b"IHDR", head)
        + b"".join(more)
        + pixels
        + encode_png_chunk(b"IEND", b"")
    )


def generate_png_test_pictures() -> Iterator[DecoderTestPicture]:
    """Generate test PNGs of many kinds, with their expected pixels."""
    eight, wide, grey = (
        make_noise_pixel_samples(),
        make_noise_pixel_samples(3, "uint16"),
        make_noise_pixel_samples(1),
    )
    for bits in (1, 2, 4, 8):
        index = make_noise_pixel_samples(1, seed=bits) & ((1 << bits) - 1)
        level = (index * (255 // ((1 << bits) - 1))).astype(np.uint8)
        yield DecoderTestPicture(
            f"png grey of {bits} bits", encode_png(index, bits, 0), convert_to_three_channels(level)
        )
        table = np.random.default_rng(bits).integers(0, 256, (1 << bits, 3), np.uint8)
        palette = encode_png_chunk(b"PLTE", table.tobytes())
        yield DecoderTestPicture(
            f"png palette of {bits} bits", encode_png(index, bits, 3, palette), table[index[..., 0]]
        )
        clear = np.random.default_rng(bits).integers(0, 256, (1 << bits, 1), np.uint8)
        yield DecoderTestPicture(
            f"png palette of {bits} bits with alpha",
            encode_png(index, bits, 3, palette, encode_png_chunk(b"tRNS", clear.tobytes())),
            blend_over_white(table, clear)[index[..., 0]],
            1,
        )
    yield DecoderTestPicture("png", encode_png(eight, 8, 2), eight)
    yield DecoderTestPicture("png interlaced", encode_png(eight, 8, 2, interlaced=True), eight)
    yield DecoderTestPicture(
        "png 4 bits interlaced",
        encode_png(grey >> 4, 4, 0, interlaced=True),
        convert_to_three_channels((grey >> 4) * 17),
    )
    yield DecoderTestPicture("png 16-bit", encode_png(wide, 16, 2), convert_to_8_bits(wide), 1)
    yield DecoderTestPicture(
        "png 16-bit grey",
        encode_png(wide[..., :1], 16, 0),
        convert_to_three_channels(convert_to_8_bits(wide[..., :1])),
    )
    alpha, wide_alpha = (
        make_noise_pixel_samples(4, seed=3),
        make_noise_pixel_samples(4, "uint16", 3),
    )
    yield DecoderTestPicture(
        "png alpha", encode_png(alpha, 8, 6), blend_over_white(alpha[..., :3], alpha[..., 3:]), 1
    )
    yield DecoderTestPicture(
        "png 16-bit alpha",
        encode_png(wide_alpha, 16, 6),
        blend_over_white(
            convert_to_8_bits(wide_alpha[..., :3]), convert_to_8_bits(wide_alpha[..., 3:])
        ),
        2,
    )
    yield DecoderTestPicture(
        "png grey with alpha",
        encode_png(alpha[..., :2], 8, 4),
        blend_over_white(alpha[..., :1], alpha[..., 1:2]),
        1,
    )
    yield DecoderTestPicture(
        "png 16-bit grey with alpha",
        encode_png(wide_alpha[..., :2], 16, 4),
        blend_over_white(
            convert_to_8_bits(wide_alpha[..., :1]), convert_to_8_bits(wide_alpha[..., 1:2])
        ),
        2,
    )
    # Few colours, so that the clear one occurs.
    few = (eight >> 7) * 255
    absent = encode_png_chunk(b"tRNS", struct.pack(">3H", 255, 0, 255))
    is_clear = np.all(few == [255, 0, 255], -1, keepdims=True)
    yield DecoderTestPicture(
        "png one clear colour",
        encode_png(few, 8, 2, absent),
        np.where(is_clear, 255, few).astype(np.uint8),
    )
    levels = (grey >> 6) * 85
    yield DecoderTestPicture(
        "png one clear grey",
        encode_png(levels, 8, 0, encode_png_chunk(b"tRNS", struct.pack(">H", 85))),
        convert_to_three_channels(np.where(levels == 85, 255, levels).astype(np.uint8)),
    )
    wide_levels = (wide[..., :1] >> 14) * np.uint16(21845)
    yield DecoderTestPicture(
        "png one clear 16-bit grey",
        encode_png(wide_levels, 16, 0, encode_png_chunk(b"tRNS", struct.pack(">H", 21845))),
        convert_to_three_channels(
            convert_to_8_bits(np.where(wide_levels == 21845, 65535, wide_levels))
        ),
        1,
    )
    wide_few = (wide >> 15) * np.uint16(65535)
    absent = encode_png_chunk(b"tRNS", struct.pack(">3H", 65535, 0, 65535))
    is_clear = np.all(wide_few == [65535, 0, 65535], -1, keepdims=True)
    yield DecoderTestPicture(
        "png one clear 16-bit colour",
        encode_png(wide_few, 16, 2, absent),
        convert_to_8_bits(np.where(is_clear, 65535, wide_few)),
        1,
    )
    # Beyond Pillow's limit for texts, which would refuse a picture that is fine otherwise.
    long_text = zlib.compress(bytes(3 << 20), 9)
    yield DecoderTestPicture(
        "png with 3 MB of text",
        encode_png(eight, 8, 2, encode_png_chunk(b"zTXt", b"Comment\0\0" + long_text)),
        eight,
    )
    yield DecoderTestPicture(
        "png with 3 MB of international text",
        encode_png(eight, 8, 2, encode_png_chunk(b"iTXt", b"Comment\0\1\0\0\0" + long_text)),
        eight,
    )
    yield DecoderTestPicture(
        "png with 3 MB of profile",
        encode_png(eight, 8, 2, encode_png_chunk(b"iCCP", b"p\0\0" + long_text)),
        eight,
    )
    for name, profile, columns, gamma in (
        ("Display P3", PROFILE_P3, P3, None),
        ("Adobe RGB", PROFILE_ADOBE, ADOBE, 2.19921875),
        ("ProPhoto", PROFILE_PROPHOTO, PROPHOTO, 1.8),
        ("sRGB", PROFILE_SRGB, SRGB, None),
    ):
        named = encode_png_chunk(b"iCCP", b"p\0\0" + zlib.compress(profile))
        yield DecoderTestPicture(
            f"png {name}",
            encode_png(eight, 8, 2, named),
            convert_colours_of_profile_to_srgb(eight, columns, gamma),
            2,
            "formula",
        )
    p3 = encode_png_chunk(b"iCCP", b"p\0\0" + zlib.compress(PROFILE_P3))
    table, index = (
        np.random.default_rng(8).integers(0, 256, (256, 3), np.uint8),
        make_noise_pixel_samples(1, seed=8),
    )
    yield DecoderTestPicture(
        "png palette in Display P3",
        encode_png(index, 8, 3, p3, encode_png_chunk(b"PLTE", table.tobytes())),
        convert_colours_of_profile_to_srgb(table, P3, None)[index[..., 0]],
        2,
        "formula",
    )
    yield DecoderTestPicture(
        "png alpha in Display P3",
        encode_png(alpha, 8, 6, p3),
        blend_over_white(
            convert_colours_of_profile_to_srgb(alpha[..., :3], P3, None), alpha[..., 3:]
        ),
        3,
        "formula",
    )
    # Near black, gamma curves are too steep for the tolerance.
    bright = np.maximum(grey, 8)
    curve = encode_png_chunk(b"iCCP", b"p\0\0" + zlib.compress(build_grey_profile(1.8)))
    yield DecoderTestPicture(
        "png grey of gamma 1.8",
        encode_png(bright, 8, 0, curve),
        convert_grey_to_srgb(bright, 1.8),
        2,
        "formula",
    )
    broken = encode_png_chunk(b"iCCP", b"p\0\0" + zlib.compress(BROKEN_PROFILE))
    yield DecoderTestPicture("png with a damaged profile", encode_png(eight, 8, 2, broken), eight)
    yield DecoderTestPicture(
        "png with a profile for inks",
        encode_png(
            eight,
            8,
            2,
            encode_png_chunk(b"iCCP", b"p\0\0" + zlib.compress(build_cmyk_press_profile())),
        ),
        eight,
    )
    for orientation in (5, 8):
        data = encode_image(
            orient_pixels_as_stored(eight, orientation),
            "PNG",
            exif=build_exif_orientation(orientation),
        )
        yield DecoderTestPicture(f"png turned {orientation}", data, eight)
    frames = [Image.fromarray(make_noise_pixel_samples(seed=i)) for i in range(3)]
    yield DecoderTestPicture(
        "apng", encode_image(frames[0], "PNG", save_all=True, append_images=frames[1:]), eight
    )
    yield DecoderTestPicture(
        "apng with a still of its own",
        encode_image(
            Image.fromarray(eight),
            "PNG",
            save_all=True,
            append_images=frames[1:],
            default_image=True,
        ),
        eight,
    )


def generate_jpeg_test_pictures() -> Iterator[DecoderTestPicture]:
    """Generate test JPEGs of many kinds, with their expected pixels."""
    colours, grey = make_smooth_pixel_samples(), make_smooth_pixel_samples(1)

    def build_jpeg_test_picture(name: str, data: bytes, **more: Any) -> DecoderTestPicture:
        return DecoderTestPicture(
            f"jpeg {name}",
            data,
            decode_with_libvips(data),
            **{"tolerance": 2, "oracle": "libvips", **more},
        )

    yield build_jpeg_test_picture("4:4:4", encode_image(colours, "JPEG", quality=95, subsampling=0))
    yield build_jpeg_test_picture("4:2:0", encode_image(colours, "JPEG", quality=95, subsampling=2))
    yield build_jpeg_test_picture("grey", encode_image(grey, "JPEG", quality=95))
    yield build_jpeg_test_picture(
        "progressive", encode_image(colours, "JPEG", quality=95, progressive=True)
    )
    yield build_jpeg_test_picture(
        "in RGB", encode_image(colours, "JPEG", quality=95, keep_rgb=True)
    )
    for orientation in range(2, 9):
        yield build_jpeg_test_picture(
            f"turned {orientation}",
            encode_image(
                orient_pixels_as_stored(colours, orientation),
                "JPEG",
                quality=95,
                exif=build_exif_orientation(orientation),
            ),
        )
    plain = encode_image(colours, "JPEG", quality=95, subsampling=0)
    # Many writers leave the mark out, and the picture is whole without it.
    without = plain.removesuffix(b"\xff\xd9")
    yield DecoderTestPicture(
        "jpeg without its end mark", without, decode_with_libvips(plain), 2, "libvips"
    )
    several = encode_image(colours, "JPEG", quality=95, progressive=True)
    yield DecoderTestPicture(
        "jpeg progressive without its end mark",
        several.removesuffix(b"\xff\xd9"),
        decode_with_libvips(several),
        2,
        "libvips",
    )
    restarts = encode_image(colours, "JPEG", quality=95, restart_marker_blocks=1)
    yield DecoderTestPicture(
        "jpeg with restarts", restarts, decode_with_libvips(restarts), 2, "libvips"
    )
    yield DecoderTestPicture(
        "jpeg with restarts without its end mark",
        restarts.removesuffix(b"\xff\xd9"),
        decode_with_libvips(restarts),
        2,
        "libvips",
    )
    inks = make_smooth_pixel_samples(4)
    data = encode_image(Image.fromarray(inks, "CMYK"), "JPEG", quality=100, subsampling=0)
    yield DecoderTestPicture("jpeg CMYK", data, convert_cmyk_to_rgb(inks), 4)
    for name, profile, columns, gamma in (
        ("Display P3", PROFILE_P3, P3, None),
        ("Adobe RGB", PROFILE_ADOBE, ADOBE, 2.19921875),
    ):
        data = encode_image(colours, "JPEG", quality=95, subsampling=0, icc_profile=profile)
        yield DecoderTestPicture(
            f"jpeg {name}",
            data,
            convert_colours_of_profile_to_srgb(decode_with_libvips(data), columns, gamma),
            3,
            "libvips and formula",
        )
    data = encode_image(
        Image.fromarray(inks, "CMYK"),
        "JPEG",
        quality=100,
        subsampling=0,
        icc_profile=build_cmyk_press_profile(),
    )
    yield DecoderTestPicture(
        "jpeg CMYK with a profile", data, convert_to_srgb_by_libvips(data), 3, "libvips"
    )
    data = encode_image(grey, "JPEG", quality=95, icc_profile=build_grey_profile(1.8))
    yield DecoderTestPicture(
        "jpeg grey of gamma 1.8",
        data,
        convert_grey_to_srgb(decode_with_libvips(data)[..., :1], 1.8),
        3,
        "libvips and formula",
    )
    data = encode_image(colours, "JPEG", quality=95, icc_profile=BROKEN_PROFILE)
    yield DecoderTestPicture(
        "jpeg with a damaged profile", data, decode_with_libvips(data), 2, "libvips"
    )
    frames = [Image.fromarray(colours), Image.fromarray(colours[::-1])]
    yield build_jpeg_test_picture(
        "of several pictures (MPO)",
        encode_image(frames[0], "MPO", save_all=True, append_images=frames[1:]),
    )
    for keep, name in (
        (len(without) - 12, "jpeg cut off"),
        (len(several) - 40, "jpeg progressive cut off"),
    ):
        yield DecoderTestPicture(
            name, (without if keep < len(without) else several)[:keep], refused="damaged or cut off"
        )
    yield from generate_refused_jpeg_test_pictures()


def convert_to_srgb_by_libvips(data: bytes) -> Pixels:
    """Convert an image with an embedded colour profile to sRGB by libvips."""
    import pyvips

    image = pyvips.Image.new_from_buffer(data, "")
    image = image.icc_transform(
        "srgb", embedded=True, intent="relative", black_point_compensation=True
    )
    return np.asarray(image.numpy())


def generate_refused_jpeg_test_pictures() -> Iterator[DecoderTestPicture]:
    """Generate test JPEGs that must be refused, and files of formats with similar names."""
    import imagecodecs

    grey = make_smooth_pixel_samples(1)[..., 0]
    yield DecoderTestPicture(
        "jpeg lossless", imagecodecs.ljpeg_encode(grey), convert_to_three_channels(grey[..., None])
    )
    yield DecoderTestPicture(
        "jpeg lossless of 12 bits",
        imagecodecs.ljpeg_encode(grey.astype(np.uint16) * 16, bitspersample=12),
        refused="12 bits",
    )
    twelve = imagecodecs.jpeg_encode(grey.astype(np.uint16) * 16, bitspersample=12)
    yield DecoderTestPicture("jpeg of 12 bits", twelve, refused="12 bits")
    yield DecoderTestPicture("jpeg LS", imagecodecs.jpegls_encode(grey), refused="lossless")
    yield DecoderTestPicture(
        "jpeg 2000", imagecodecs.jpeg2k_encode(grey), refused="a JPEG 2000 image, not a PNG"
    )
    yield DecoderTestPicture("jpeg XL", imagecodecs.jpegxl_encode(grey), refused="a JPEG XL image")


def generate_other_test_pictures() -> Iterator[DecoderTestPicture]:
    """Generate test images in WebP, GIF, BMP, HEIC and AVIF, and files that are no images."""
    eight, colours, alpha = (
        make_noise_pixel_samples(),
        make_smooth_pixel_samples(),
        make_noise_pixel_samples(4, seed=3),
    )
    yield DecoderTestPicture(
        "webp lossless", encode_image(eight, "WEBP", lossless=True, exact=True), eight
    )
    data = encode_image(colours, "WEBP", quality=95)
    yield DecoderTestPicture("webp", data, decode_with_libvips(data), 3, "libvips")
    yield DecoderTestPicture(
        "webp alpha",
        # exact, because the encoder otherwise changes the colours of clear pixels.
        encode_image(alpha, "WEBP", lossless=True, exact=True),
        blend_over_white(alpha[..., :3], alpha[..., 3:]),
        1,
    )
    for orientation in (6, 7):
        data = encode_image(
            orient_pixels_as_stored(eight, orientation),
            "WEBP",
            lossless=True,
            exact=True,
            exif=build_exif_orientation(orientation),
        )
        yield DecoderTestPicture(f"webp turned {orientation}", data, eight)
    data = encode_image(eight, "WEBP", lossless=True, exact=True, icc_profile=PROFILE_P3)
    yield DecoderTestPicture(
        "webp Display P3", data, convert_colours_of_profile_to_srgb(eight, P3, None), 2, "formula"
    )
    frames = [Image.fromarray(make_noise_pixel_samples(seed=i)) for i in range(3)]
    yield DecoderTestPicture(
        "webp of three frames",
        encode_image(
            frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True, exact=True
        ),
        eight,
    )
    few = Image.fromarray(eight).quantize(32)
    palette_pixels = np.asarray(few.convert("RGB"))
    yield DecoderTestPicture("gif", encode_image(few, "GIF"), palette_pixels)
    yield DecoderTestPicture(
        "gif interlaced", encode_image(few, "GIF", interlace=True), palette_pixels
    )
    clear = np.asarray(few)[..., None] == 5
    yield DecoderTestPicture(
        "gif with a clear colour",
        encode_image(few, "GIF", transparency=5),
        np.where(clear, 255, palette_pixels).astype(np.uint8),
    )
    more = [frame.quantize(32) for frame in frames[1:]]
    yield DecoderTestPicture(
        "gif of three frames",
        encode_image(few, "GIF", save_all=True, append_images=more),
        palette_pixels,
    )
    yield from generate_bmp_test_pictures(eight, few, palette_pixels)
    yield from generate_heic_and_avif_test_pictures(colours)
    yield DecoderTestPicture("no bytes", b"", refused="empty")
    yield DecoderTestPicture(
        "a text", b"hello", refused="not a PNG, JPEG, WebP, GIF, HEIC, AVIF, BMP or TIFF image"
    )
    yield DecoderTestPicture("a PDF", b"%PDF-1.7\n%", refused="a PDF, not a PNG")
    yield DecoderTestPicture(
        "an SVG",
        b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>',
        refused="an SVG drawing",
    )
    yield DecoderTestPicture(
        "a film", b"\0\0\0\x18ftypmp42\0\0\0\0isommp42" + bytes(90), refused="a film"
    )
    yield DecoderTestPicture(
        "a Canon RAW",
        b"\0\0\0\x18ftypcrx \0\0\0\1crx isom" + bytes(90),
        refused="a camera RAW file",
    )
    yield DecoderTestPicture(
        "a pointer of Git LFS",
        b"version https://git-lfs.github.com/spec/v1\noid",
        refused="git lfs pull",
    )


def generate_bmp_test_pictures(
    eight: Pixels, few: Image.Image, shown: Pixels
) -> Iterator[DecoderTestPicture]:
    """Generate test BMPs of many kinds, with their expected pixels."""
    yield DecoderTestPicture("bmp", encode_image(eight, "BMP"), eight)
    yield DecoderTestPicture("bmp palette", encode_image(few, "BMP"), shown)
    grey = make_noise_pixel_samples(1)
    yield DecoderTestPicture("bmp grey", encode_image(grey, "BMP"), convert_to_three_channels(grey))
    bit = Image.fromarray(((grey[..., 0] >> 7) * 255).astype(np.uint8)).convert("1")
    yield DecoderTestPicture(
        "bmp 1 bit", encode_image(bit, "BMP"), convert_to_three_channels((grey >> 7) * 255)
    )
    # BMP stores blue first.
    rows = eight[..., ::-1].tobytes()
    # A negative height means that rows go from top to bottom.
    head = struct.pack("<IiiHHIIiiII", 40, WIDTH, -HEIGHT, 1, 24, 0, len(rows), 0, 0, 0, 0)
    top = b"BM" + struct.pack("<IHHI", 54 + len(rows), 0, 0, 54) + head + rows
    yield DecoderTestPicture("bmp from the top", top, eight)
    runs = b""
    for row in np.asarray(few)[::-1]:
        runs += b"".join(bytes((1, value)) for value in row) + b"\0\0"
    runs += b"\0\1"
    table = np.zeros((256, 4), np.uint8)
    palette = np.frombuffer(bytes(few.getpalette() or []), np.uint8).reshape(-1, 3)
    table[: len(palette), :3] = palette[:, ::-1]
    head = struct.pack("<IiiHHIIiiII", 40, WIDTH, HEIGHT, 1, 8, 1, len(runs), 0, 0, 256, 0)
    packed = (
        b"BM" + struct.pack("<IHHI", 1078 + len(runs), 0, 0, 1078) + head + table.tobytes() + runs
    )
    yield DecoderTestPicture("bmp RLE", packed, shown)


def generate_heic_and_avif_test_pictures(colours: Pixels) -> Iterator[DecoderTestPicture]:
    """Generate test images in HEIC and AVIF, with their expected pixels."""
    import imagecodecs
    import pillow_heif

    def encode_heic(*images: Image.Image, **options: Any) -> bytes:
        out = io.BytesIO()
        heif_file = pillow_heif.HeifFile()
        for one in images:
            heif_file.add_from_pillow(one)
        heif_file.save(out, quality=95, **options)
        return out.getvalue()

    large = np.asarray(Image.fromarray(colours).resize((96, 64), Image.Resampling.BICUBIC))
    image = Image.fromarray(large)
    for name, data in (
        ("heic", encode_heic(image)),
        ("heic 4:4:4", encode_heic(image, chroma=444)),
        ("heic grey", encode_heic(image.convert("L"))),
        ("heic alpha", encode_heic(Image.merge("RGBA", (*image.split(), image.getchannel(0))))),
        ("heic of two pictures", encode_heic(image, image.rotate(180), primary_index=0)),
    ):
        yield DecoderTestPicture(name, data, decode_heif(data), 2, "pillow-heif")
    wide = pillow_heif.from_bytes("RGB;16", (96, 64), (large.astype(np.uint16) * 257).tobytes())
    out = io.BytesIO()
    wide.save(out, quality=95)
    yield DecoderTestPicture(
        "heic 10-bit", out.getvalue(), decode_heif(out.getvalue()), 2, "pillow-heif"
    )
    pillow_heif.register_heif_opener()
    for orientation in (3, 5, 6, 7):
        data = encode_image(
            orient_pixels_as_stored(large, orientation),
            "HEIF",
            quality=95,
            exif=build_exif_orientation(orientation),
        )
        # HEIC is turned by boxes of the file, so the writer must have made one.
        assert b"irot" in data or b"imir" in data
        yield DecoderTestPicture(f"heic turned {orientation} by box and EXIF", data, large, 8)
    stored = Image.fromarray(large)
    # HEIF turns a picture by its boxes alone; EXIF only describes it.
    stored.info["exif"] = build_exif_orientation(3)
    yield DecoderTestPicture(
        "heic turned by EXIF alone, which counts for nothing", encode_heic(stored), large, 8
    )
    image = Image.fromarray(large // 2 + 64)  # colours that exist in sRGB, too
    image.info["icc_profile"] = PROFILE_P3
    data = encode_heic(image)
    # A writer that left the profile out would make another kind.
    assert b"colrprof" in data
    yield DecoderTestPicture(
        "heic Display P3",
        data,
        convert_colours_of_profile_to_srgb(decode_heif(data), P3, None),
        3,
        "pillow-heif and formula",
    )
    data = encode_heic(
        Image.fromarray(large // 2 + 64), color_primaries=12, transfer_characteristics=13
    )
    assert b"colrnclx\0\x0c" in data
    yield DecoderTestPicture(
        "heic of the primaries of P3",
        data,
        convert_colours_of_profile_to_srgb(decode_heif(data), P3, None),
        3,
        "pillow-heif and formula",
    )
    data = imagecodecs.avif_encode(colours // 2 + 64, primaries=12, transfer=13, level=98)
    assert b"colrnclx\0\x0c" in data
    yield DecoderTestPicture(
        "avif of the primaries of P3",
        data,
        convert_colours_of_profile_to_srgb(decode_avif(data), P3, None),
        4,
        "imagecodecs and formula",
    )
    for name, data in (
        ("avif", encode_image(colours, "AVIF", quality=95)),
        ("avif 4:4:4", encode_image(colours, "AVIF", quality=95, subsampling="4:4:4")),
        (
            "avif alpha",
            encode_image(
                make_noise_pixel_samples(4, seed=3) // 2 + 64,
                "AVIF",
                quality=100,
                subsampling="4:4:4",
            ),
        ),
        (
            "avif 10-bit",
            imagecodecs.avif_encode(colours.astype(np.uint16) * 4, bitspersample=10, level=95),
        ),
    ):
        yield DecoderTestPicture(name, data, decode_avif(data), 3, "imagecodecs")
    for orientation in (3, 6, 7):
        data = encode_image(
            orient_pixels_as_stored(colours, orientation),
            "AVIF",
            quality=98,
            subsampling="4:4:4",
            exif=build_exif_orientation(orientation),
        )
        yield DecoderTestPicture(f"avif turned {orientation}", data, colours, 6)
    data = encode_image(colours, "AVIF", quality=98, subsampling="4:4:4", icc_profile=PROFILE_P3)
    yield DecoderTestPicture(
        "avif Display P3",
        data,
        convert_colours_of_profile_to_srgb(decode_avif(data), P3, None),
        4,
        "imagecodecs and formula",
    )


def describe_libvips_difference(kind: DecoderTestPicture) -> str:
    """Describe how libvips decodes a test image differently; "" if it does not."""
    assert kind.pixels is not None
    try:
        pixels = decode_with_libvips(kind.data)
    except Exception as error:  # noqa: BLE001 - libvips raises its own for files that it does not support
        return f"not read ({str(error).splitlines()[0][:60]})"
    if pixels.shape != kind.pixels.shape:
        return f"shape {pixels.shape}"
    difference = int(np.abs(pixels.astype(int) - kind.pixels).max())
    # A difference of 1 is a matter of rounding.
    return "" if difference <= max(1, kind.tolerance) else f"off by {difference}"


def crop_picture_centre(pixels: Pixels) -> Pixels:
    """Crop the middle of a picture, after reducing a large one to the common size."""
    height, width = pixels.shape[:2]
    if min(height, width) != SIDE:
        short = min(height, width)
        size = (round(width * SIDE / short), round(height * SIDE / short))
        pixels = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR))
        height, width = pixels.shape[:2]
    top, left = (height - SIDE) // 2, (width - SIDE) // 2
    return pixels[top : top + SIDE, left : left + SIDE]


def main() -> None:
    """Write a zip with test images of all kinds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    out = parser.parse_args().out
    kinds = [
        *generate_tiff_test_pictures(),
        *generate_png_test_pictures(),
        *generate_jpeg_test_pictures(),
        *generate_other_test_pictures(),
    ]
    # The names are those of the files in the zip.
    assert len({kind.name for kind in kinds}) == len(kinds)
    entries: list[dict[str, str | int]] = []
    expected = []
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:

        def write_picture_to_zip(name: str, data: bytes) -> None:
            # A fixed time, so that the same pictures give the same zip.
            info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            archive.writestr(info, data, zipfile.ZIP_DEFLATED, 9)

        for kind in kinds:
            write_picture_to_zip(kind.name, kind.data)
            if kind.pixels is None:
                entries.append({"name": kind.name, "refused": kind.refused})
            else:
                entries.append(
                    {"name": kind.name, "tolerance": kind.tolerance, "oracle": kind.oracle}
                )
                expected.append(crop_picture_centre(kind.pixels))
        packed = io.BytesIO()
        np.save(packed, np.stack(expected).astype(np.uint8), allow_pickle=False)
        write_picture_to_zip("expected.npy", packed.getvalue())
        write_picture_to_zip("kinds.json", json.dumps(entries, indent=1).encode())
    # The other kinds have an oracle already, often libvips itself.
    lossless = [kind for kind in kinds if kind.pixels is not None and kind.oracle == "definition"]
    differs = {
        kind.name: difference
        for kind in lossless
        if (difference := describe_libvips_difference(kind))
    }
    print(
        f"libvips sees {len(lossless) - len(differs)} of {len(lossless)} lossless kinds alike, and "
        f"otherwise: {differs}"
    )
    print(
        f"{len(kinds)} kinds, {len(expected)} of them with pixels: {out} has {out.stat().st_size} "
        f"bytes"
    )


if __name__ == "__main__":
    main()
