"""Training throughput of the product's loop with `finetune` against two bare PyTorch loops.

    python -m bench.methods.training --data DIR [--rounds 5] [--precisions float32 bfloat16]

Same network, batch, data, threads and optimizer. Both bare loops hold normalised float images in
RAM. `stock` is what one gets without thinking: PyTorch's default memory format, in a process with
the system's defaults. `tuned` has what the product sets itself: channels_last where there are
convolutions, and the malloc settings of a worker's jobs. The product's side is what a worker runs:
`core.learning.training.job` from a dataset file, in a process with these settings. All take turns, each in a
new process; ratios are those of medians in one run. Without `--precisions`, bfloat16 is measured
where the CPU has it in hardware.

Goals in float32: over stock `mlp` ≥ 0.95, `resnet20` ≥ 1.35; over tuned ≥ 1.0.

DIR holds `mnist/train-*.gz` and `cifar100/classes_00-09.zip`.
"""

import argparse
import gzip
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 32
WARM_EPOCHS = 1
SIDES = ("stock", "tuned", "product")
TUNED_GOAL = 1.0
CASES: dict[str, dict[str, Any]] = {
    "mlp": {
        "architecture": {"name": "mlp", "hidden": [400, 400]},
        "image": {"size": 28, "channels": 1},
        "epochs": 3,
        "goal": 0.95,
    },
    "resnet20": {
        "architecture": {"name": "resnet20"},
        "image": {"size": 32, "channels": 3},
        "epochs": 2,
        "goal": 1.35,
    },
}


