"""What the scrub costs a training job: its time with and without a scrub beside it, in pairs.

    python -m bench.service.scrub [--pairs 5] [--megabytes 2048] [--rate 16777216] [--epochs 40]

An embedded service learns the same batch of digits again and again, each time as the first task of
a new model, in turn with the scrub off and on. The store also holds as many megabytes of bases as
the scrub needs to work all the time. The order within a pair changes from pair to pair. What the
scrub takes of a core is printed too: on a busy machine it is the surer figure. Goal: a median ratio of
at most 1.05.
"""

import argparse
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path

from core.database.session import Database
from core.database.tables import IntegrityScrubProgress, Owner, UploadedBase
from core.ids import new_id
from core.settings import Settings
from core.storage import Blobs, open_object_store
from core.upkeep.scrub import Scrubber
from perennial import Perennial
from tools import digits, service

MB = 1_000_000
FILE_BYTES = 64 * MB


def main() -> None:
    """Measure how much the scrub of stored objects slows down jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=2048)
    parser.add_argument("--rate", type=int, default=16 << 20)
    parser.add_argument("--epochs", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with service.run_temporary_service(data, {"PERENNIAL_SCRUB_BYTES_PER_S": "0"}) as running:
            client = Perennial(running.key, base_url=running.url, timeout=600)
            settings = Settings(data_dir=data, scrub_bytes_per_s=options.rate, scrub_hours=0)
            _store_bases_of_random_bytes(settings, options.megabytes * MB)
            archive = digits.build_digit_archives()[0][1]
            _measure_learning_seconds(client, archive, "warm", options.epochs)
            ratios = []
            for pair in range(options.pairs):
                seconds = {}
                for on in (False, True) if pair % 2 else (True, False):
                    name = f"p{pair}-{'on' if on else 'off'}"
                    with _ScrubThread(settings if on else None) as scrubbing:
                        seconds[on] = _measure_learning_seconds(
                            client, archive, name, options.epochs
                        )
                    if on:
                        rate, share = (
                            scrubbing.bytes / seconds[on] / MB,
                            scrubbing.cpu_s / seconds[on],
                        )
                ratios.append(seconds[True] / seconds[False])
                print(
                    f"without {seconds[False]:.2f} s, with {seconds[True]:.2f} s at {rate:.1f} MB/s"
                    f" ({share:.1%} of a core): {ratios[-1]:.3f}",
                    flush=True,
                )
            print(
                f"median of {len(ratios)} pairs: {statistics.median(ratios):.3f} (goal ≤ 1.05);"
                f" {min(ratios):.3f} to {max(ratios):.3f}"
            )


class _ScrubThread:
    """Thread that scrubs (reads and checks) a store in repeated passes; None: no scrub."""

    def __init__(self, settings: Settings | None) -> None:
        self._settings = settings
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.bytes = 0
        self.cpu_s = 0.0
        """Processor time of the thread."""

    def __enter__(self) -> "_ScrubThread":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        if self._settings is None:
            return
        db, store = (
            Database(self._settings.resolved_database_url),
            open_object_store(self._settings),
        )
        before = _count_scrubbed_bytes(db)
        while not self._end.is_set():
            Scrubber(db, store, self._settings, "bench", self._end.wait).run_scrub_if_due()
        self.bytes, self.cpu_s = _count_scrubbed_bytes(db) - before, time.thread_time()
        db.close()


def _count_scrubbed_bytes(db: Database) -> int:
    with db.read() as session:
        row = session.get(IntegrityScrubProgress, 1)
        return 0 if row is None else row.bytes


def _store_bases_of_random_bytes(settings: Settings, size: int) -> None:
    """Store bases of random bytes, with their database rows."""
    db = Database(settings.resolved_database_url)
    blobs = Blobs(open_object_store(settings), settings.make_folder("cache"))
    source = settings.make_folder("spool") / "base"
    with db.read() as session:
        owner = session.query(Owner.id).limit(1).scalar()
    for _ in range(max(1, size // FILE_BYTES)):
        with source.open("wb") as file:
            for _ in range(FILE_BYTES // MB):
                file.write(os.urandom(MB))
        sha256, written = blobs.put_file(source, move=True)
        with db.write() as session:
            row = {
                "architecture": {},
                "sha256": sha256,
                "bytes": written,
                "created_at": time.time(),
            }
            session.add(UploadedBase(id=new_id("bas"), owner_id=owner, **row))
    db.close()


def _measure_learning_seconds(client: Perennial, archive: bytes, name: str, epochs: int) -> float:
    """Measure the seconds from submitting a batch to the end of its job."""
    client.models.create(
        name, recipe={"method": "finetune", "epochs": epochs}, architecture="small-cnn"
    )
    begin = time.perf_counter()
    client.submit(name, archive).wait()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
