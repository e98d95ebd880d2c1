"""Ingest of a real archive against Pillow alone, in images per second.

    python -m bench.service.ingest --data DIR [--rounds 5]

DIR holds `cifar100/classes_00-09.zip`: 6,000 PNG of 32×32. The reference opens each entry of the
zip and decodes it with Pillow in one process, and keeps nothing. Ingest checks the container,
decodes with one decoder process under limits, splits, and writes both dataset files to disk
(fsync). Goal: ≥ 0.9.
"""

import argparse
import io
import statistics
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from core.ingest.ingest import IngestOptions, decode_archive_to_datasets
from core.ingest.limits import ArchiveLimits
from core.settings import Settings


def main() -> None:
    """Measure the rate of reading images from an archive, relative to Pillow alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    archive = options.data / "cifar100" / "classes_00-09.zip"
    rates: dict[str, list[float]] = {
        "Pillow": [],
        "ingest, 1 decoder": [],
        "ingest, 2 decoders": [],
    }
    for _ in range(options.rounds):
        rates["Pillow"].append(_measure_pillow_rate(archive))
        rates["ingest, 1 decoder"].append(_measure_ingest_rate(archive, 1))
        rates["ingest, 2 decoders"].append(_measure_ingest_rate(archive, 2))
    reference = statistics.median(rates["Pillow"])
    for name, round_rates in rates.items():
        rate = statistics.median(round_rates)
        print(f"{name:20} {rate:>9,.0f} images/s   ratio {rate / reference:.2f}")
    print("goal: ingest / Pillow ≥ 0.9")


def _measure_pillow_rate(archive: Path) -> float:
    start, count = time.perf_counter(), 0
    with zipfile.ZipFile(archive) as opened:
        for entry in opened.infolist():
            if not entry.is_dir():
                with Image.open(io.BytesIO(opened.read(entry))) as image:
                    np.asarray(image.convert("RGB"))
                count += 1
    return count / (time.perf_counter() - start)


def _measure_ingest_rate(archive: Path, processes: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        options = IngestOptions(32, 3, ArchiveLimits.from_settings(Settings()), processes=processes)
        done = decode_archive_to_datasets(archive, "zip", Path(folder), options)
        return (done.n_train + done.n_held_out) / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
