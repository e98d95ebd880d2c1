"""The first page of a TIFF (TIFF 6.0, its technical notes, and BigTIFF), in 8 bits.

Pillow knows a list of sample formats and reads some others wrongly, so pixels are put together here: whatever packs
bytes (LZW, deflate, packbits, LZMA, Zstandard) is unpacked by Pillow's libtiff under the guise of a grey image of one
byte a pixel, and samples are made of these bytes. What packs pixels (JPEG, CCITT) is Pillow's altogether.
"""

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from PIL import Image, UnidentifiedImageError

from .kinds import RAW
from .tiff_directory import Directory, Tag
from .unreadable import CUT, FORMATS, Unreadable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]
    Samples = npt.NDArray[Any]

_BAND_BYTES = 4 << 20
"""Unpacked bytes that are worked on at once, where strips and tiles are smaller."""
_BYTES_PER_PIXEL = 8
"""Bytes per pixel in the bound of unpacked bytes: 16 bits × 4 channels."""




_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB, _PALETTE, _CMYK, _YCBCR = 0, 1, 2, 3, 5, 6
_CHANNELS = {_WHITE_IS_ZERO: 1, _BLACK_IS_ZERO: 1, _RGB: 3, _PALETTE: 1, _CMYK: 4, _YCBCR: 3}
_COLOUR_NAMES = {4: "a mask", 8: "CIELab", 9: "ICCLab", 10: "ITULab", 32844: "LogL", 32845: "LogLuv"}
_PACK_NAMES = {
    32766: "NeXT",
    32809: "ThunderScan",
    33003: "JPEG 2000",
    33005: "JPEG 2000",
    34676: "LogLuv",
    34677: "LogLuv",
    34712: "JPEG 2000",
    34887: "LERC",
    34892: "lossy DNG",
    50002: "JPEG XL",
}
_STORED, _LZW, _PACKBITS = 1, 5, 32773
_OF_BYTES = frozenset((_STORED, _LZW, _PACKBITS, 8, 32946, 34925, 50000))
_BY_PILLOW = frozenset((2, 3, 4, 6, 7, 50001))
_UINT, _INT, _FLOAT = 1, 2, 3
_LONG = 4
"""Type of a tag of 32 bits."""


@dataclass(frozen=True)
class Page:
    """image: of mode L, LA, RGB, RGBA, CMYK or `1`; orientation: as its tag says, 1 where it is upright already."""

    image: Image.Image
    has_more: bool
    profile: bytes | None
    orientation: int
    size: tuple[int, int]


def open_tiff(data: bytes, max_pixels: int) -> Page:
    """Read the first page.

    Raises Unreadable: the kind is not read here, with its name; there are too many pixels; or it is damaged.
    """
    directory = _checked(data, max_pixels)
    if directory.first_number(Tag.PACKING, _STORED) in _BY_PILLOW:
        return _by_pillow(data, directory, max_pixels)
    size = directory.first_number(Tag.WIDTH, 0), directory.first_number(Tag.HEIGHT, 0)
    image = _Pixels(data, directory, max_pixels).image()
    return Page(
        image, directory.has_more, directory.bytes(Tag.PROFILE), directory.first_number(Tag.ORIENTATION, 1), size
    )


def check(data: bytes, max_pixels: int, *, is_whole: bool = True) -> None:
    """Raise Unreadable where `open_tiff` would by the tags of the first page alone; nothing is decoded.

    is_whole: False where `data` is the beginning of a file: what lies behind it says nothing.
    """
    try:
        directory = _checked(data, max_pixels)
    except Unreadable as error:
        if is_whole or str(error) != CUT:
            raise
        return
    if not is_whole:
        return
    if directory.first_number(Tag.PACKING, _STORED) not in _BY_PILLOW:
        _Pixels(data, directory, max_pixels)


