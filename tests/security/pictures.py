"""Pictures that attack: each is sent for prediction, and all of them together are rows of one
batch.
"""

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
from PIL import Image

from tests.core.ingest.hostile_corpus import build_zip, draw_png
from tests.security.case import PREDICT, Case

NO_IMAGE, DAMAGED, PIXELS = "not a PNG", "damaged", "pixels"
_TAKEN = ("200",)
_REFUSED = ("422 image-invalid",)


def list_cases() -> list[Case]:
    """Return all cases of pictures.

    `row` has words of the line in a batch's report; it is empty for odd ones that are fine.
    """
    honest = draw_png(1, (64, 64))
    return [
        _make_bad_case("no bytes", lambda: b"", "empty"),
        _make_bad_case("one byte", lambda: b"\x89", NO_IMAGE),
        _make_bad_case("PNG signature alone", lambda: b"\x89PNG\r\n\x1a\n", DAMAGED),
        _make_bad_case("PNG of 4 Gpx declared", lambda: _build_png(65_535, 65_535, b""), PIXELS),
        _make_bad_case("PNG of 2^31 - 1 pixels a side", lambda: _build_png(2**31 - 1, 2**31 - 1, b""), PIXELS),
        _make_bad_case("PNG of no width", lambda: _build_png(0, 9, b""), ""),
        _make_bad_case("PNG of 900 Mpx, all there", lambda: _build_flat_png(30_000), PIXELS),
        _make_bad_case("PNG of 16.8 Mpx declared, 10 bytes "
            "there", lambda: _build_png(4096, 4096, zlib.compress(bytes(10))), DAMAGED),
        _make_bad_case("PNG cut in its data", lambda: honest[: len(honest) // 2], DAMAGED),
        _make_bad_case("PNG with a false "
            "checksum", lambda: honest[:40] + bytes([honest[40] ^ 1]) + honest[41:], ""),
        _make_odd_case("PNG chunk of 4 GiB", lambda: honest[:33] + b"\xff\xff\xff\xffIDAT" + honest[41:]),
        _make_bad_case("PNG without a palette", lambda: _build_png(8, 8, zlib.compress(bytes(72)), color=3), ""),
        _make_bad_case("PNG of unknown colour "
            "type", lambda: _build_png(8, 8, zlib.compress(bytes(72)), color=5), DAMAGED),
        _make_odd_case("PNG with a text "
            "bomb", lambda: _build_png_with_chunks(b"zTXt", b"k\0\0" + zlib.compress(bytes(64 << 20), 9))),
        _make_odd_case("PNG with a colour profile bomb",
             lambda: _build_png_with_chunks(b"iCCP", b"k\0\0" + zlib.compress(bytes(64 << 20), 9))),
        _make_odd_case("PNG with a thousand text bombs",
             lambda: _build_png_with_chunks(b"zTXt", b"k\0\0" + zlib.compress(bytes(900_000), 9), 1000)),
        _make_odd_case("PNG with a thousand bombs that look like EXIF",
             lambda: _build_png_with_chunks(b"zTXt", b"Raw profile type "
                 b"exif\0\0" + zlib.compress(bytes(900_000), 9), 1000)),
        _make_odd_case("PNG with EXIF of loops",
             lambda: _build_png_with_chunks(b"eXIf",
                 b"II*\0\x08\0\0\0\x01\0\x69\x87\x04\0\1\0\0\0\x08\0\0\0" + bytes(8))),
        _make_bad_case("PNG of 200,000 empty chunks", lambda: build_png_of_many_chunks(200_000), "chunks"),
        _make_bad_case("PNG of 200,000 empty chunks behind its pixels",
             lambda: draw_png(4)[:-12] + _build_chunk(b"abCd", b"") * 200_000 + draw_png(4)[-12:], "chunks"),
        _make_bad_case("PNG whose pixels come byte by byte", lambda: _build_bytewise_png(200_000), "chunks"),
        _make_odd_case("PNG that declares 10^6 "
            "frames", lambda: _build_png_with_chunks(b"acTL", struct.pack(">II", 1_000_000, 0))),
        _make_odd_case("PNG that declares 2^31 "
            "frames", lambda: _build_png_with_chunks(b"acTL", struct.pack(">II", 2**31 - 1, 0))),
        _make_odd_case("PNG with a zip behind it (polyglot)", lambda: draw_png(2) + build_zip({"a": b"x"})),
        _make_odd_case("PNG with a script in a text",
            lambda: _build_png_with_chunks(b"tEXt", b"Comment\0<script>alert(1)</script>")),
        _make_odd_case("PNG of 16 "
            "bits", lambda: _save_image(Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8)), "PNG")),
        _make_odd_case("PNG of one row and a million "
            "columns", lambda: _save_image(Image.new("L", (1_000_000, 1)), "PNG")),
        _make_bad_case("JPEG of 65,500 pixels a side", lambda: _build_jpeg(65_500, 65_500), PIXELS),
        _make_bad_case("JPEG of no height", lambda: _build_jpeg(8, 0), DAMAGED + "|" + NO_IMAGE),
        _make_bad_case("JPEG cut in half", lambda: _cut_in_half(_save_noise("JPEG")), DAMAGED),
        _make_bad_case("JPEG of 2,000 scans", lambda: _build_jpeg_of_scans(2000), "scans"),
        _make_bad_case("JPEG of 2,000 scans and 16.8 Mpx", lambda: _build_jpeg_of_scans(2000, 4096), "scans"),
        _make_bad_case("MPO of 2,000 scans", lambda: build_mpo(2000), "scans"),
        _make_bad_case("MPO of 2,000 scans and 16.8 Mpx", lambda: build_mpo(2000, 4096), "scans"),
        _make_odd_case("MPO of two frames", lambda: build_mpo(0)),
        _make_bad_case("JPEG marker of 0 "
            "bytes", lambda: b"\xff\xd8\xff\xe0\0\0" + bytes(90), NO_IMAGE + "|" + DAMAGED),
        _make_bad_case("JPEG tables beyond the "
            "end", lambda: b"\xff\xd8\xff\xc4\xff\xff" + bytes(90), NO_IMAGE + "|" + DAMAGED),
        _make_odd_case("JPEG in CMYK", lambda: _save_image(Image.new("CMYK", (16, 16)), "JPEG")),
        _make_odd_case("JPEG with 64 kB of EXIF noise",
             lambda: _save_image(Image.new("RGB", (16, 16)), "JPEG", exif=b"Exif\0\0" + bytes(range(250)) * 250)),
        _make_odd_case("JPEG with EXIF that points at itself", lambda: _save_image(
            Image.new("RGB", (16, 16)), "JPEG",
            exif=b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\1\0\0\0\x09\0\0\0\x08\0\0\0")),
        _make_odd_case("JPEG with HTML behind "
            "it", lambda: _save_image(Image.new("RGB", (16, 16)), "JPEG") + b"<html>" * 99),
        _make_bad_case("WebP of 16,383 pixels a "
            "side", lambda: _build_webp(16_383, 16_383), PIXELS + "|" + NO_IMAGE + "|" + DAMAGED),
        _make_bad_case("WebP cut in half", lambda: _cut_in_half(_save_noise("WEBP")), DAMAGED + "|" + NO_IMAGE),
        _make_bad_case("WebP with a length of 4 GiB", lambda: b"RIFF\xff\xff\xff\xffWEBPVP8 "
            b"\xff\xff\xff\xff" + bytes(99), ""),
        _make_bad_case("WebP of noise "
            "bits", lambda: _save_noise("WEBP")[:20] + np.random.default_rng(1).bytes(900), ""),
        _make_odd_case("WebP of 300 frames", lambda: _build_frames("WEBP", 300)),
        _make_bad_case("BMP of 2^31 pixels a side", lambda: _build_bmp(2**31 - 1, 2**31 - 1), PIXELS),
        _make_bad_case("BMP of negative width", lambda: _build_bmp(-8, 8), ""),
        _make_bad_case("BMP of 16.8 Mpx declared, nothing there", lambda: _build_bmp(4096, 4096), DAMAGED),
        _make_bad_case("BMP in RLE that never "
            "ends", lambda: _build_bmp(4096, 4096, bits=8, packing=1) + b"\0\x02\xff\xff" * 9, ""),
        _make_bad_case("BMP in RLE of 9 MB of ends of lines",
             lambda: _build_bmp(4096, 4096, bits=8, packing=1) + bytes(9 << 20), "RLE"),
        _make_bad_case("BMP in RLE of a pixel a "
            "run", lambda: _build_bmp(4096, 4096, bits=8, packing=1) + b"\1\5" * (9 << 19), "RLE"),
        _make_bad_case("TIFF of 2^32 - 1 pixels a side", lambda: _build_tiff(2**32 - 1, 2**32 - 1), ""),
        _make_bad_case("TIFF of 16.8 Mpx declared, nothing there", lambda: _build_tiff(4096, 4096), DAMAGED),
        _make_bad_case("TIFF whose directory is itself", lambda: b"II*\0\x08\0\0\0\0\0\x08\0\0\0", ""),
        _make_bad_case("TIFF of 60,000 odd tags", lambda: _build_tiff(8, 8, odd=60_000), ""),
        _make_bad_case("TIFF directory beyond the end", lambda: b"II*\0\xff\xff\xff\x7f", ""),
        _make_odd_case("TIFF of 32-bit "
            "floats", lambda: _save_image(Image.fromarray(np.zeros((8, 8), np.float32)), "TIFF")),
        _make_bad_case("TIFF of 32-bit "
            "integers", lambda: _save_image(Image.fromarray(np.zeros((8, 8), np.int32)), "TIFF"), "32-bit"),
        _make_bad_case("TIFF cut in its data", lambda: _save_noise("TIFF", compression="tiff_lzw")[:700], ""),
        _make_odd_case("TIFF of 65,536 tiles that are one JPEG of 88 "
            "scans", lambda: _build_tiff_of_jpeg(_build_jpeg_of_scans(87, 16), 16)),
        _make_odd_case("TIFF of 60,000 frames", lambda: _build_tiff_chain(60_000)),
        _make_odd_case("GIF of 300 frames", lambda: _build_frames("GIF", 300)),
        _make_odd_case("GIF with a script in a comment",
            lambda: _build_gif(before=b"!\xfe\x19<script>alert(1)</script>\0")),
        _make_odd_case("GIF with a zip behind it (polyglot)", lambda: _build_gif() + build_zip({"a": b"x"})),
        _make_bad_case("GIF of 65,535 pixels a "
            "side", lambda: b"GIF89a\xff\xff\xff\xff" + _build_gif()[10:], PIXELS),
        _make_bad_case("GIF whose frame lies far outside its "
            "screen", lambda: _build_gif(frame=(65_000, 65_000, 8, 8)), PIXELS),
        _make_bad_case("GIF of a frame of 65,535 pixels a "
            "side", lambda: _build_gif(frame=(0, 0, 65_535, 65_535)), PIXELS),
        _make_bad_case("GIF of 16.8 Mpx declared, nothing "
            "there", lambda: _build_gif(frame=(0, 0, 4096, 4096)), DAMAGED),
        _make_bad_case("GIF of no width", lambda: _build_gif(screen=(0, 0), frame=(0, 0, 0, 8)), ""),
        _make_bad_case("GIF of a million blocks of one "
            "byte", lambda: _build_gif(blocks=b"\1x" * 1_000_000), "blocks"),
        _make_bad_case("GIF of a comment of a million "
            "blocks", lambda: _build_gif(before=b"!\xfe" + b"\1x" * 1_000_000 + b"\0"),
             "blocks"),
        _make_bad_case("GIF of a million empty "
            "extensions", lambda: _build_gif(before=b"!\xfe\0" * 1_000_000), "blocks"),
        _make_bad_case("GIF of a million zeros before its "
            "frame", lambda: _build_gif(before=b"\0" * 1_000_000), "blocks"),
        _make_bad_case("GIF that ends in its screen", lambda: _build_gif()[:11], DAMAGED),
        _make_bad_case("GIF that ends in its frame's descriptor", lambda: _build_gif()[:-20], DAMAGED),
        _make_bad_case("GIF without a frame", lambda: _build_gif()[:13] + bytes(768) + b";", DAMAGED),
        _make_bad_case("GIF of codes that were never "
            "made", lambda: _build_gif(blocks=b"\x04\xff\xff\xff\xff"), DAMAGED),
        _make_odd_case("GIF whose second frame is of 65,535 pixels a side",
             lambda: _build_gif()[:-1] + b",\0\0\0\0\xff\xff\xff\xff\0\x08\0;"),
        _make_odd_case("AVIF of 300 frames", lambda: _build_frames("AVIF", 300)),
        _make_bad_case("AVIF cut in half", lambda: _cut_in_half(_save_noise("AVIF")), DAMAGED),
        _make_bad_case("AVIF of 65,535 pixels a side "
            "declared", lambda: _build_avif(65_535, 65_535), PIXELS + "|" + DAMAGED),
        _make_odd_case("AVIF of 16.8 Mpx declared, 4,096 there", lambda: _build_avif(4096, 4096)),
        _make_bad_case("AVIF of noise "
            "bits", lambda: _save_noise("AVIF")[:300] + np.random.default_rng(1).bytes(900), ""),
        _make_bad_case("HEIC of nothing", lambda: b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(90), DAMAGED),
        *[_make_bad_case(f"{name} called "
            f".png", lambda data=data: data, NO_IMAGE) for name, data in _list_disguised_files().items()],
    ]  # fmt: skip


def build_mpo(scans: int, side: int = 64) -> bytes:
    """Build a JPEG of many scans that is the first of two: Pillow calls that an MPO."""
    first = Image.new("L", (side, side), 99)
    plain = _save_image(
        first, "MPO", save_all=True, append_images=[Image.new("L", (8, 8))], progressive=True
    )
    end = plain.index(b"\xff\xd9")
    return plain[:end] + scans * plain[plain.rindex(b"\xff\xda", 0, end) : end] + plain[end:]


def build_png_of_many_chunks(count: int) -> bytes:
    """Build a good PNG with so many empty chunks before its pixels."""
    return _build_png_with_chunks(b"abCd", b"", count)


def build_large_jpeg() -> bytes:
    """Build an honest JPEG of 16.8 Mpx in few bytes."""
    return _save_image(Image.new("L", (4096, 4096), 99), "JPEG")


def build_honest_pictures(count: int) -> dict[str, bytes]:
    """Build honest pictures of two classes for the batch that the attacks are in."""
    return {
        f"{label}/{i}.png": draw_png(i * 2 + side)
        for side, label in enumerate(("cat", "dog"))
        for i in range(count)
    }


def _list_disguised_files() -> dict[str, bytes]:
    return {
        "SVG with an entity bomb": b'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "aaaa"><!ENTITY '
            b'b "&a;&a;&a;">]>'
        b"<svg>&b;</svg>",
        "SVG with a script": b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
        "EPS": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(%pipe%id) (w) file\n",
        "PDF": b"%PDF-1.7\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>",
        "FITS": b"SIMPLE  =                    "
            b"T".ljust(80) + b"BITPIX  =                    8".ljust(80)
        + b"END".ljust(2720),
        "JPEG 2000": b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(90),
        "film": b"\0\0\0\x18ftypmp42\0\0\0\0isommp42" + bytes(90),
        "ICO": b"\0\0\1\0\1\0" + bytes(90),
        "PSD": b"8BPS\0\1" + bytes(90),
        "PPM": b"P6 65000 65000 255\n",
        "XBM": b"#define a_width 99999\n#define a_height 99999\nstatic char a_bits[] = {",
        "IM": b"Image type: RGB\r\n" + bytes(600),
        "HTML": b"<!doctype html><script>alert(1)</script>",
        "ELF program": b"\x7fELF" + bytes(90),
        "zip": build_zip({"a": b"x"}),
        "pickle": b"\x80\x04\x95\x0b\0\0\0\0\0\0\0\x8c\x07evil\x94.",
        "text": b"hello",
    }  # fmt: skip


def _make_bad_case(name: str, make: Callable[[], bytes], row: str) -> Case:
    return Case("pictures", name, make, _REFUSED, PREDICT, row=row or "*")


def _make_odd_case(name: str, make: Callable[[], bytes]) -> Case:
    return Case("pictures", name, make, _TAKEN, PREDICT)


def _save_image(image: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)  # type: ignore[arg-type]
    return out.getvalue()


def _save_noise(kind: str, **options: object) -> bytes:
    return _save_image(
        Image.fromarray(np.random.default_rng(3).integers(0, 256, (64, 64, 3), dtype=np.uint8)),
        kind,
        **options,
    )


def _cut_in_half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _build_frames(kind: str, count: int) -> bytes:
    frames = [Image.new("RGB", (8, 8), (i % 256, i // 2 % 256, 9)) for i in range(count)]
    return _save_image(frames[0], kind, save_all=True, append_images=frames[1:])


def _build_gif(
    screen: tuple[int, int] = (8, 8),
    frame: tuple[int, int, int, int] = (0, 0, 8, 8),
    before: bytes = b"",
    blocks: bytes | None = None,
) -> bytes:
    """Build a grey GIF: its screen, something before its frame, and its frame.
    The frame may have other blocks than its own.
    """
    plain = _save_image(Image.new("L", (8, 8), 7), "GIF")
    at = plain.index(b",")
    pixels = plain[at + 11 : -1] if blocks is None else blocks + b"\0"
    head = plain[:6] + struct.pack("<2H", *screen) + plain[10:at]
    return (
        head + before + b"," + struct.pack("<4H", *frame) + plain[at + 9 : at + 11] + pixels + b";"
    )


def _build_avif(width: int, height: int) -> bytes:
    plain = _save_noise("AVIF")
    at = plain.index(b"ispe") + 8
    return plain[:at] + struct.pack(">2I", width, height) + plain[at + 8 :]


def _build_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _build_png(width: int, height: int, packed: bytes, color: int = 2) -> bytes:
    head = struct.pack(">2I5B", width, height, 8, color, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _build_chunk(b"IHDR", head)
        + _build_chunk(b"IDAT", packed)
        + _build_chunk(b"IEND", b"")
    )


def _build_flat_png(side: int) -> bytes:
    packer, rows = zlib.compressobj(9), b"\0" * (side // 8 + 1) * 100
    packed = b"".join(packer.compress(rows) for _ in range(side // 100)) + packer.flush()
    head = struct.pack(">2I5B", side, side, 1, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _build_chunk(b"IHDR", head)
        + _build_chunk(b"IDAT", packed)
        + _build_chunk(b"IEND", b"")
    )


def _build_png_with_chunks(kind: bytes, data: bytes, times: int = 1) -> bytes:
    """Build a good PNG with more chunks behind its header."""
    plain = draw_png(4)
    return plain[:33] + _build_chunk(kind, data) * times + plain[33:]


def _build_bytewise_png(count: int) -> bytes:
    head = struct.pack(">2I5B", 4096, 4096, 8, 0, 0, 0, 0)
    packed = zlib.compress(bytes(4096 * 4097), 0)[:count]
    pieces = b"".join(_build_chunk(b"IDAT", bytes([byte])) for byte in packed)
    return b"\x89PNG\r\n\x1a\n" + _build_chunk(b"IHDR", head) + pieces + _build_chunk(b"IEND", b"")


def _build_jpeg(width: int, height: int) -> bytes:
    plain = _save_image(Image.new("L", (16, 16)), "JPEG")
    at = plain.index(b"\xff\xc0") + 5
    return plain[:at] + struct.pack(">2H", height, width) + plain[at + 4 :]


def _build_jpeg_of_scans(count: int, side: int = 64) -> bytes:
    plain = _save_image(Image.new("L", (side, side), 99), "JPEG", progressive=True)
    return plain[:-2] + count * plain[plain.rindex(b"\xff\xda") : -2] + plain[-2:]


def _build_webp(width: int, height: int) -> bytes:
    canvas = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    extended = (
        b"VP8X" + struct.pack("<I", 10) + b"\x02\0\0\0" + canvas + b"ANIM\x06\0\0\0" + bytes(6)
    )
    body = b"WEBP" + extended + _save_noise("WEBP")[12:]
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _build_bmp(width: int, height: int, bits: int = 24, packing: int = 0) -> bytes:
    return b"BM" + struct.pack(
        "<IIIIiiHHIIiiII", 54, 0, 54, 40, width, height, 1, bits, packing, 0, 0, 0, 0, 0
    )


def _build_tiff(width: int, height: int, odd: int = 0) -> bytes:
    entries = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, 5), (262, 3, 1, 1),
               (273, 4, 1, 8), (278, 4, 1, height), (279, 4, 1, 8)]  # fmt: skip
    entries += [(40_000 + i % 20_000, 13, 1, 5) for i in range(odd)]
    packed = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(entries)) + packed + bytes(4)


def _build_tiff_of_jpeg(stream: bytes, tile: int) -> bytes:
    """Build a grey picture of 4,096 × 4,096 pixels, each of whose tiles is the same JPEG."""
    side = 4096
    count = (side // tile) ** 2
    at = 8 + len(stream) + len(stream) % 2
    entries = [(256, 4, 1, side), (257, 4, 1, side), (258, 3, 1, 8), (259, 3, 1, 7), (262, 3, 1, 1), (277, 3, 1, 1),
               (322, 4, 1, tile), (323, 4, 1, tile), (324, 4, count, at), (325, 4, count, at + 4 * count)]  # fmt: skip
    packed = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    places = struct.pack("<I", 8) * count + struct.pack("<I", len(stream)) * count
    head = b"II*\0" + struct.pack("<I", at + len(places))
    return (
        head
        + stream
        + bytes(len(stream) % 2)
        + places
        + struct.pack("<H", len(entries))
        + packed
        + bytes(4)
    )


def _build_tiff_chain(count: int) -> bytes:
    """Build a TIFF of one grey pixel a directory, each of which names the next."""
    out = bytearray(b"II*\0\x08\0\0\0")
    entries = [(256, 4, 1, 1), (257, 4, 1, 1), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 0),
               (278, 4, 1, 1), (279, 4, 1, 1)]  # fmt: skip
    packed = struct.pack("<H", len(entries)) + b"".join(
        struct.pack("<HHII", *entry) for entry in entries
    )
    for number in range(count):
        out += packed + struct.pack("<I", len(out) + len(packed) + 4 if number < count - 1 else 0)
    return bytes(out)
