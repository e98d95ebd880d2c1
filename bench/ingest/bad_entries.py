"""A large label table with bad entries through the real ingest: what is read, what is listed,
seconds and memory.

    python -m bench.ingest.bad_entries [--rows 50000] [--kind csv] [--processes 2]

Makes a zip of PNG files of 32×32 and a table of as many rows. 1 % of the rows are bad (an image
that is not there, a label with a control character or of 101 characters): the others are ingested,
and the report lists the bad ones. With 10 % the batch is refused by the option that allows it; with
that option it is read. Memory is the peak of this process and of its largest decoder. Goal: every
good row in the data set, every other listed.
"""

import argparse
import csv
import io
import json
import resource
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from core.errors import PerennialError
from core.ingest.ingest import IngestOptions, decode_archive_to_datasets
from core.ingest.inspect import summarise_archive_and_digest_content
from core.ingest.layout import BatchReadingSettings
from core.ingest.limits import ArchiveLimits
from core.settings import Settings
from perennial.reading_rules.entries import BatchReadingOptions

_CLASSES = 20


def main() -> None:
    """Print time and memory of reading an archive, by the share of bad rows in its label table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--kind", choices=("csv", "json"), default="csv")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for bad, max_bad in ((0.01, 0.05), (0.10, 0.05), (0.10, 0.10)):
            archive = Path(folder) / f"{bad}.zip"
            if not archive.exists():
                _write_archive_with_table(
                    archive, options.rows, round(bad * options.rows), options.kind
                )
            _print_archive_reading_time(
                archive, bad, max_bad, options.processes, Path(folder) / "out"
            )


def _write_archive_with_table(archive: Path, rows: int, bad: int, kind: str) -> None:
    rng = np.random.default_rng(7)
    with zipfile.ZipFile(archive, "w") as file:
        for number in range(rows):
            image = io.BytesIO()
            noise = rng.integers(0, 255, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(noise).save(image, "PNG", compress_level=1)
            file.writestr(f"images/{number:06}.png", image.getvalue())
        text = io.StringIO()
        if kind == "json":
            entries = [
                {"image": name, "label": label}
                for name, label in _iterate_label_rows_with_bad_ones(rows, bad)
            ]
            file.writestr("labels.json", json.dumps(entries))
            return
        csv.writer(text).writerows(
            [("path", "label"), *_iterate_label_rows_with_bad_ones(rows, bad)]
        )
        file.writestr("labels.csv", text.getvalue())


def _iterate_label_rows_with_bad_ones(rows: int, bad: int) -> Iterator[tuple[str, str]]:
    """Yield the rows of a label table, with bad ones spread among them."""
    kinds = {
        int(number): kind % 3
        for kind, number in enumerate(np.random.default_rng(8).permutation(rows)[:bad])
    }
    for number in range(rows):
        name, label = f"images/{number:06}.png", f"class {number % _CLASSES}"
        if number in kinds:
            ways = ((f"none/{number}.png", label), (name, f"a\x1bb{number}"), (name, "x" * 101))
            yield ways[kinds[number]]
        else:
            yield name, label


def _print_archive_reading_time(
    archive: Path, bad: float, max_bad: float, processes: int, out: Path
) -> None:
    limits, reading = (
        ArchiveLimits.from_settings(Settings()),
        BatchReadingSettings(BatchReadingOptions(max_bad=max_bad)),
    )
    start, cpu = time.perf_counter(), time.process_time()
    case_label = f"{bad:.0%} bad, max_bad={max_bad:g}: "
    try:
        archive_summary = summarise_archive_and_digest_content(archive, "zip", limits, reading)
        checked, checked_cpu = time.perf_counter() - start, time.process_time() - cpu
        options = IngestOptions(32, 3, limits, reading=reading, processes=processes)
        batch = decode_archive_to_datasets(archive, "zip", out, options)
    except PerennialError as error:
        print(f"{case_label}refused in {time.perf_counter() - start:.1f} s: {error.detail}")
        return
    seconds = time.perf_counter() - start - checked
    report = batch.report
    print(
        f"{case_label}{batch.n_train + batch.n_held_out:,} images in {len(batch.classes)} classes, "
        f"{report['bad_entries_count']:,} entries left out ({len(report['bad_entries'])} listed, "
        f"{archive_summary.bad_entries_count:,} at the check)"
    )
    print(f"    first: {report['bad_entries'][0]['where']}: {report['bad_entries'][0]['reason']}")
    print(
        f"    check {checked:.1f} s ({checked_cpu:.1f} s of CPU time), ingest {seconds:.1f} s; "
        f"peak {_get_peak_memory_mib(resource.RUSAGE_SELF):.0f} MiB, largest decoder "
        f"{_get_peak_memory_mib(resource.RUSAGE_CHILDREN):.0f} MiB"
    )


def _get_peak_memory_mib(who: int) -> float:
    return resource.getrusage(who).ru_maxrss / 1024


if __name__ == "__main__":
    main()
