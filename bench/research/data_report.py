"""The share of planted faults that the data report finds, its false alarms, and what it
costs.

    python -m bench.research.data_report --data DIR [--cleanlab PYTHON]
        [--only labels,near,shift,cost]

DIR holds `cifar100/` (zip archives of train/<class>/ and test/<class>/); classes that the packaged
base was trained on are never read. The base is the network that looks. `near`: 100 of 10,000 images
saved again, smaller or larger, and how many of the others are flagged. `labels`: 5 % flipped in ten
classes of digits and of CIFAR-100 and in larger batches; with --cleanlab (a Python that has
cleanlab 2.9.0) its answers to the same probabilities beside them. `shift`: rejections at 5 % over
splits of one sample, and of images 20 % brighter. `cost`: seconds of the report within a job of ten
epochs.
"""

import argparse
import io
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load, save_file
from sklearn.datasets import load_digits
from torch import Tensor

from bench.job_run import complete_and_run_job_spec
from core.ingest.dataset import memory_map_image_dataset
from core.ingest.images import convert_to_square_array
from core.ingest.ingest import IngestOptions, decode_archive_to_datasets
from core.ingest.limits import ArchiveLimits
from core.ingest.sniff import detect_upload_format
from core.learning.catalogue import build_recipe_catalogue
from core.learning.evaluation.probe import compute_image_features
from core.learning.networks import HeadSpec, ImageSpec, build_uninitialised_network
from core.learning.precision import InputNormaliser
from core.learning.reports.data_findings import SUSPECTS
from core.learning.reports.shift import (
    DataShiftSample,
    compute_image_channel_statistics,
    run_shift_tests_on_samples,
)
from core.learning.reports.suspicious_labels import (
    estimate_label_probabilities,
    find_images_with_suspect_labels,
)
from core.packaged import packaged_base
from core.recipe.resolve import resolve_recipe
from core.settings import Settings
from core.statistics import near_duplicates

SIZE, SEEDS = 32, 3
FLIPPED, BRIGHTER = 0.05, 1.2
ARCHIVES = ("classes_60-69", "classes_70-79", "classes_80-89", "classes_90-99")
NULL_SPLITS, NULL_SIDE, POWER_RUNS = 1000, 100, 100
CLEANLAB = """
import sys, json, numpy as np
from cleanlab.filter import find_label_issues
data = np.load(sys.argv[1])
print(json.dumps(np.flatnonzero(find_label_issues(data['labels'], data['p'])).tolist()))
"""
Images = np.ndarray
Data = tuple[Images, np.ndarray]