def _checked(data: bytes, max_pixels: int) -> "Directory":
    """The tags of a page whose kind may be read."""
    directory = Directory(data)
    if directory.is_raw:
        raise Unreadable(f"{RAW.partition('; ')[0]}, not a {FORMATS} image; export it as JPEG")
    width, height = directory.first_number(Tag.WIDTH, 0), directory.first_number(Tag.HEIGHT, 0)
    if not width or not height:
        raise Unreadable(CUT)
    if width * height > max_pixels:
        raise Unreadable(f"{width}×{height} pixels, more than {max_pixels}")
    packing = directory.first_number(Tag.PACKING, _STORED)
    if packing not in _BY_PILLOW and packing not in _OF_BYTES:
        raise _kind(f"packed as {_PACK_NAMES.get(packing, f'number {packing}')}")
    return directory


def _kind(what: str) -> Unreadable:
    return Unreadable(f"a TIFF {what}, which is not read here; save it with 8 or 16 bits as PNG")


def _by_pillow(data: bytes, directory: "Directory", max_pixels: int) -> Page:
    bits = directory.first_number(Tag.BITS, 1)
    try:
        image: Image.Image = Image.open(io.BytesIO(data), formats=("TIFF",))
    except UnidentifiedImageError as error:
        raise _kind(f"in JPEG of {bits} bits") from error
    size = image.size
    if size[0] * size[1] > max_pixels:
        raise Unreadable(f"{size[0]}×{size[1]} pixels, more than {max_pixels}")
    if image.mode not in ("1", "L", "P", "LA", "RGB", "RGBA", "RGBX", "CMYK"):
        raise _kind(f"of the mode {image.mode}")
    image.load()  # turned upright by its plugin
    profile = image.info.get("icc_profile")
    if image.mode in ("P", "RGBX"):
        image = image.convert("RGB")
    return Page(image, directory.has_more, profile if isinstance(profile, bytes) else None, 1, size)




