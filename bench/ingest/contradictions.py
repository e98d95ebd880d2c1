"""Measures what is found of images under two labels, what is listed of clean data, and what looking
costs.

    python -m bench.ingest.contradictions --data DIR

DIR holds `cifar100/` (zip archives of train/<class>/ and test/<class>/) and `mnist/` (idx files);
digits come with scikit-learn. In each data set 200 images are copied under another label, as they
are and saved or resized again, within the batch and in an earlier task. Clean data, bursts of one
scene and parts with scratches are looked at as they are. The last line is the cost beside bare
decoding of the same images, and behind 200 tasks of 300 images.
"""

import argparse
import io
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from bench.experiment.data import read_idx_array
from core.ingest.findings import contradictions
from core.ingest.findings.contradictions import (
    LabelContradictions,
    add_label_contradictions_with_earlier_tasks,
    digest_pixels_of_each_image,
    find_label_contradictions_in_batch,
)
from core.ingest.findings.traces import (
    ImageFingerprints,
    read_image_fingerprints,
    write_image_fingerprints,
)
from core.statistics import near_duplicates

IMAGES, PLANTED, TASKS, OF_TASK = 5000, 200, 200, 300
Images = np.ndarray
Data = tuple[Images, np.ndarray]


def main() -> None:
    """Measure cost and recall of the search for images with contradicting labels."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    sets = {
        "CIFAR-100": read_cifar_images(args.data / "cifar100"),
        "MNIST": read_mnist_images(args.data / "mnist"),
        "digits": read_digit_images(),
    }
    print(
        "| data | images | equal as they are | near as they are | equal found within | across "
        "| near found within | across |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, data in sets.items():
        clean = find_label_contradictions_in_batch(
            build_stored_fingerprints(*data), data[0].__getitem__
        )
        exact, close = [
            count_found_contradictions(data, change)
            for change in (return_image_unchanged, recompress_or_resize_image)
        ]
        print(
            f"| {name} | {len(data[0]):,} | {clean.equal.count} | {clean.near.count} "
            f"| {exact[0]} | {exact[1]} | {close[0]} | {close[1]} of {PLANTED} |",
            flush=True,
        )
    for name, data in {
        "bursts of one scene, one label each": draw_burst_photos(),
        "good and scratched parts": draw_industrial_part_photos(),
    }.items():
        burst_contradictions = find_label_contradictions_in_batch(
            build_stored_fingerprints(*data), data[0].__getitem__
        )
        print(
            f"{name}: {len(data[0])} images, {burst_contradictions.equal.count} equal, "
            f"{burst_contradictions.near.count} near"
        )
    print_contradiction_check_costs(sets["CIFAR-100"])


def count_found_contradictions(
    data: Data, change: Callable[[Images, np.random.Generator], Images]
) -> tuple[int, int]:
    """Count how many planted copies under a wrong label are found, in the batch and in an earlier
    task.
    """
    images, labels = data
    random = np.random.default_rng(0)
    rows = random.permutation(len(images))[:PLANTED]
    copies = np.stack([change(images[row], random) for row in rows])
    wrong = (labels[rows] + 1 + random.integers(0, labels.max(), PLANTED)) % (labels.max() + 1)
    both = build_stored_fingerprints(
        np.concatenate([images, copies]), np.concatenate([labels, wrong])
    )
    copy_fingerprints, theirs = (
        build_stored_fingerprints(copies, wrong),
        build_stored_fingerprints(images, labels),
    )
    is_exact = change is return_image_unchanged
    counts = []
    for mine, traces, first in ((both, None, len(images)), (copy_fingerprints, theirs, 0)):
        pixels, numbers = contradictions._get_digests_and_labels(mine)
        if is_exact:
            before, their_numbers = (
                (pixels[:first], numbers[:first])
                if traces is None
                else contradictions._get_digests_and_labels(traces)
            )
            pairs = list(
                contradictions._find_equal_images_labelled_differently(
                    before, their_numbers, pixels[first:], numbers[first:]
                )
            )
            counts.append(len({row for _, row in pairs}))
        else:
            earlier_hashes_and_labels = (
                (None, None) if traces is None else (traces.all_perceptual_hashes, traces.labels)
            )
            pairs = near_duplicates.find_near_duplicates_with_other_label(
                mine.all_perceptual_hashes, numbers, *earlier_hashes_and_labels
            )
            counts.append(len({row for _, row in pairs if row >= first}))
    return counts[0], counts[1]


def print_contradiction_check_costs(data: Data) -> None:
    """Print the CPU seconds of parts of the check for contradicting labels."""
    images, labels = data
    begin = time.process_time()
    for image in images:
        decode_png(encode_png(image))
    decoding = time.process_time() - begin
    steps: dict[str, float] = {}

    def run_and_record_cpu_seconds(name: str, do: Callable[[], object]) -> object:
        start = time.process_time()
        result = do()
        steps[name] = time.process_time() - start
        return result

    run_and_record_cpu_seconds("hashes", lambda: near_duplicates.hash_images_perceptually(images))
    run_and_record_cpu_seconds("digests", lambda: digest_pixels_of_each_image(images))
    fingerprints = build_stored_fingerprints(images, labels)
    run_and_record_cpu_seconds(
        "within", lambda: find_label_contradictions_in_batch(fingerprints, lambda row: images[row])
    )
    with tempfile.TemporaryDirectory() as folder:
        paths = list(write_noisy_image_fingerprints(Path(folder), images))

        def find_contradictions_with_tasks() -> None:
            tasks = [(number, read_image_fingerprints(path)) for number, path in enumerate(paths)]
            add_label_contradictions_with_earlier_tasks(
                LabelContradictions(), fingerprints, tasks, lambda row: images[row]
            )

        run_and_record_cpu_seconds(f"behind {TASKS} tasks", find_contradictions_with_tasks)
    listed = ", ".join(f"{name} {seconds:.2f}" for name, seconds in steps.items())
    print(f"{len(images):,} images of CIFAR-100, CPU s: decoding PNG {decoding:.2f}; {listed}")


def write_noisy_image_fingerprints(folder: Path, images: Images) -> Iterator[Path]:
    """Write and yield image fingerprints of `TASKS` earlier tasks with noisy images."""
    random = np.random.default_rng(1)
    for number in range(TASKS):
        task_images = images[random.permutation(len(images))[:OF_TASK]].astype(np.int64)
        noisy = (
            (task_images + random.integers(-60, 60, task_images.shape))
            .clip(0, 255)
            .astype(np.uint8)
        )
        path = folder / str(number)
        write_image_fingerprints(
            path, build_stored_fingerprints(noisy, random.integers(0, 100, OF_TASK))
        )
        yield path


def build_stored_fingerprints(images: Images, labels: np.ndarray) -> ImageFingerprints:
    """Build the stored fingerprints of images, all in the training part."""
    classes = [str(number) for number in range(int(labels.max()) + 1)]
    names = [str(row) for row in range(len(images))]
    none = np.zeros((0, 2), np.uint64)
    return ImageFingerprints(
        near_duplicates.hash_images_perceptually(images),
        none,
        names,
        digest_pixels_of_each_image(images),
        labels.astype(np.int64),
        classes,
    )


def return_image_unchanged(image: Images, _random: np.random.Generator) -> Images:
    """Return the image unchanged."""
    return image


def recompress_or_resize_image(image: Images, random: np.random.Generator) -> Images:
    """Save an image as JPEG of random quality, or resize it and back, to make a near-duplicate."""
    plain = image[..., 0] if image.shape[-1] == 1 else image
    opened = Image.fromarray(plain)
    if random.random() < 0.5:
        out = io.BytesIO()
        opened.save(out, "JPEG", quality=int(random.integers(60, 96)))
        changed: Image.Image = Image.open(out)
    else:
        side = round(opened.width * random.uniform(0.7, 2))
        changed = opened.resize((side, side), Image.Resampling.BICUBIC).resize(
            opened.size, Image.Resampling.BICUBIC
        )
    return np.asarray(changed, np.uint8).reshape(image.shape)


def draw_burst_photos() -> Data:
    """Draw photo bursts: ten slightly different shots of each of 40 scenes."""
    random = np.random.default_rng(2)
    scenes = draw_smooth_scenes(random, 40)
    shots = [
        scene + random.normal(0, 3, scene.shape) + random.uniform(-10, 10)
        for scene in scenes
        for _ in range(10)
    ]
    return np.stack(shots).clip(0, 255).astype(np.uint8), np.repeat(np.arange(40), 10)


def draw_industrial_part_photos() -> Data:
    """Draw photos of industrial parts: 200 good and 200 scratched ones of the same shape."""
    random = np.random.default_rng(3)
    part = draw_smooth_scenes(random, 1)[0]
    images = (
        np.stack([part + random.normal(0, 3, part.shape) for _ in range(400)])
        .clip(0, 255)
        .astype(np.uint8)
    )
    for image in images[200:]:
        row, column = random.integers(4, 50, 2)
        image[row, column : column + 10] = 255
    return images, np.repeat([0, 1], 200)


def draw_smooth_scenes(random: np.random.Generator, count: int) -> list[Images]:
    """Draw smooth random pictures of 64 pixels."""
    scenes = []
    for _ in range(count):
        coarse = random.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        scenes.append(
            np.asarray(
                Image.fromarray(coarse).resize((64, 64), Image.Resampling.BICUBIC), np.float64
            )
        )
    return scenes


def encode_png(image: Images) -> bytes:
    """Encode an image as PNG."""
    out = io.BytesIO()
    Image.fromarray(image).save(out, "PNG")
    return out.getvalue()


def decode_png(data: bytes) -> Images:
    """Return the pixels of a PNG."""
    return np.asarray(Image.open(io.BytesIO(data)))


def read_cifar_images(folder: Path) -> Data:
    """Read the first `IMAGES` training images of CIFAR-100's classes 60 to 99."""
    images, labels, names = [], [], dict[str, int]()
    for path in sorted(folder.glob("classes_[6-9]*.zip")):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                part, *rest = name.split("/")
                if part == "train" and len(rest) == 2 and rest[1]:
                    images.append(archive.read(name))
                    labels.append(names.setdefault(rest[0], len(names)))
    rows = np.random.default_rng(0).permutation(len(images))[:IMAGES]
    return np.stack([decode_png(images[row]) for row in rows]), np.array(labels)[rows]


def read_mnist_images(folder: Path) -> Data:
    """Read the first `IMAGES` training images of MNIST."""
    images, labels = (
        read_idx_array(next(folder.glob(f"train-{kind}*"))) for kind in ("images", "labels")
    )
    return images[:IMAGES, :, :, None], labels[:IMAGES].astype(np.int64)


def read_digit_images() -> Data:
    """Return all digits of scikit-learn, 8 pixels a side."""
    digits = load_digits()
    return (digits.images * 15).astype(np.uint8)[..., None], digits.target.astype(np.int64)


if __name__ == "__main__":
    main()