def main() -> None:
    """Measure reliability and speed of the data report (near-duplicates, wrong labels, shift)."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cleanlab", type=Path)
    parser.add_argument("--only", default="near,labels,shift,cost")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        cifar = _read_cifar_archives(args.data / "cifar100", Path(folder))
        parts: dict[str, Callable[[], None]] = {
            "near": lambda: print_near_duplicate_detection(cifar),
            "labels": lambda: print_wrong_label_detection(cifar, args.cleanlab, Path(folder)),
            "shift": lambda: print_shift_test_rejection_rates(cifar),
            "cost": lambda: print_data_report_cost(cifar, Path(folder)),
        }
        for part in args.only.split(","):
            print(f"## {part}", flush=True)
            parts[part]()


def print_near_duplicate_detection(cifar: list[Data]) -> None:
    """Print the share of near-duplicates found, and of unrelated images flagged."""
    generator = np.random.default_rng(0)
    images = np.concatenate([x for x, _ in cifar])
    images = images[generator.permutation(len(images))[:10_000]]
    hashes = near_duplicates.hash_images_perceptually(images)
    for name, copy in {
        "saved again (JPEG 60 to 95)": _resave_as_jpeg,
        "resized (0.6 to 2 times)": _resize_and_restore,
    }.items():
        copies = np.stack([copy(image, generator) for image in images[:100]])
        is_found = near_duplicates.find_near_duplicates_between(
            near_duplicates.hash_images_perceptually(copies), hashes[:100]
        ).near == np.arange(100)
        print(f"{name}: {is_found.sum()} of 100 copies found (goal ≥ 95)")
    begin = time.perf_counter()
    duplicates = near_duplicates.find_near_duplicates_within(hashes)
    pairs = _count_near_pairs(hashes)
    print(
        f"{len(images):,} images of CIFAR-100: {int((duplicates.near >= 0).sum())} flagged as near an "
        f"earlier one ({(duplicates.near >= 0).mean():.2%}), {pairs} of "
        f"{len(images) * (len(images) - 1) // 2:,} pairs "
        f"({pairs / (len(images) * (len(images) - 1) / 2):.6%}; goal ≤ 0.1 %), of which "
        f"{_count_flagged_images_that_are_copies(images, duplicates.near)} flagged images are the same "
        "picture (grey correlation ≥ 0.95); "
        f"searched in {time.perf_counter() - begin:.1f} s, complete {duplicates.complete}"
    )


def print_wrong_label_detection(cifar: list[Data], cleanlab: Path | None, folder: Path) -> None:
    """Print the share of planted wrong labels found, and of correct labels flagged."""
    print(
        "| batch | images | seen | recall | precision | flagged without faults | cleanlab recall | "
        "precision |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    features_and_labels = [(_compute_image_features(x), y) for x, y in cifar]
    batches = {"digits": _compute_digit_features()} | {
        f"CIFAR-100 {name[8:]}": one
        for name, one in zip(ARCHIVES, features_and_labels, strict=True)
    }
    for name, count in (("CIFAR-100 60-79", 2), ("CIFAR-100 60-99", 4)):
        numbers = np.concatenate(
            [y + 10 * i for i, (_, y) in enumerate(features_and_labels[:count])]
        )
        batches[name] = (torch.cat([h for h, _ in features_and_labels[:count]]), numbers)
    for name, (h, right) in batches.items():
        rows = [_measure_planted_labels(h, right, seed, cleanlab, folder) for seed in range(SEEDS)]
        mean = np.mean([row[:6] for row in rows], axis=0)
        cleanlab_cells = f"{mean[4]:.2f} | {mean[5]:.2f}" if cleanlab else "– | –"
        clean = len(
            find_images_with_suspect_labels(h, torch.from_numpy(right), torch.Generator()).rows
        ) / len(right)
        print(
            f"| {name} | {len(right):,} | {mean[2]:.2f} | {mean[0]:.2f} | {mean[1]:.2f} | "
            f"{clean:.1%} | {cleanlab_cells} |",
            flush=True,
        )
    print(
        f"seen: accuracy of the probabilities out of sample; a warning above {SUSPECTS:.0%} flagged"
    )


def print_shift_test_rejection_rates(cifar: list[Data]) -> None:
    """Print how often the shift test rejects at 5 %, without a shift and with brighter images."""
    x, _ = cifar[0]
    generator = torch.Generator().manual_seed(0)
    sample_rows = np.random.default_rng(0).permutation(len(x))[:2_000]
    h = _build_data_shift_sample(x[sample_rows])
    brighter = _build_data_shift_sample(
        np.clip(x[sample_rows].astype(np.float32) * BRIGHTER, 0, 255).astype(np.uint8)
    )
    for splits in (200, NULL_SPLITS):
        below = sum(
            _compute_shift_test_p_value(h, h, NULL_SIDE, generator) <= 0.05 for _ in range(splits)
        )
        print(
            f"no shift: {below} of {splits} splits at p ≤ 0.05 ({below / splits:.1%}; goal 5 ± 2 "
            f"%)",
            flush=True,
        )
    for side in (100, 250, 500):
        detection_count = sum(
            _compute_shift_test_p_value(h, brighter, side, generator) <= 0.05
            for _ in range(POWER_RUNS)
        )
        print(
            f"brightness + 20 %, {side} images a side: {detection_count} of {POWER_RUNS} found (goal ≥ 90)",
            flush=True,
        )


def print_data_report_cost(cifar: list[Data], folder: Path) -> None:
    """Print the CPU seconds that the data report adds to jobs."""
    pixels, digits = load_digits(return_X_y=True)
    grey = np.rint(pixels.reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
    large = np.stack([convert_to_square_array(image, SIZE, 3) for image in grey])
    x, y = cifar[0]
    sample_rows = np.random.default_rng(0).permutation(len(x))[:1_000]
    base: dict[str, Any] = packaged_base.load_packaged_base_description().architecture
    runs = [
        ("digits, small-cnn", {"name": "small-cnn"}, large[:1_000], digits[:1_000]),
        ("CIFAR-100, ResNet-20", base, x[sample_rows], y[sample_rows]),
    ]
    for name, architecture, images, numbers in runs:
        inspected, job_seconds = _measure_inspection_cpu_seconds(
            folder / name.split(",")[0], architecture, images, numbers
        )
        print(
            f"{name}, {len(images):,} images, ten epochs: report {inspected:.2f} s of {job_seconds:.1f} "
            f"s ({inspected / job_seconds:.1%}; goal ≤ 5 %)",
            flush=True,
        )


def _measure_inspection_cpu_seconds(
    folder: Path, architecture: dict[str, Any], images: Images, numbers: np.ndarray
) -> tuple[float, float]:
    """Measure CPU seconds of a job's inspection phase and of the whole job."""
    folder.mkdir()
    names = [str(n) for n in np.unique(numbers)]
    is_held_out = np.arange(len(images)) % 6 == 0
    task: dict[str, Any] = {"number": 1, "classes": names}
    earlier: dict[str, Any] = {"number": 2, "classes": names}
    for part, rows in (("train", ~is_held_out), ("held_out", is_held_out)):
        path = folder / f"{part}.safetensors"
        save_file(
            {
                "images": torch.from_numpy(images[rows]),
                "labels": torch.from_numpy(numbers[rows]).long(),
            },
            path,
        )
        task[part] = str(path)
    earlier["held_out"] = task["held_out"]
    recipe = resolve_recipe(
        build_recipe_catalogue(), "class", {"method": "finetune", "epochs": 10}
    ).recipe
    start = {
        "version": 0,
        "manifest": {"init": {"kind": "random", "seed": 1}, "classes": [], "heads": []},
        "parts": [],
    }
    common = {
        "architecture": architecture,
        "image": {"size": SIZE, "channels": 3},
        "scenario": "class",
        "recipe": recipe,
    }
    more = {
        "normalise": None,
        "classes": None,
        "task": task,
        "history": [earlier],
        "parent": start,
        "base": start,
    }
    at: dict[str, float] = {}

    def record_phase_time(event: dict[str, Any]) -> None:
        key = event["phase"] if event["event"] == "phase" else event["event"]
        at.setdefault(key, time.process_time())

    out = folder / "out"
    out.mkdir()
    begin = time.process_time()
    complete_and_run_job_spec(
        {**common, **more, "snapshot": None, "out": str(out), "threads": 1, "device": "cpu"},
        record_phase_time,
    )
    return at["data"] - at["inspect"], time.process_time() - begin


