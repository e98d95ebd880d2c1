"""A linear probe whose features are cached against one that computes them in every epoch, in one
run.

    python -m bench.methods.cached_features [--size 224] [--images 700] [--epochs 10]
        [--network resnet18]

Runs the product's job twice on the same made-up images, without augmentation, at depth 1 and
without held-out images, and prints the seconds of training of each, from the first word of the
phase to its end, and their ratio. The goal at the defaults is 5 or more. The heads of both must
agree to 1e-4, else the program fails.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

from core.contract.jobs.job_event import JobEvent, PhaseEvent
from core.contract.jobs.job_spec import LearnJobSpec
from core.learning.catalogue import build_recipe_catalogue
from core.learning.state import load_tensors
from core.learning.training import job
from core.recipe.resolve import resolve_recipe

GOAL = 5.0
CLASSES = [f"class-{number}" for number in range(10)]


def main() -> None:
    """Measure how much faster a head trains on cached features; check that the result is equal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=224, help="pixels a side")
    parser.add_argument("--images", type=int, default=700)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        _write_random_image_dataset(path / "train.safetensors", args.images, args.size)
        seconds, heads = {}, {}
        for kind in ("computed", "cached"):
            seconds[kind] = _measure_training_seconds(path, kind, args)
            heads[kind] = load_tensors(path / kind / "result" / "parts" / "head.safetensors")[
                "head.weight"
            ]
            print(f"features {kind:>8}: {seconds[kind]:8.2f} s of training", flush=True)
    apart = float((heads["computed"] - heads["cached"]).abs().max())
    print(
        f"ratio {seconds['computed'] / seconds['cached']:.2f}, goal {GOAL}; heads differ by "
        f"{apart:.1e}"
    )
    if apart > 1e-4:
        raise SystemExit("the two probes learned different heads")


def _write_random_image_dataset(path: Path, count: int, size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, size, size, 3), generator=generator, dtype=torch.uint8)
    save_file({"images": images, "labels": torch.arange(count) % len(CLASSES)}, path)


def _measure_training_seconds(folder: Path, kind: str, args: argparse.Namespace) -> float:
    """Measure the seconds of the training phase of one job."""
    patch = {
        "preset": "linear-probe",
        "features": kind,
        "augment": "none",
        "epochs": args.epochs,
        "optimizer": {"lr": 0.01},
    }
    model = {
        "architecture": {"name": args.network},
        "image": {"size": args.size, "channels": 3},
        "scenario": "class",
    }
    manifest = {"init": {"kind": "random", "seed": 0}, "classes": [], "heads": [], **model}
    base = {"version": 0, "manifest": manifest, "parts": []}
    task = {
        "number": 1,
        "classes": CLASSES,
        "train": str(folder / "train.safetensors"),
        "held_out": None,
    }
    spec = {
        **model,
        "recipe": resolve_recipe(build_recipe_catalogue(), "class", patch).recipe,
        "normalise": None,
        "classes": None,
        "task": task,
        "history": [],
        "parent": base,
        "base": base,
        "snapshot": None,
        "out": str(folder / kind),
        "threads": args.threads,
        "device": "cpu",
    }
    (folder / kind).mkdir()
    times: dict[str, float] = {}

    def record_phase_time(event: JobEvent) -> None:
        if isinstance(event, PhaseEvent):
            times[event.phase] = time.perf_counter()

    job.learn_task(LearnJobSpec.from_json(spec), record_phase_time)
    return times["consolidate"] - times["train"]


if __name__ == "__main__":
    main()
