"""Milliseconds of a prediction over HTTP on the base for photos, beside its parts in this process.

    python -m bench.service.predict --photos FOLDER [--rounds 15] [--threads 1]

FOLDER has photos as `<class>/<image>`, of two classes or more. A model with nothing but a name learns forty of them.
Each round asks for the same photos over HTTP, decodes them as the service does, and passes them through the bare
network in torch with as many threads; medians of all rounds. What is left are HTTP, two processes that are asked, and
probabilities.
"""

import argparse
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch

from core import imagenet_base
from core.ingest.images import decode
from core.ingest.resizing import Resizing
from core.learn.networks import ImageSpec, build_backbone
from core.learn.networks.timm_names import pretrained
from perennial import Perennial
from tools import service

CLASSES, IMAGES, ASKED = 2, 20, (1, 16)
MAX_PIXELS = 50_000_000


def main() -> None:
    """Print a table with a row for each number of images."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    labels = sorted(path for path in options.photos.iterdir() if path.is_dir())[:CLASSES]
    photos = [(label.name, path) for label in labels for path in sorted(label.iterdir())[:IMAGES]]
    settings = {"PERENNIAL_THREADS": str(options.threads)}
    with tempfile.TemporaryDirectory() as folder, service.running(Path(folder) / "data", settings) as running:
        client = Perennial(running.key, base_url=running.url)
        client.models.create("photos", "class")
        client.submit("photos", write_archive(photos, Path(folder) / "photos.zip")).wait(600)
        print(
            "| images | over HTTP | decoding | bare network | HTTP ÷ both |\n| --- | --- | --- | --- | --- |"
        )
        for asked in ASKED:
            files = [path.read_bytes() for _, path in photos[:asked]]
            whole, decoding, network = measure(client, files, options.rounds)
            share = whole / (decoding + network)
            print(f"| {asked} | {whole:.1f} ms | {decoding:.1f} ms | {network:.1f} ms | {share:.2f} |")


def write_archive(photos: list[tuple[str, Path]], path: Path) -> Path:
    """Write photos into a folder for each class."""
    with zipfile.ZipFile(path, "w") as archive:
        for label, photo in photos:
            archive.writestr(f"{label}/{photo.name}", photo.read_bytes())
    return path


def measure(client: Perennial, files: list[bytes], rounds: int) -> tuple[float, float, float]:
    """Return the medians of a prediction over HTTP, of decoding and of the network alone, in milliseconds."""
    known = pretrained(imagenet_base.MODEL)
    size, resizing = 224, Resizing(float(known.crop), known.interpolation)
    image = ImageSpec(size, 3)
    # Random weights: they take as long.
    network = build_backbone(imagenet_base.ARCHITECTURE, image, torch.Generator().manual_seed(0)).eval()
    pixels = [decode(file, size, 3, MAX_PIXELS, resizing) for file in files]
    tensor = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).float().div(255)

    def answer() -> None:
        with torch.inference_mode():
            network(tensor)

    steps: tuple[Callable[[], object], ...] = (
        lambda: client.predict("photos", files),
        lambda: [decode(file, size, 3, MAX_PIXELS, resizing) for file in files],
        answer,
    )
    taken: list[list[float]] = [[] for _ in steps]
    for number in range(rounds + 1):  # the first one warms up
        for step, found in zip(steps, taken, strict=True):
            begin = time.perf_counter()
            step()
            if number:
                found.append((time.perf_counter() - begin) * 1000)
    whole, decoding, bare = (median(found) for found in taken)
    return whole, decoding, bare


if __name__ == "__main__":
    main()