def _measure_planted_labels(
    h: Tensor, right: np.ndarray, seed: int, cleanlab: Path | None, folder: Path
) -> tuple[float, float, float, float, float, float]:
    """Measure recall and precision of finding planted wrong labels, by our report and by cleanlab."""
    generator = np.random.default_rng(seed)
    classes = int(right.max()) + 1
    flipped = generator.permutation(len(right))[: int(FLIPPED * len(right))]
    noisy_labels = right.copy()
    noisy_labels[flipped] = (
        noisy_labels[flipped] + generator.integers(1, classes, len(flipped))
    ) % classes
    wrong = noisy_labels != right
    label = torch.from_numpy(noisy_labels)
    accused = find_images_with_suspect_labels(h, label, torch.Generator()).rows.numpy()
    p = estimate_label_probabilities(h, label).numpy()
    accuracy = float((p.argmax(1) == right).mean())
    cleanlab_issues = (
        _find_issues_by_cleanlab(cleanlab, folder, p, noisy_labels)
        if cleanlab
        else np.zeros(0, np.int64)
    )
    return (
        *_compute_recall_and_precision(accused, wrong),
        accuracy,
        len(accused) / len(right),
        *_compute_recall_and_precision(cleanlab_issues, wrong),
    )


def _compute_recall_and_precision(accused: np.ndarray, wrong: np.ndarray) -> tuple[float, float]:
    right = int(wrong[accused].sum())
    return right / max(1, int(wrong.sum())), right / max(1, len(accused))


