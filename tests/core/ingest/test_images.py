"""One function turns any accepted image into a square: formats, modes, orientation, geometry,
refusals.
"""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from core.errors import ImageInvalid
from core.ingest.decoding.resizing import FIRST, LATEST, SquareResizingSettings
from core.ingest.image_file import gif, heic, jpeg, kinds, png
from core.ingest.images import decode_image_to_square_pixels, decode_square_image

MAX = 4096 * 4096


def encode_image(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def draw_noise(width: int, height: int, channels: int = 3) -> np.ndarray:
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(width * height).integers(0, 256, shape, dtype=np.uint8)


def build_huge_png(width: int, height: int) -> bytes:
    def build_png_chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + build_png_chunk(b"IHDR", head)
        + build_png_chunk(b"IDAT", zlib.compress(bytes(1000)))
        + build_png_chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "WEBP", "GIF"])
def test_an_image_of_the_wanted_size_keeps_its_pixels(kind: str) -> None:
    pixels = draw_noise(32, 32)
    options = {"lossless": True} if kind == "WEBP" else {}
    if kind == "GIF":
        pixels = np.asarray(Image.fromarray(pixels).quantize(200).convert("RGB"))
    assert np.array_equal(
        decode_image_to_square_pixels(
            encode_image(Image.fromarray(pixels), kind, **options), 32, 3, MAX
        ),
        pixels,
    )


@pytest.mark.parametrize("kind", ["JPEG", "AVIF"])
def test_what_is_packed_with_losses_is_read(kind: str) -> None:
    flat = Image.new("RGB", (64, 48), (200, 100, 50))
    assert (
        np.abs(
            decode_image_to_square_pixels(encode_image(flat, kind), 32, 3, MAX).astype(int)
            - [200, 100, 50]
        ).max()
        <= 4
    )


@pytest.mark.parametrize("kind", ["PPM", "ICO", "PCX"])
def test_other_formats_are_refused(kind: str) -> None:
    with pytest.raises(ImageInvalid, match="not a PNG"):
        decode_image_to_square_pixels(
            encode_image(Image.fromarray(draw_noise(16, 16)), kind), 16, 3, MAX
        )


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP", "AVIF"])
def test_orientation_is_applied(turn: int, kind: str) -> None:
    upright = np.zeros((32, 32), np.uint8)
    upright[:16, :16] = (
        255  # the bright quarter must end at the top left, the grey one at the top right
    )
    upright[:16, 16:] = 128
    undo = {
        2: 0,
        3: 3,
        4: 1,
        5: 5,
        6: 2,
        7: 6,
        8: 4,
    }  # Image.Transpose that stores it as `turn` says
    stored = Image.fromarray(upright).convert("RGB")
    if turn > 1:
        stored = stored.transpose(Image.Transpose(undo[turn]))
    exif = Image.Exif()
    exif[0x0112] = turn
    data = encode_image(stored, kind, exif=exif.tobytes() if kind != "TIFF" else exif)
    got = decode_image_to_square_pixels(data, 32, 1, MAX)[:, :, 0].astype(int)
    assert got[4, 4] > 230 and 100 < got[4, 28] < 160 and got[28, 4] < 30


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_broken_exif_does_not_cost_the_image() -> None:
    data = encode_image(
        Image.fromarray(draw_noise(8, 8)), "JPEG", exif=b"Exif\0\0MM\0*" + b"\xff" * 20
    )
    assert decode_image_to_square_pixels(data, 8, 3, MAX).shape == (8, 8, 3)


def test_alpha_is_laid_over_white() -> None:
    half = Image.new("RGBA", (8, 8), (0, 0, 0, 128))
    assert (
        np.abs(decode_image_to_square_pixels(encode_image(half), 8, 3, MAX).astype(int) - 127).max()
        <= 1
    )
    clear = Image.new("LA", (8, 8), (0, 0))
    assert decode_image_to_square_pixels(encode_image(clear), 8, 1, MAX).min() == 255
    palette = Image.new("P", (8, 8), 0)
    palette.putpalette([10, 20, 30] * 256)
    assert (
        decode_image_to_square_pixels(encode_image(palette, transparency=0), 8, 3, MAX).min() == 255
    )
    assert decode_image_to_square_pixels(encode_image(palette), 8, 3, MAX)[0, 0].tolist() == [
        10,
        20,
        30,
    ]


def test_16_bit_grey_is_scaled() -> None:
    wide = np.array([[0, 257, 65535, 32768]] * 4, np.uint16)
    got = decode_image_to_square_pixels(encode_image(Image.fromarray(wide)), 4, 1, MAX)
    assert got[0, :, 0].tolist() == [0, 1, 255, 128]


