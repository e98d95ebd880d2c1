"""Draw the sample pictures and write them where the package keeps them.

    python -m tools.sample_pictures [--out DIR]

It takes about three minutes on one core. The pictures are JPEG files of 128 pixels a side in one
zip archive for each batch, with a fixed split into pictures to learn from and to measure on.
"""

import argparse
import io
import zipfile
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from core.packaged.sample_pictures import BATCHES, FOLDER, OF_CLASS
from tools.sample_pictures.scene import render_solid_from_random_view
from tools.sample_pictures.things import THINGS

COUNTS = {"train": 2 * OF_CLASS // 3, "test": OF_CLASS // 3}
"""Pictures of each class to learn from, and to measure on."""
QUALITY = 85
TILE, COLUMNS = 112, 4
"""Pixels a side of each picture on the sheet that the first page shows, and pictures in a row."""
SHOWN = {
    **{"apple": 3, "book": 8, "mug": 1, "bottle": 5, "doughnut": 2, "pear": 3},
    **{"bowl": 8, "carrot": 7, "die": 5, "egg": 6, "mushroom": 0, "orange": 4},
}
"""Class → number of its picture on the sheet."""
SHEET = Path("api") / "static" / "sample.jpg"


def draw_class_picture(kind: str, number: int) -> Image.Image:
    """Draw a random sample picture of a class; the same number gives the same picture."""
    rng = np.random.default_rng([zlib.crc32(kind.encode()), number])
    return Image.fromarray(render_solid_from_random_view(THINGS[kind](rng), rng))


def build_batch_archive(kinds: tuple[str, ...]) -> bytes:
    """Build a batch of sample pictures as a zip: `train/<class>/…` and `test/<class>/…`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for kind in kinds:
            parts = [part for part, count in COUNTS.items() for _ in range(count)]
            for number, part in enumerate(parts):
                jpeg = io.BytesIO()
                draw_class_picture(kind, number).save(jpeg, "JPEG", quality=QUALITY, optimize=True)
                name = f"{part}/{kind}/{kind}-{number + 1:02d}.jpg"
                archive.writestr(zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0)), jpeg.getvalue())
    return buffer.getvalue()


def draw_overview_sheet() -> Image.Image:
    """Draw an overview of the sample pictures: one of each class, in rows."""
    sheet = Image.new("RGB", (TILE * COLUMNS, TILE * (len(SHOWN) // COLUMNS)))
    for tile_index, (kind, number) in enumerate(SHOWN.items()):
        tile = draw_class_picture(kind, number).resize((TILE, TILE), Image.Resampling.LANCZOS)
        sheet.paste(tile, (tile_index % COLUMNS * TILE, tile_index // COLUMNS * TILE))
    return sheet


def main() -> None:
    """Write the sample-picture archives, and the overview for the first page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for the archives")
    out: Path = parser.parse_args().out
    for name, kinds in BATCHES.items():
        content = build_batch_archive(kinds)
        (out / f"{name}.zip").write_bytes(content)
        print(f"{name}: {', '.join(kinds)}, {len(content):,} bytes", flush=True)
    if out == FOLDER:
        draw_overview_sheet().save(SHEET, "JPEG", quality=80, optimize=True)


if __name__ == "__main__":
    main()