def _find_issues_by_cleanlab(
    python: Path, folder: Path, p: np.ndarray, noisy_labels: np.ndarray
) -> np.ndarray:
    np.savez(folder / "probabilities.npz", p=p, labels=noisy_labels)
    command = [str(python), "-c", CLEANLAB, str(folder / "probabilities.npz")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return np.array(json.loads(done.stdout.strip().splitlines()[-1]), np.int64)


def _compute_shift_test_p_value(
    one: DataShiftSample, other: DataShiftSample, side: int, generator: torch.Generator
) -> float:
    order = torch.randperm(len(one.features), generator=generator)
    sides = ((one, order[:side]), (other, order[side : 2 * side]))
    first, second = (
        DataShiftSample(sample.features[rows], sample.light[rows], []) for sample, rows in sides
    )
    return run_shift_tests_on_samples(first, second, generator).p


def _build_data_shift_sample(images: Images) -> DataShiftSample:
    return DataShiftSample(
        _compute_image_features(images),
        compute_image_channel_statistics(torch.from_numpy(images)),
        [],
    )


def _compute_image_features(images: Images) -> Tensor:
    base_description = packaged_base.load_packaged_base_description()
    network = build_uninitialised_network(
        base_description.architecture, ImageSpec(SIZE, 3), "class", HeadSpec()
    )
    network.backbone.load_base_weights(load(packaged_base.load_packaged_base_weights(3)))
    return compute_image_features(
        network,
        torch.from_numpy(images),
        InputNormaliser(base_description.normalise, 3, torch.device("cpu")),
    ).clone()


def _compute_digit_features() -> tuple[Tensor, np.ndarray]:
    pixels, numbers = load_digits(return_X_y=True)
    grey = np.rint(pixels.reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
    return _compute_image_features(
        np.stack([convert_to_square_array(image, SIZE, 3) for image in grey])
    ), numbers


def _read_cifar_archives(data: Path, folder: Path) -> list[Data]:
    """Read training images and labels from CIFAR archives as the service decodes them."""
    limits = ArchiveLimits.from_settings(Settings(data_dir=folder))
    datasets = []
    for name in ARCHIVES:
        path = data / f"{name}.zip"
        with path.open("rb") as file:
            media_type = detect_upload_format(file.read(1024), None)
        ingested_batch = decode_archive_to_datasets(
            path, media_type, folder / name, IngestOptions(SIZE, 3, limits)
        )
        images, numbers = memory_map_image_dataset(ingested_batch.train)
        datasets.append((np.array(images), np.array(numbers)))
    return datasets


def _resave_as_jpeg(image: Images, generator: np.random.Generator) -> Images:
    out = io.BytesIO()
    Image.fromarray(image).save(out, "JPEG", quality=int(generator.integers(60, 96)))
    return np.asarray(Image.open(out))


def _resize_and_restore(image: Images, generator: np.random.Generator) -> Images:
    side = int(SIZE * generator.uniform(0.6, 2))
    other = Image.fromarray(image).resize((side, side), Image.Resampling.BICUBIC)
    return np.asarray(other.resize((SIZE, SIZE), Image.Resampling.BICUBIC))


def _count_near_pairs(hashes: np.ndarray) -> int:
    """Count near-duplicate pairs of images by comparing all pairs."""
    total = 0
    for at in range(0, len(hashes), 500):
        close = (
            near_duplicates.compute_hamming_distances(hashes[at : at + 500, None], hashes[None])
            <= near_duplicates.MOST_BITS
        )
        total += int(np.triu(close, at + 1).sum())
    return total


def _count_flagged_images_that_are_copies(images: Images, near_rows: np.ndarray) -> int:
    rows = np.flatnonzero(near_rows >= 0)
    grey = images.mean(3).reshape(len(images), -1)
    one, other = (
        (part - part.mean(1, keepdims=True)) / (part.std(1, keepdims=True) + 1e-6)
        for part in (grey[rows], grey[near_rows[rows]])
    )
    return int(((one * other).mean(1) >= 0.95).sum())


if __name__ == "__main__":
    main()
