"""Shifts and flips of images in host memory, against the lookup of each pixel that they replaced.

    python -m bench.methods.augmentation [--rounds 20] [--batch 32]

The two take turns on the same made-up images and give the same bytes. Printed are the medians and
their ratio (old / new: above 1 is faster).
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from core.learning.data.augment import Augmentation, draw_epoch_random_numbers
from core.learning.data.augment import _shift_and_flip_images_by_lookup as moved_by_pixel

SIZES = ((28, 1), (32, 3), (64, 3), (96, 3), (224, 3))
IMAGES = 256


def main() -> None:
    """Print the time to augment a batch by the service's code and by pixel look-up, by image size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for size, channels in SIZES:
        for name in ("shift", "shift-flip"):
            old, new = measure_augmentation_seconds(
                name, size, channels, options.batch, options.rounds
            )
            print(
                f"{size:3} px, {channels} channels, {name:10} batch {options.batch}: pixel by "
                f"pixel {old * 1e3:6.2f} ms, now {new * 1e3:6.2f} ms, ratio {old / new:.1f}",
                flush=True,
            )


def measure_augmentation_seconds(
    name: str, size: int, channels: int, batch: int, rounds: int
) -> tuple[float, float]:
    """Measure the median seconds to augment a batch: pixel by pixel, and as implemented."""
    images = torch.randint(0, 256, (IMAGES, size, size, channels), dtype=torch.uint8)
    table = draw_epoch_random_numbers(0, 1, 0, IMAGES)[:batch, 1:]
    index, augment = torch.randperm(IMAGES)[:batch], Augmentation(name, size)

    def augment_by_pixel_lookup() -> Tensor:
        offsets = (table[:, :2] * (2 * augment.shift + 1)).floor_().long().sub_(augment.shift)
        flips = table[:, 2] < 0.5 if augment.flip else None
        return moved_by_pixel(images, index, offsets, flips)

    def augment_as_implemented() -> Tensor:
        return augment(images, index, table)

    assert torch.equal(augment_by_pixel_lookup(), augment_as_implemented())
    times: dict[Callable[[], Tensor], list[float]] = {
        augment_by_pixel_lookup: [],
        augment_as_implemented: [],
    }
    for _ in range(rounds):
        for call, seconds in times.items():
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
    return statistics.median(times[augment_by_pixel_lookup]), statistics.median(
        times[augment_as_implemented]
    )


if __name__ == "__main__":
    main()