def main() -> None:
    """Compare training speed of the service with two plain loops, by network and precision."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precisions", nargs="+", choices=("float32", "bfloat16"))
    parser.add_argument(
        "--side", nargs=4, metavar=("SIDE", "PRECISION", "CASE", "FILE"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.side:
        side, precision, case, file = options.side
        print(_measure_image_rate(side, precision, CASES[case], Path(file), options.threads))
        return
    precisions = options.precisions or _list_fast_precisions()
    with tempfile.TemporaryDirectory() as folder:
        for name, case in CASES.items():
            file = Path(folder) / f"{name}.safetensors"
            (_write_mnist_dataset_file if name == "mlp" else _write_cifar_dataset_file)(
                options.data, file
            )
            rates: dict[tuple[str, str], list[float]] = {
                (precision, side): [] for precision in precisions for side in SIDES
            }
            for _ in range(options.rounds):
                for (precision, side), side_rates in rates.items():
                    side_rates.append(
                        _measure_image_rate_in_process(side, precision, name, file, options.threads)
                    )
            for precision in precisions:
                _print_training_rate_row(
                    name, precision, case["goal"], {side: rates[precision, side] for side in SIDES}
                )


def _list_fast_precisions() -> list[str]:
    """Return the number formats in which this CPU computes fast."""
    from core.learning.precision import has_cpu_bfloat16_instructions

    return ["float32", "bfloat16"] if has_cpu_bfloat16_instructions() else ["float32"]


def _print_training_rate_row(
    name: str, precision: str, goal: float, rates: dict[str, list[float]]
) -> None:
    """Print a line of training rates in images per second, with their ratios."""
    middle = {side: statistics.median(side_rates) for side, side_rates in rates.items()}
    goals = {"stock": goal, "tuned": TUNED_GOAL} if precision == "float32" else {}
    sides = "   ".join(
        f"{side} {middle[side]:,.0f} {_format_half_range_percent(rates[side])}" for side in SIDES
    )
    ratios = "   ".join(
        f"product / {side} {middle['product'] / middle[side]:.2f}"
        + (f" (goal ≥ {goals[side]})" if side in goals else "")
        for side in ("stock", "tuned")
    )
    print(f"{name:9} {precision:9} images/s: {sides}   {ratios}", flush=True)


def _measure_image_rate(
    side: str, precision: str, case: dict[str, Any], file: Path, threads: int
) -> float:
    """Measure images per second of one kind of training loop."""
    if side == "product":
        return measure_job_image_rate(case, file, threads, precision)
    return measure_plain_loop_image_rate(case, file, threads, precision, tuned=side == "tuned")


def measure_plain_loop_image_rate(
    case: dict[str, Any], file: Path, threads: int, precision: str, *, tuned: bool
) -> float:
    """Measure images per second of a plain training loop. tuned: with channels_last convolutions."""
    import contextlib

    import torch
    from torch import nn
    from torch.nn import functional

    from core.ingest.dataset import memory_map_image_dataset
    from core.learning.networks import HeadSpec, ImageSpec, build_network

    torch.set_num_threads(threads)
    pixels, labels = memory_map_image_dataset(file)
    x = (torch.from_numpy(pixels.copy()).float() / 255 - 0.5) / 0.25  # [N, S, S, C]
    y = torch.from_numpy(labels.copy())
    classes = tuple(str(c) for c in range(10))
    network = build_network(
        case["architecture"],
        ImageSpec.parse_image_field(case["image"]),
        "class",
        HeadSpec(classes),
        seed=0,
    )
    network.train()
    last = tuned and any(isinstance(module, nn.Conv2d) for module in network.modules())
    if last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    else:
        x = x.permute(0, 3, 1, 2).contiguous()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    start = 0.0
    for epoch in range(WARM_EPOCHS + case["epochs"]):
        if epoch == WARM_EPOCHS:
            start = time.perf_counter()
        for index in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad(set_to_none=True)
            images = x[index].permute(0, 3, 1, 2) if last else x[index]
            low = precision == "bfloat16"
            with torch.autocast("cpu", torch.bfloat16) if low else contextlib.nullcontext():
                logits = network(images)
            functional.cross_entropy(logits.float(), y[index]).backward()
            optimizer.step()
    return float(case["epochs"] * len(x) / (time.perf_counter() - start))


@dataclass
class _WarmUpAndTrainingEndClock:
    """Records when the first epoch and the whole training ended."""

    steps_per_epoch: int
    warm: float = 0.0
    end: float = 0.0

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] == "progress" and event["step"] == WARM_EPOCHS * self.steps_per_epoch:
            self.warm = time.perf_counter()
        if event["event"] == "phase" and event["phase"] == "consolidate":
            self.end = time.perf_counter()


def measure_job_image_rate(case: dict[str, Any], file: Path, threads: int, precision: str) -> float:
    """Measure images per second of a learning job, as a worker runs it."""
    from bench.job_run import complete_and_run_job_spec
    from core.ingest.dataset import memory_map_image_dataset
    from core.learning.catalogue import build_recipe_catalogue
    from core.recipe.resolve import resolve_recipe

    count = len(memory_map_image_dataset(file)[1])
    classes = [str(c) for c in range(10)]
    version = {"version": 0, "manifest": {"init": {"kind": "random", "seed": 0}}, "parts": []}
    recipe = {
        "method": "finetune",
        "epochs": WARM_EPOCHS + case["epochs"],
        "batch_size": BATCH,
        "augment": "none",
        "precision": precision,
        "optimizer": {"lr": 0.01, "schedule": "constant"},
    }
    with tempfile.TemporaryDirectory() as out:
        spec = {
            "architecture": case["architecture"],
            "image": case["image"],
            "scenario": "class",
            "recipe": resolve_recipe(build_recipe_catalogue(), "class", recipe).recipe,
            "normalise": None,
            "classes": None,
            "task": {"number": 1, "classes": classes, "train": str(file), "held_out": None},
            "history": [],
            "parent": version,
            "base": version,
            "snapshot": None,
            "out": out,
            "threads": threads,
            "device": "cpu",
        }
        clock = _WarmUpAndTrainingEndClock(-(-count // BATCH))
        complete_and_run_job_spec(spec, clock)
    return float(case["epochs"] * count / (clock.end - clock.warm))


def _measure_image_rate_in_process(
    side: str, precision: str, case: str, file: Path, threads: int
) -> float:
    from worker.attempts.child import MALLOC

    environment = {**os.environ, **({} if side == "stock" else MALLOC)}
    command = [
        sys.executable,
        "-m",
        "bench.methods.training",
        "--threads",
        str(threads),
        "--side",
        side,
        precision,
        case,
        str(file),
    ]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def _write_mnist_dataset_file(data: Path, file: Path) -> None:
    """Write 12,000 MNIST images as a dataset file."""
    from core.ingest.dataset import write_image_dataset_file

    raw = gzip.decompress((data / "mnist" / "train-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((data / "mnist" / "train-labels-idx1-ubyte.gz").read_bytes())
    images = np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 28, 28, 1)[:12_000]
    write_image_dataset_file(
        file,
        np.frombuffer(labels, np.uint8, offset=8)[:12_000].astype(np.int64),
        (28, 28, 1),
        [images],
    )


def _write_cifar_dataset_file(data: Path, file: Path) -> None:
    """Write the 5,000 training images of ten CIFAR-100 classes as a dataset file, by the service's
    ingest.
    """
    from core.ingest.ingest import IngestOptions, decode_archive_to_datasets
    from core.ingest.limits import ArchiveLimits
    from core.settings import Settings

    done = decode_archive_to_datasets(
        data / "cifar100" / "classes_00-09.zip",
        "zip",
        file.parent / "cifar",
        IngestOptions(32, 3, ArchiveLimits.from_settings(Settings())),
    )
    done.train.rename(file)


def _format_half_range_percent(values: list[float]) -> str:
    return f"±{(max(values) - min(values)) / 2 / statistics.median(values):.0%}"


if __name__ == "__main__":
    main()
