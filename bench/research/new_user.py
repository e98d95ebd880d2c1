"""The results of a new user: three batches of new classes of photos, nothing said but name and scenario,
through HTTP.

    python -m bench.research.new_user --data DIR [--images 60] [--size 64]

The same batches are learned three times: by the defaults, by the earlier defaults (`small-cnn`,
random weights, `der++`), and by fine-tuning the default base, which shows the warning that names
what helps. DIR holds `cifar100/classes_60-69.zip` and `classes_70-79.zip`: classes that the base of
the package was not trained on. Their pictures become photos of `--size` pixels; each class has
`--images` of them to learn from and 50 held out.
"""

import argparse
import io
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from perennial import Perennial
from tools import service

Json = dict[str, Any]
BATCHES, CLASSES, HELD_OUT = 3, 4, 50
FORMER: Json = {"architecture": "small-cnn", "base": "random", "recipe": {"method": "der++"}}
MODELS: dict[str, Json] = {
    "defaults": {},
    "earlier defaults": FORMER,
    "fine-tuning": {"recipe": {"method": "finetune", "epochs": 2}},
}


def main() -> None:
    """Learn photos as a new user would, with defaults; print accuracy and warnings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--images", type=int, default=60, help="to learn from, of each class")
    parser.add_argument("--size", type=int, default=64, help="pixels a side of a photo")
    options = parser.parse_args()
    archives = list(build_photo_batches(options.data / "cifar100", options.images, options.size))
    print("| model | ACC | forgetting | when learned | seconds | images kept |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    with (
        tempfile.TemporaryDirectory() as folder,
        service.run_temporary_service(Path(folder)) as running,
    ):
        client = Perennial(running.key, base_url=running.url)
        warnings = {}
        for number, (words, fields) in enumerate(MODELS.items()):
            name = f"user-{number}"
            client.models.create(name, **fields)
            start_time = time.monotonic()
            ends = [client.submit(name, archive).wait(3600, check=False) for archive in archives]
            seconds = time.monotonic() - start_time
            failed = [end for end in ends if end.state != "succeeded"]
            if failed:
                print(
                    f"| {words} | failed: "
                    f"{failed[0].error.detail if failed[0].error else failed[0].state} | | | | |",
                    flush=True,
                )
                continue
            summary = client.metrics.retrieve(name).summary
            retained_count = client.memory.retrieve(name).items
            shown = (summary.acc, summary.forgetting, summary.learning_accuracy)
            figures = " | ".join("–" if figure is None else f"{figure:.3f}" for figure in shown)
            print(f"| {words} | {figures} | {seconds:.0f} | {retained_count} |", flush=True)
            warnings[words] = ends[-1].warnings
    for words, model_warnings in warnings.items():
        for text in model_warnings:
            print(f"\n{words}: {text}")


def build_photo_batches(folder: Path, images: int, size: int) -> Iterator[bytes]:
    """Yield zip batches of photos with train and test folders, each with new classes."""
    sources = [zipfile.ZipFile(folder / f"classes_{first}-{first + 9}.zip") for first in (60, 70)]
    files: dict[str, dict[str, list[tuple[zipfile.ZipFile, str]]]] = {}
    for source in sources:
        for name in sorted(source.namelist()):
            part, label, _file = name.split("/")
            files.setdefault(label, {}).setdefault(part, []).append((source, name))
    labels = sorted(files)[: BATCHES * CLASSES]
    for first in range(0, len(labels), CLASSES):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for label in labels[first : first + CLASSES]:
                for part, count in (("train", images), ("test", HELD_OUT)):
                    for number, (source, name) in enumerate(files[label][part][:count]):
                        archive.writestr(
                            f"{part}/{label}/{number:03}.jpg",
                            encode_photo_as_jpeg(source.read(name), size),
                        )
        yield out.getvalue()


def encode_photo_as_jpeg(content: bytes, size: int) -> bytes:
    """Return a picture as a JPEG of `size` pixels a side."""
    out = io.BytesIO()
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    picture.resize((size, size), Image.Resampling.BICUBIC).save(out, "JPEG", quality=92)
    return out.getvalue()


if __name__ == "__main__":
    main()
