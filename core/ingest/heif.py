"""HEIC and AVIF: pictures in boxes, which telephones and browsers write (ISO/IEC 23008-12, AV1 image format).

Pillow reads AVIF where it was built with libavif, as its wheels are. HEIC needs the optional package pillow-heif.
Both decode with one thread: each thread takes address space and CPU time of the decoder's allowance.
"""

from functools import cache

from PIL import AvifImagePlugin

from core.errors import ImageInvalid

AVIF, HEIC = "AVIF", "HEIC"
_HEIC_BRANDS = frozenset(
    (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1")
)
_MAX_TYPE_BYTES = 256
HEIC_REASON = (
    "a HEIC image: save it as JPEG or PNG, or install pillow-heif with the service "
    "(pip install 'perennial-service[heif]')"
)
AVIF_REASON = "an AVIF image, which this worker's Pillow cannot read: save it as JPEG or PNG"

AvifImagePlugin.DEFAULT_MAX_THREADS = 1


def kind_of(data: bytes) -> str | None:
    """AVIF or HEIC when the first box names one of their brands, else None."""
    if data[4:8] != b"ftyp":
        return None
    end = min(int.from_bytes(data[:4]), _MAX_TYPE_BYTES)
    brands = {data[8:12], *(data[at : at + 4] for at in range(16, end - 3, 4))}
    if brands & {b"avif", b"avis"}:
        return AVIF
    return HEIC if brands & _HEIC_BRANDS else None


def format_of(kind: str) -> str:
    """The name under which Pillow opens files of this kind. Raises ImageInvalid when nothing here reads them."""
    if kind == AVIF:
        if not AvifImagePlugin.SUPPORTED:
            raise ImageInvalid(AVIF_REASON)
        return "AVIF"
    if not reads_heic():
        raise ImageInvalid(HEIC_REASON)
    return "HEIF"


@cache
def reads_heic() -> bool:
    """Whether pillow-heif is there; the first call loads it."""
    try:
        import pillow_heif
    except ImportError:
        return False
    pillow_heif.register_heif_opener(thumbnails=False, depth_images=False, aux_images=False, decode_threads=1)
    return True
