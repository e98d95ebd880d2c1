"""Compares an update by the closed form on the photo base with one bare pass over its photos.

    python -m bench.service.update_pass --photos FOLDER [--images 1500] [--between 80]

FOLDER has photos as `<class>/<image>`. A model on the photo base learns ten batches in the scenario
`data`: the first and the tenth of `--images` photos, those between of `--between`. The bare pass
decodes the same photos with Pillow, to 224 px as the base asks for, and passes them through timm's
network of the base: one thread, channels last, batches of 32, nothing else. It runs before and
after the update, and the mean of both is the reference. All figures are CPU seconds. Those of an
update are of the whole worker: reading the archive, decoding, splitting, report, pass, solving,
measuring the version, and publishing it. Goal: an update takes at most 1.2 times the bare pass.
"""

import argparse
import io
import random
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from bench.service.age import UpdateCostBench
from core.learning.timm_import import import_timm_models
from core.packaged import imagenet_base

SIDE, BATCH, UPDATES, GOAL = 224, 32, 10, 1.2
Photo = tuple[str, Path]


def main() -> None:
    """Measure updates with a pretrained base, relative to a plain pass over the images."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--between", type=int, default=80)
    options = parser.parse_args()
    torch.set_num_threads(1)
    photos = [
        (path.parent.name, path) for path in sorted(options.photos.glob("*/*")) if path.is_file()
    ]
    random.Random(0).shuffle(photos)
    needed = 2 * options.images + (UPDATES - 2) * options.between
    if len(photos) < needed:
        parser.error(f"{options.photos} has {len(photos):,} photos, and {needed:,} are needed.")
    print(
        "| update | photos | bare pass, CPU s | update: job, CPU s | worker, CPU s | update ÷ pass "
        "|"
    )
    print("|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        stream = UpdateCostBench(Path(folder), "analytic", "data", SIDE, imagenet_base.NAME)
        try:
            for number in range(1, UPDATES + 1):
                count = options.images if number in (1, UPDATES) else options.between
                batch, photos = photos[:count], photos[count:]
                if count != options.images:
                    stream.learn_batch_and_measure_cost(_pack_photos_as_zip(batch))
                    continue
                before = _measure_decode_and_forward_seconds(batch)
                update = stream.learn_batch_and_measure_cost(_pack_photos_as_zip(batch))
                bare = (before + _measure_decode_and_forward_seconds(batch)) / 2
                ratio = (update.job_cpu_s + update.worker_cpu_s) / bare
                print(
                    f"| {number} | {count:,} | {bare:.1f} | {update.job_cpu_s:.1f} "
                    f"| {update.worker_cpu_s:.1f} | {ratio:.2f} |",
                    flush=True,
                )
        finally:
            stream.close()
    print(f"Goal: ≤ {GOAL}.")


def _pack_photos_as_zip(photos: Sequence[Photo]) -> bytes:
    """Pack photos as a zip with a folder for each class."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for label, path in photos:
            archive.write(path, f"{label}/{path.name}")
    return out.getvalue()


def _measure_decode_and_forward_seconds(photos: Sequence[Photo]) -> float:
    """Measure CPU seconds to decode photos and pass them through the base's network."""
    backbone = (
        import_timm_models()
        .create_model(imagenet_base.MODEL, num_classes=0)
        .eval()
        .to(memory_format=torch.channels_last)
    )
    begin = time.process_time()
    with torch.inference_mode():
        for start in range(0, len(photos), BATCH):
            backbone(_decode_photos([path for _, path in photos[start : start + BATCH]]))
    return time.process_time() - begin


def _decode_photos(paths: Sequence[Path]) -> Tensor:
    """Decode photos to float32 [B, 3, 224, 224], scaled and cropped in the middle."""
    images = []
    for path in paths:
        with Image.open(path) as opened:
            opened.draft("RGB", (256, 256))
            upright = ImageOps.exif_transpose(opened).convert("RGB")
        fitted = ImageOps.fit(upright, (SIDE, SIDE), Image.Resampling.BICUBIC, bleed=1 / 16)
        images.append(np.asarray(fitted))
    pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
    return ((pixels.float() / 255 - 0.5) / 0.5).contiguous(memory_format=torch.channels_last)


if __name__ == "__main__":
    main()
