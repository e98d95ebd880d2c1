"""Tell a file's kind by its first bytes: an image that is read here, or something else by its name.

Nothing is decoded, so this is safe wherever the bytes are.
"""

from .unreadable import FORMATS, Unreadable

HEAD_BYTES = 4096
"""First bytes that suffice to tell what a file is."""
PNG, JPEG, WEBP, BMP, TIFF, GIF, AVIF, HEIC = "PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF", "AVIF", "HEIC"
_MAX_TYPE_BYTES = 256
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", PNG),
    (b"\xff\xd8\xff", JPEG),
    (b"BM", BMP),
    (b"II*\0", TIFF),
    (b"MM\0*", TIFF),
    (b"II\0*", TIFF),  # written by programs that confuse the order
    (b"MM*\0", TIFF),
    (b"II+\0", TIFF),
    (b"MM\0+", TIFF),
    (b"GIF87a", GIF),
    (b"GIF89a", GIF),
)
_HEIC_BRANDS = frozenset(
    (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1")
)
_AVIF_BRANDS = frozenset((b"avif", b"avis"))
RAW = "a camera RAW file; export it as JPEG"
_FILM = "a film; save single frames as JPEG"
_JPEG_2000 = "a JPEG 2000 image; save it as PNG or JPEG"
_OTHERS = (
    (b"%PDF", "a PDF; export its pages as PNG"),
    (b"%!PS", "a PostScript file; export it as PNG"),
    (b"8BPS", "a Photoshop file; export it as PNG"),
    (b"gimp xcf", "a GIMP file; export it as PNG"),
    (b"\0\0\0\x0cjP  ", _JPEG_2000),
    (b"\xff\x4f\xff\x51", _JPEG_2000),
    (b"\0\0\0\x0cJXL ", "a JPEG XL image; save it as PNG or JPEG"),
    (b"\xff\x0a", "a JPEG XL image; save it as PNG or JPEG"),
    (b"II\xbc\x01", "a JPEG XR image; save it as PNG or JPEG"),
    (b"IIRO", RAW),
    (b"IIRS", RAW),
    (b"MMOR", RAW),
    (b"IIU\0", RAW),
    (b"FUJIFILMCCD-RAW", RAW),
    (b"II\x1a\0\0\0HEAPCCDR", RAW),
    (b"FOVb", RAW),
    (b"\x1aE\xdf\xa3", _FILM),
    (b"\0\0\1\xba", _FILM),
    (b"\0\0\1\0", "an icon; save it as PNG"),
    (b"v/1\x01", "an OpenEXR image; save it as PNG"),
    (b"#?RADIANCE", "a Radiance image; save it as PNG"),
    (b"DDS ", "a DirectDraw texture; save it as PNG"),
    (b"SIMPLE  =", "a FITS image; save it as PNG"),
    (b"\x89HDF", "an HDF5 file; save its images as PNG"),
    (b"\x93NUMPY", "a NumPy array; send arrays as npz"),
    (b"BPG\xfb", "a BPG image; save it as PNG or JPEG"),
    (b"AT&TFORM", "a DjVu file; export its pages as PNG"),
    (b"PK\x03\x04", "a zip archive; unpack it"),
    (b"\x1f\x8b", "a gzip archive; unpack it"),
    (b"version https://git-lfs", "a pointer of Git LFS; fetch the images with `git lfs pull`"),
    (b"\0\x05\x16\x07", "what macOS keeps beside a file (AppleDouble)"),
)
_RIFF = {b"AVI ": _FILM, b"WAVE": "a sound"}


def kind_of(data: bytes) -> str:
    """Return the kind of a file, one of the constants above, by its first HEAD_BYTES.

    Raises Unreadable: it is no image that is read here; with its name where that is known.
    """
    if not data:
        raise Unreadable("the file is empty")
    for begin, kind in _IMAGES:
        if data.startswith(begin):
            return kind
    if data.startswith(b"RIFF"):
        if data[8:12] == b"WEBP":
            return WEBP
        raise _other(_RIFF.get(data[8:12]))
    if data[4:8] == b"ftyp":
        return _boxed(data)
    for begin, what in _OTHERS:
        if data.startswith(begin):
            raise _other(what)
    raise _other(_text(data))


def _boxed(data: bytes) -> str:
    """By the brands that the first box of an ISO base media file names."""
    end = min(int.from_bytes(data[:4]), _MAX_TYPE_BYTES)
    brands = {data[8:12], *(data[at : at + 4] for at in range(16, end - 3, 4))}
    if brands & _AVIF_BRANDS:
        return AVIF
    if brands & _HEIC_BRANDS:
        return HEIC
    raise _other(RAW if b"crx " in brands else _FILM)


def _text(data: bytes) -> str | None:
    if data[128:132] == b"DICM":
        return "a DICOM image; export it as PNG"
    head = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<svg", b"<?xml", b"<!doctype svg")) and b"<svg" in head:
        return "an SVG drawing; export it as PNG"
    if head.startswith((b"<!doctype html", b"<html")):
        return "a web page"
    return None


def _other(what: str | None) -> Unreadable:
    if what is None:
        return Unreadable(f"not a {FORMATS} image")
    name, _, remedy = what.partition("; ")
    return Unreadable(f"{name}, not a {FORMATS} image" + (f"; {remedy}" if remedy else ""))