class _Pixels:
    """Puts the pixels of a page together, band by band."""

    def __init__(self, data: bytes, directory: Directory, max_pixels: int) -> None:
        self._data, self._order = data, directory.order
        self._width, self._height = directory.first_number(Tag.WIDTH, 0), directory.first_number(Tag.HEIGHT, 0)
        self._photometric = directory.first_number(Tag.PHOTOMETRIC, _BLACK_IS_ZERO)
        self._packing = directory.first_number(Tag.PACKING, _STORED)
        self._predictor = directory.first_number(Tag.PREDICTOR, 1)
        self._fill_order = directory.first_number(Tag.FILL_ORDER, 1)
        self._samples = directory.first_number(Tag.SAMPLES, 1)
        self._format = directory.first_number(Tag.FORMAT, _UINT)
        bits = directory.numbers(Tag.BITS) or [1]
        self._extra = directory.numbers(Tag.EXTRA)
        self._has_extra_tag = bool(self._extra)
        self._refuse_kinds(directory, bits)
        self._bits = bits[0]
        self._planes = self._samples if directory.first_number(Tag.PLANAR, 1) == 2 and self._samples > 1 else 1
        self._palette = directory.numbers(Tag.COLOURS)
        if self._photometric == _PALETTE and len(self._palette) < 3 << self._bits:
            raise Unreadable("a TIFF whose palette is missing; save it as PNG")
        self._lay_out(directory, max_pixels)

    def _refuse_kinds(self, directory: Directory, bits: list[int]) -> None:
        channels = _CHANNELS.get(self._photometric)
        if channels is None:
            raise _kind(
                f"in {_COLOUR_NAMES.get(self._photometric, f'colours of number {self._photometric}')}"
            )
        if self._samples < channels:
            raise Unreadable(CUT)
        if len(set(bits)) > 1:
            raise _kind(f"of {', '.join(map(str, bits[:4]))} bits")
        if self._format == _INT:
            raise _kind(f"of signed {bits[0]}-bit integers")
        if self._format == _FLOAT:
            if bits[0] not in (16, 32, 64):
                raise _kind(f"of {bits[0]}-bit floats")
        elif self._format not in (_UINT, 4):
            raise _kind("of complex numbers")
        elif bits[0] not in (1, 2, 4, 8, 16):
            raise _kind(f"of {bits[0]}-bit integers")
        if self._photometric == _PALETTE and (self._format == _FLOAT or bits[0] > 8):
            raise _kind(f"with a palette of {bits[0]} bits")
        if self._photometric == _YCBCR and directory.numbers(Tag.YCBCR_SUBSAMPLING) != [1, 1]:
            raise _kind("in YCbCr with colours at a lower resolution")
        if self._photometric in (_YCBCR, _CMYK) and (self._format == _FLOAT or bits[0] < 8):
            raise _kind(f"in {'CMYK' if self._photometric == _CMYK else 'YCbCr'} of {bits[0]} bits")
        if self._photometric == _CMYK and directory.first_number(Tag.INKS, 1) != 1:
            raise _kind("in other inks than CMYK")
        if self._predictor not in (1, 2) and not (self._predictor == 3 and self._format == _FLOAT):
            raise _kind(f"with the predictor {self._predictor}")

    def _lay_out(self, directory: Directory, max_pixels: int) -> None:
        """Find strips or tiles; all are chunks of `_wide` × `_high` pixels here."""
        is_tiled = bool(directory.numbers(Tag.TILE_OFFSETS)) or bool(directory.numbers(Tag.TILE_WIDTH))
        if is_tiled:
            self._wide = directory.first_number(Tag.TILE_WIDTH, 0)
            self._high = directory.first_number(Tag.TILE_HEIGHT, 0)
            self._offsets = directory.numbers(Tag.TILE_OFFSETS) or directory.numbers(Tag.OFFSETS)
            self._counts = directory.numbers(Tag.TILE_COUNTS) or directory.numbers(Tag.COUNTS)
        else:
            self._wide = self._width
            self._high = min(directory.first_number(Tag.ROWS, self._height) or self._height, self._height)
            self._offsets, self._counts = directory.numbers(Tag.OFFSETS), directory.numbers(Tag.COUNTS)
        if not self._wide or not self._high:
            raise Unreadable(CUT)
        self._is_tiled = is_tiled
        self._per_chunk = 1 if self._planes > 1 else self._samples
        self._row_bytes = -(-self._wide * self._per_chunk * self._bits // 8)
        self._across, self._down = -(-self._width // self._wide), -(-self._height // self._high)
        total = self._planes * self._across * self._down
        unpacked = total * self._row_bytes * self._high
        if unpacked > max(_BYTES_PER_PIXEL * max_pixels, _BAND_BYTES):
            raise Unreadable(f"{unpacked} bytes of pixels, more than {_BYTES_PER_PIXEL * max_pixels}")
        if not self._counts and self._packing == _STORED:
            self._counts = [self._rows(i) * self._row_bytes for i in range(len(self._offsets))]
        if len(self._offsets) < total or len(self._counts) < total:
            raise Unreadable(CUT)
        if self._packing == _STORED and not is_tiled and self._down == 1:
            self._cut_strips()

    def _cut_strips(self) -> None:
        """Read a strip that is the whole image in pieces: what is not packed can be."""
        self._high = min(self._height, max(1, _BAND_BYTES // self._row_bytes))
        self._down = -(-self._height // self._high)
        step = self._high * self._row_bytes
        self._offsets = [at + i * step for at in self._offsets[: self._planes] for i in range(self._down)]
        self._counts = [step] * len(self._offsets)

    def image(self) -> Image.Image:
        """The page in 8 bits."""
        import numpy as np

        channels = _CHANNELS[self._photometric]
        alpha = self._alpha(channels)
        taken = channels + (alpha is not None)
        out_channels = taken + 2 if self._photometric == _PALETTE else taken
        out = np.empty((self._height, self._width, out_channels), np.uint8)
        low, high = np.inf, -np.inf
        for first, rows, samples in self._bands():
            if self._format == _FLOAT:
                values = samples[..., :taken]
                low, high = min(low, float(values.min())), max(high, float(values.max()))
                if not (low >= 0 and high <= 1):  # also where one is no number
                    raise _kind(
                        f"of floats from {low:g} to {high:g}, and only those from 0 to 1 have a meaning"
                    )
            out[first : first + rows] = self._convert_to_8_bits(samples[..., :taken])
        return self._as_image(out, alpha)

    def _alpha(self, channels: int) -> int | None:
        """1 where colours were multiplied by alpha already, 2 where not, None without alpha."""
        if self._samples <= channels or self._photometric in (_CMYK, _YCBCR, _PALETTE):
            return None
        if not self._has_extra_tag:
            return 2
        return self._extra[0] if self._extra[0] in (1, 2) else None

    def _convert_to_8_bits(self, samples: "Samples") -> "Bytes":
        import numpy as np

        if self._photometric == _PALETTE:
            table = np.array(self._palette[: 3 << self._bits], np.uint32).reshape(3, -1).T
            shift = 0 if table.max() < 256 else 8  # some writers have 8 bits in it
            colours: Bytes = (table >> np.uint32(shift)).astype(np.uint8)[samples[..., 0]]
            return np.concatenate([colours, samples[..., 1:]], axis=-1)
        if self._format == _FLOAT:
            scaled: Bytes = np.rint(samples.astype(np.float64) * 255).astype(np.uint8)
        elif self._bits == 16:
            scaled = ((samples.astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8)
        else:
            scaled = samples.astype(np.uint8) * np.uint8(255 // ((1 << self._bits) - 1))
        if self._photometric == _WHITE_IS_ZERO:
            scaled[..., 0] = 255 - scaled[..., 0]
        return scaled

    def _as_image(self, pixels: "Bytes", alpha: int | None) -> Image.Image:
        size = (self._width, self._height)
        modes = {_CMYK: "CMYK", _YCBCR: "YCbCr"}
        mode = modes.get(self._photometric) or {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[pixels.shape[2]]
        if alpha == 1:
            if mode == "LA":
                pixels, mode = pixels[..., [0, 0, 0, 1]], "RGBA"
            return Image.frombytes("RGBa", size, pixels.tobytes()).convert("RGBA")
        made = Image.frombuffer(mode, size, pixels, "raw", mode, 0, 1)
        return made.convert("RGB") if mode == "YCbCr" else made

    def _bands(self) -> Iterator[tuple[int, int, "Samples"]]:
        """First row, rows, and samples [rows, width, samples] of one band after the other."""
        import numpy as np

        step = max(1, _BAND_BYTES // max(1, self._across * self._high * self._row_bytes * self._planes))
        for begin in range(0, self._down, step):
            end = min(begin + step, self._down)
            first = begin * self._high
            last = min(end * self._high, self._height)
            for planes in self._slices([self._chunks(plane, begin, end) for plane in range(self._planes)]):
                whole = planes[0] if len(planes) == 1 else np.concatenate(planes, axis=-1)
                rows = min(len(whole), last - first)
                yield first, rows, whole[:rows, : self._width]
                first += rows

    def _slices(self, planes: "list[Bytes]") -> "Iterator[list[Samples]]":
        """Samples [rows, width or more, samples] of chunks [chunks × rows, bytes] that lie below each other."""
        import numpy as np

        if not self._is_tiled:  # a strip may be the whole image
            step = max(1, _BAND_BYTES // max(1, self._row_bytes * self._planes))
            for at in range(0, len(planes[0]), step):
                yield [self._samples_of(raw[at : at + step]) for raw in planes]
            return
        found = []
        for raw in planes:
            shape = (-1, self._across, self._high, self._wide, self._per_chunk)
            tiles: Samples = self._samples_of(raw).reshape(shape).transpose(0, 2, 1, 3, 4)
            found.append(np.ascontiguousarray(tiles).reshape(-1, self._across * self._wide, self._per_chunk))
        yield found

    def _chunks(self, plane: int, begin: int, end: int) -> "Bytes":
        """Unpacked bytes [rows, bytes] of the rows of chunks [begin, end), one chunk below the other."""
        first = (plane * self._down + begin) * self._across
        numbers = range(first, first + (end - begin) * self._across)
        rows = sum(self._rows(i) for i in numbers)
        return self._unpacked(numbers, rows).reshape(rows, self._row_bytes)

    def _rows(self, number: int) -> int:
        """Rows of a chunk: the last strip of a plane may have fewer."""
        if self._is_tiled:
            return self._high
        return min(self._high, self._height - number % self._down * self._high)

    def _unpacked(self, numbers: range, rows: int) -> "Bytes":
        import numpy as np

        parts = []
        for i in numbers:
            at, count = self._offsets[i], self._counts[i]
            if self._packing == _STORED:
                count = self._rows(i) * self._row_bytes
            part = self._data[at : at + count]
            if len(part) != count:
                raise Unreadable(CUT)
            parts.append(part)
        if self._packing == _STORED:
            raw = np.frombuffer(b"".join(parts), np.uint8)
            if self._fill_order == 2:
                table = np.array([int(f"{i:08b}"[::-1], 2) for i in range(256)], np.uint8)
                raw = table[raw]
            return raw
        guise = Image.open(io.BytesIO(self._guise(parts, rows)), formats=("TIFF",))
        guise.load()
        return np.frombuffer(guise.tobytes(), np.uint8)

    def _guise(self, parts: list[bytes], rows: int) -> bytes:
        """A TIFF of grey bytes whose strips are these chunks, one below the other."""
        offsets = [8, *accumulate(map(len, parts), initial=8)][1:]
        end = offsets.pop()
        count = len(parts)
        lists = end + end % 2
        directory = lists + (8 * count if count > 1 else 0)
        fields = [
            (Tag.WIDTH, 1, self._row_bytes),
            (Tag.HEIGHT, 1, rows),
            (Tag.BITS, 1, 8),
            (Tag.PACKING, 1, self._packing),
            (Tag.PHOTOMETRIC, 1, _BLACK_IS_ZERO),
            (Tag.FILL_ORDER, 1, self._fill_order),
            (Tag.OFFSETS, count, lists if count > 1 else offsets[0]),
            (Tag.SAMPLES, 1, 1),
            (Tag.ROWS, 1, self._high),
            (Tag.COUNTS, count, lists + 4 * count if count > 1 else len(parts[0])),
        ]
        out = [b"II*\0", struct.pack("<I", directory), *parts, bytes(end % 2)]
        if count > 1:
            out.append(struct.pack(f"<{2 * count}I", *offsets, *map(len, parts)))
        out.append(struct.pack("<H", len(fields)))
        out += [struct.pack("<HHII", tag, _LONG, number, value) for tag, number, value in fields]
        return b"".join((*out, bytes(4)))

    def _samples_of(self, raw: "Bytes") -> "Samples":
        """Samples [rows, pixels of a chunk, samples] of unpacked bytes [rows, bytes]."""
        import numpy as np

        rows, per_chunk = len(raw), self._per_chunk
        shape = (rows, self._wide, per_chunk)
        if self._bits < 8:
            bits = np.unpackbits(raw, axis=1)[:, : self._wide * per_chunk * self._bits]
            grouped = bits.reshape(rows, -1, self._bits)
            weights = (1 << np.arange(self._bits)[::-1]).astype(np.uint8)
            whole: Samples = (grouped * weights).sum(-1, dtype=np.uint8)
            return whole.reshape(shape)
        size = self._bits // 8
        if self._predictor == 3:
            summed = raw.reshape(rows, -1, per_chunk).cumsum(axis=1, dtype=np.uint8).reshape(rows, size, -1)
            floats: Samples = np.ascontiguousarray(summed.transpose(0, 2, 1)).view(f">f{size}")
            return floats.reshape(shape)
        kind = "f" if self._format == _FLOAT and self._predictor == 1 else "u"
        samples: Samples = raw.view(f"{self._order}{kind}{size}").reshape(shape)
        if self._predictor == 2:
            samples = samples.astype(f"=u{size}").cumsum(axis=1, dtype=f"u{size}")
            if self._format == _FLOAT:
                samples = samples.view(f"f{size}")
        return samples