def test_grey_and_colour_are_converted_to_what_is_wanted() -> None:
    grey = draw_noise(8, 8, 1)
    assert np.array_equal(
        decode_image_to_square_pixels(encode_image(Image.fromarray(grey)), 8, 3, MAX),
        np.repeat(grey[:, :, None], 3, 2),
    )
    assert decode_image_to_square_pixels(
        encode_image(Image.fromarray(draw_noise(8, 8))), 8, 1, MAX
    ).shape == (
        8,
        8,
        1,
    )
    assert (
        decode_image_to_square_pixels(
            encode_image(Image.new("CMYK", (8, 8)), "TIFF"), 8, 3, MAX
        ).min()
        == 255
    )
    assert (
        decode_image_to_square_pixels(encode_image(Image.new("1", (8, 8), 1)), 8, 1, MAX).min()
        == 255
    )


def crop_after_resizing(pixels: np.ndarray, size: int) -> np.ndarray:
    """Resize the shorter side, then crop the centre: the slow, obvious transformation."""
    height, width = pixels.shape[:2]
    target = size if size <= 96 else round(size * 256 / 224)
    short = min(width, height)
    new = tuple(
        target if side == short else round(side * target / short) for side in (width, height)
    )
    image = Image.fromarray(pixels).resize(new, Image.Resampling.BILINEAR)
    left, top = (new[0] - size) // 2, (new[1] - size) // 2
    return np.asarray(image.crop((left, top, left + size, top + size)))


@pytest.mark.parametrize(
    ("width", "height"), [(50, 40), (40, 51), (33, 32), (32, 45), (20, 31), (300, 200)]
)
@pytest.mark.parametrize("size", [32, 112])
def test_geometry_is_that_of_resizing_the_shorter_side_and_cropping(
    width: int, height: int, size: int
) -> None:
    pixels = draw_noise(width, height)
    got = decode_image_to_square_pixels(encode_image(Image.fromarray(pixels)), size, 3, MAX).astype(
        int
    )
    assert np.abs(got - crop_after_resizing(pixels, size)).max() <= 1


def test_an_extreme_strip_costs_no_more_than_its_centre() -> None:
    strip = encode_image(Image.new("L", (1_000_000, 1), 77))
    assert np.unique(decode_image_to_square_pixels(strip, 32, 1, MAX)).tolist() == [77]


def test_too_many_pixels_are_refused_before_they_are_decoded() -> None:
    with pytest.raises(ImageInvalid, match="30000×30000 pixels, more than 16777216"):
        decode_image_to_square_pixels(build_huge_png(30_000, 30_000), 32, 3, MAX)


@pytest.mark.parametrize("keep", [0, 1, 20, 60, 400])
def test_truncated_files_are_refused(keep: int) -> None:
    for kind in ("JPEG", "PNG"):
        with pytest.raises(ImageInvalid):
            decode_image_to_square_pixels(
                encode_image(Image.fromarray(draw_noise(64, 64)), kind)[:keep], 32, 3, MAX
            )


def test_the_first_frame_is_taken() -> None:
    frames = [Image.new("RGB", (8, 8), c) for c in ((255, 0, 0), (0, 255, 0))]
    for kind in ("TIFF", "PNG", "GIF", "WEBP", "AVIF"):
        options = {
            "WEBP": {"lossless": True},
            "AVIF": {"quality": 100, "subsampling": "4:4:4"},
        }.get(kind, {})
        data = encode_image(frames[0], kind, save_all=True, append_images=frames[1:], **options)
        image, more, *_ = decode_square_image(data, 8, 3, MAX)
        assert np.abs(np.asarray(image)[0, 0].astype(int) - [255, 0, 0]).max() <= 2 and more
        assert not decode_square_image(encode_image(frames[0], kind), 8, 3, MAX)[1]


def test_transparent_pixels_of_a_gif_are_white() -> None:
    palette = Image.new("P", (8, 8), 0)
    palette.putpalette([10, 20, 30] * 256)
    assert (
        decode_image_to_square_pixels(encode_image(palette, "GIF", transparency=0), 8, 3, MAX).min()
        == 255
    )


def build_gif(before: bytes = b"", blocks: bytes | None = None) -> bytes:
    """Build a grey GIF with something before its frame, or with other pixel blocks in it."""
    whole = encode_image(Image.new("L", (8, 8), 7), "GIF")
    at = whole.index(b",")
    data = whole[: at + 11] + blocks + b";" if blocks is not None else whole
    return data[:at] + before + data[at:]


def test_a_gif_whose_frame_is_larger_than_its_screen_is_measured_by_the_frame() -> None:
    data = bytearray(build_gif())
    at = data.index(b",")
    data[at + 5 : at + 9] = b"\xff\xff\xff\xff"
    with pytest.raises(ImageInvalid, match="65535×65535 pixels, more than"):
        decode_image_to_square_pixels(bytes(data), 8, 3, MAX)


@pytest.mark.parametrize(
    "data",
    [
        build_gif(before=b"!\xfe" + b"\1x" * 600_000 + b"\0"),
        build_gif(blocks=b"\1x" * 600_000 + b"\0"),
    ],
    ids=["of a comment", "of pixels"],
)
def test_a_gif_of_hundreds_of_thousands_of_blocks_is_refused_before_it_is_decoded(
    data: bytes,
) -> None:
    with pytest.raises(ImageInvalid, match=f"more than {gif.MAX_BLOCKS} blocks"):
        decode_image_to_square_pixels(data, 8, 3, MAX)


