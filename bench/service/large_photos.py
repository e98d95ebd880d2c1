"""Memory and time that the decoder takes for the largest photos that are accepted, and what it says
of larger ones.

    PYTHONPATH=.:FOLDER python -m bench.service.large_photos [--photos DIR] [--only heic]

Each photo goes alone through `decode_archive_to_datasets` with one real decoder process,
whose peak of memory and CPU time the system counts. Photos are made where DIR lacks them, of a
texture that packs badly; the HEIC needs pillow-heif, which has an encoder, in FOLDER:
`pip install --no-deps --target FOLDER pillow-heif`. The line `nothing` is the decoder with one
pixel. Goal: at most 1,000 MB and 5 s, after which a prediction gives an image up; the last two
photos are refused.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from core.errors import Rejected
from core.ingest.decoding.resizing import LATEST, SquareResizingSettings
from core.ingest.ingest import IngestOptions, decode_archive_to_datasets
from core.ingest.limits import ArchiveLimits

Image.MAX_IMAGE_PIXELS = None
SIZE = 224
MEGA = 1_000_000


def draw_photo_texture(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """Draw a picture with the fine texture of a photo."""
    rng, side = np.random.default_rng(0), 1024
    y, x = np.mgrid[0:side, 0:side]
    waves = np.stack(
        [np.sin(x / 37 + k) * np.cos(y / (29 + k)) * 90 + 128 for k in range(len(mode))], -1
    )
    patch = np.clip(waves + rng.normal(0, 6, waves.shape), 0, 255).astype(np.uint8)
    tile, canvas = Image.fromarray(patch), Image.new(mode, (width, height))
    for top in range(0, height, side):
        for left in range(0, width, side):
            canvas.paste(tile, (left, top))
    return canvas


def write_heic_photo(path: Path) -> None:
    """Write a HEIC photo of 48 megapixels."""
    import pillow_heif

    heif_file = pillow_heif.from_pillow(draw_photo_texture(8064, 6048))
    heif_file.save(path, quality=60, enc_params={"preset": "ultrafast"})


def write_16_bit_tiff(path: Path) -> None:
    """Write an uncompressed TIFF with 16-bit samples."""
    wide = np.asarray(draw_photo_texture(8160, 6120)).astype("<u2") * 257
    from tools.picture_kinds import build_raw_tiff

    tags = {256: (4, [8160]), 257: (4, [6120]), 258: (3, [16] * 3), 259: (3, [1]), 262: (3, [2]), 277: (3, [3]),
            278: (4, [6120])}  # fmt: skip
    path.write_bytes(build_raw_tiff(tags, wide.tobytes()))


def make_photo_writer(
    width: int, height: int, mode: str = "RGB", **options: object
) -> Callable[[Path], None]:
    """Return a function that saves a picture by Pillow."""
    return lambda path: draw_photo_texture(width, height, mode).save(path, **options)  # type: ignore[arg-type]


PHOTOS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "nothing": ("nothing.png", make_photo_writer(1, 1)),
    "HEIC of 48 megapixels": ("48.heic", write_heic_photo),
    "AVIF of 48 megapixels": ("48.avif", make_photo_writer(8064, 6048, quality=50, speed=10)),
    "JPEG of 200 megapixels": ("200.jpg", make_photo_writer(16320, 12240, quality=85)),
    "JPEG of 200 megapixels, progressive": (
        "200p.jpg",
        make_photo_writer(16320, 12240, quality=85, progressive=True),
    ),
    "PNG of 50 megapixels": ("50.png", make_photo_writer(8160, 6120, compress_level=1)),
    "PNG of 50 megapixels with alpha": (
        "50a.png",
        make_photo_writer(8160, 6120, "RGBA", compress_level=1),
    ),
    "WebP of 50 megapixels": ("50.webp", make_photo_writer(8160, 6120, quality=60, method=0)),
    "TIFF of 50 megapixels, 16 bits, not packed": ("50.tif", write_16_bit_tiff),
    "TIFF of 50 megapixels, LZW": (
        "50l.tif",
        make_photo_writer(8160, 6120, compression="tiff_lzw"),
    ),
    "JPEG of 200 megapixels, progressive, 4:4:4": (
        "200p444.jpg",
        make_photo_writer(16320, 12240, quality=85, progressive=True, subsampling=0),
    ),
    "PNG of 64 megapixels": ("64.png", make_photo_writer(9248, 6936, compress_level=1)),
}


def main() -> None:
    """Measure time and memory of decoding very large photos."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--photos", type=Path, default=Path(tempfile.gettempdir()) / "large-photos")
    parser.add_argument("--only", default="", help="part of a photo's name")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure_photo_decoding(options.one)))
        return
    options.photos.mkdir(parents=True, exist_ok=True)
    print(f"{'photo':44} {'MB of file':>10} {'peak MB':>8} {'seconds':>8} {'CPU s':>6}")
    for name, (file, make) in PHOTOS.items():
        if options.only.lower() not in name.lower():
            continue
        path = options.photos / file
        if not path.exists():
            make(path)
        command = [sys.executable, "-m", "bench.service.large_photos", "--one", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        measurement = json.loads(done.stdout.splitlines()[-1])
        size = path.stat().st_size / MEGA
        numbers = (
            f"{size:>10.1f} {measurement['peak'] / MEGA:>8.0f} {measurement['seconds']:>8.2f} "
            f"{measurement['cpu']:>6.2f}"
        )
        print(f"{name:44} {numbers}  {measurement['said']}", flush=True)


def measure_photo_decoding(photo: Path) -> dict[str, float | str]:
    """Measure peak memory and time of decoding one photo during ingest."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "batch.zip"
        with zipfile.ZipFile(archive, "w") as file:
            file.write(photo, f"cat/{photo.stem}.png")
        begin, rejection_reason = time.perf_counter(), ""
        try:
            options = IngestOptions(
                SIZE,
                3,
                ArchiveLimits(),
                resizing=SquareResizingSettings(decoding=LATEST),
                held_out_share=0.0,
                processes=1,
            )
            decode_archive_to_datasets(archive, "zip", Path(folder) / "made", options)
        except Rejected as error:
            rejection_reason = error.extra["report"]["rejected"][0]["reason"]
        seconds = time.perf_counter() - begin
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "peak": 1024 * usage.ru_maxrss,
        "cpu": usage.ru_utime + usage.ru_stime,
        "seconds": seconds,
        "said": rejection_reason,
    }


if __name__ == "__main__":
    main()
