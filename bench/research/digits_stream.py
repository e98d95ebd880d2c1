"""The demo's stream with and without a continual-learning method, and learned jointly, through
HTTP.

    python -m bench.research.digits_stream [--seeds 3]

Five tasks of two digits, class scenario. ACC is the mean accuracy of the last version on all tasks'
held-out images. `joint` is one model that gets all ten classes as one batch: what no forgetting at
all would give at the same recipe.
"""

import argparse
import io
import statistics
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from perennial import Perennial
from tools import digits, service


def main() -> None:
    """Learn a stream of digits with each method, and print accuracy matrices and ACC per seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    methods: dict[str, Any] = {
        "der++": {"name": "der++", "buffer": 200},
        "er": {"name": "er", "buffer": 200},
        "finetune": {"name": "finetune"},
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        service.run_temporary_service(Path(folder)) as running,
    ):
        client = Perennial(running.key, base_url=running.url)
        for name, method in methods.items():
            scores = [
                _measure_stream_accuracy(client, f"{name.replace('+', 'p')}-{seed}", method, seed)
                for seed in range(seeds)
            ]
            _print_seed_accuracies(name, scores)
        _print_seed_accuracies(
            "joint",
            [
                _measure_merged_batch_accuracy(client, f"joint-{seed}", seed)
                for seed in range(seeds)
            ],
        )


def _measure_stream_accuracy(
    client: Perennial, model: str, method: dict[str, Any], seed: int
) -> float:
    client.models.create(
        model,
        recipe={"method": method, "seed": seed},
        architecture="small-cnn",
        gate={"checks": "off"},
    )
    _submit_archives_and_wait(
        client, model, [archive for _, archive in digits.build_digit_archives()]
    )
    metrics = client.metrics.retrieve(model)
    if seed == 0:
        for row, cells in zip(metrics.rows, metrics.accuracy_matrix, strict=True):
            print(
                f"  {model} version {row.version}: "
                + "  ".join("  –  " if c is None else f"{c:.3f}" for c in cells)
            )
    return metrics.summary.acc or 0.0


def _measure_merged_batch_accuracy(client: Perennial, model: str, seed: int) -> float:
    merged = io.BytesIO()
    with zipfile.ZipFile(merged, "w") as out:
        for _, data in digits.build_digit_archives():
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for name in archive.namelist():
                    out.writestr(zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0)), archive.read(name))
    client.models.create(
        model, recipe={"method": "finetune", "seed": seed}, architecture="small-cnn"
    )
    _submit_archives_and_wait(client, model, [merged.getvalue()])
    return client.metrics.retrieve(model).summary.acc or 0.0


def _submit_archives_and_wait(client: Perennial, model: str, archives: list[bytes]) -> None:
    for job in [client.submit(model, archive) for archive in archives]:
        job.wait()


def _print_seed_accuracies(name: str, scores: list[float]) -> None:
    print(
        f"{name:12} ACC {statistics.mean(scores):.3f}   seeds: "
        + "  ".join(f"{s:.3f}" for s in scores),
        flush=True,
    )


if __name__ == "__main__":
    main()