def test_nothing_behind_the_first_frame_of_a_gif_is_looked_at() -> None:
    frames = [Image.new("L", (8, 8), c) for c in (1, 2)]
    data = encode_image(frames[0], "GIF", save_all=True, append_images=frames[1:])
    cut, more = gif.first_frame(data, MAX)
    assert more and len(cut) < len(data) and cut.endswith(b"\0;")
    assert gif.first_frame(data[: len(cut) - 1] + b"!\xfe" + b"\1x" * 99 + b"\0", MAX) == (
        cut,
        False,
    )


@pytest.mark.parametrize("kind", ["GIF", "AVIF"])
def test_a_cut_file_is_called_damaged_and_not_of_an_unknown_format(kind: str) -> None:
    whole = encode_image(Image.fromarray(draw_noise(64, 64)), kind)
    for keep in (20, 60, len(whole) // 2):
        with pytest.raises(ImageInvalid, match="damaged or cut off"):
            decode_image_to_square_pixels(whole[:keep], 32, 3, MAX)


def build_first_box(*brands: bytes) -> bytes:
    """Build the first box of a file of these brands, and nothing that could be decoded."""
    body = b"ftyp" + brands[0] + bytes(4) + b"".join(brands)
    return (len(body) + 4).to_bytes(4) + body + bytes(90)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (build_first_box(b"heic"), kinds.HEIC),
        (build_first_box(b"mif1", b"heic"), kinds.HEIC),
        (build_first_box(b"mif1", b"avif"), kinds.AVIF),
        (build_first_box(b"avis"), kinds.AVIF),
    ],
)
def test_heic_and_avif_are_told_apart_by_their_brands(data: bytes, kind: str) -> None:
    assert kinds.kind_of(data) == kind


def test_avif_says_what_it_is_where_pillow_cannot_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("PIL.AvifImagePlugin.SUPPORTED", False)
    with pytest.raises(ImageInvalid, match="an AVIF image"):
        decode_image_to_square_pixels(build_first_box(b"avif"), 8, 3, MAX)


def test_heic_says_what_it_is_where_its_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heic, "load_library", lambda: None)
    with pytest.raises(ImageInvalid, match="a HEIC image, which needs the package pi-heif"):
        decode_image_to_square_pixels(build_first_box(b"heic"), 8, 3, MAX)


@pytest.mark.parametrize("decoding", [FIRST, LATEST])
def test_a_jpeg_may_have_four_times_the_pixels_of_others(decoding: int) -> None:
    large, resizing = Image.new("L", (2000, 2000), 77), SquareResizingSettings(decoding=decoding)
    assert np.unique(
        decode_image_to_square_pixels(encode_image(large, "JPEG"), 32, 1, 1_000_000, resizing)
    ).tolist() == [77]
    for kind, most in (("JPEG", 999_999), ("PNG", 3_999_999), ("WEBP", 3_999_999)):
        with pytest.raises(ImageInvalid, match="2000×2000 pixels, more than"):
            decode_image_to_square_pixels(encode_image(large, kind), 32, 1, most, resizing)


def test_a_progressive_jpeg_is_bounded_by_what_its_decoder_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Blocks of 64 coefficients of two bytes: of a picture of 320 × 320 pixels at half the colours
    300 kB.
    """
    image = Image.fromarray(draw_noise(320, 320))
    data = encode_image(image, "JPEG", progressive=True, subsampling=2)
    frame = jpeg.frame_of(data)
    assert frame is not None and frame.coefficient_bytes == 320 * 320 * 2 * 3 // 2
    monkeypatch.setattr(jpeg, "MAX_COEFFICIENT_BYTES", 320 * 320 * 2 * 3 // 2)
    assert decode_image_to_square_pixels(
        data, 32, 3, MAX, SquareResizingSettings(decoding=LATEST)
    ).shape == (
        32,
        32,
        3,
    )
    larger = encode_image(image, "JPEG", progressive=True, subsampling=0)
    with pytest.raises(
        ImageInvalid, match="a progressive JPEG of 320×320 pixels takes too much memory"
    ):
        decode_image_to_square_pixels(larger, 32, 3, MAX, SquareResizingSettings(decoding=LATEST))
    assert decode_image_to_square_pixels(
        encode_image(image, "JPEG", subsampling=0),
        32,
        3,
        MAX,
        SquareResizingSettings(decoding=LATEST),
    ).any()


def test_of_many_profiles_in_a_png_few_are_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"name\0\0" + zlib.compress(bytes(1 << 20))
    chunk = (
        struct.pack(">I", len(body))
        + b"iCCP"
        + body
        + struct.pack(">I", zlib.crc32(b"iCCP" + body))
    )
    whole = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(whole, "PNG")
    data = whole.getvalue()
    unpacked: list[bytes] = []
    monkeypatch.setattr(png, "_size", lambda kind, text: unpacked.append(text) or len(text))
    assert (
        png.without_texts(data[:33] + 1000 * chunk + data[33:])
        == data[:33] + png.MAX_TURNS * chunk + data[33:]
    )
    assert len(unpacked) == png.MAX_TURNS
