"""Seconds of one core that a pass over an image takes on each base that comes by name.

    python -m bench.service.passes [--runs 5]

The least of several runs, in processor time of one thread, with and without gradients: what
`core/recipe/duration_estimate.py` expects of a batch before anything was measured.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from core.learning.networks import ImageSpec, build_initialised_backbone
from core.packaged import imagenet_base, packaged_base
from core.recipe.duration_estimate import PASSES

IMAGES = 16


def main() -> None:
    """Print the seconds to predict or learn one image, for each base and image size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    torch.set_num_threads(1)
    architectures = {
        imagenet_base.NAME: imagenet_base.ARCHITECTURE,
        packaged_base.PACKAGED: packaged_base.load_packaged_base_description().architecture,
    }
    for name, passes in PASSES.items():
        for measured_pass in passes:
            image = ImageSpec(measured_pass.size, 3)
            network = build_initialised_backbone(
                architectures[name], image, torch.Generator().manual_seed(0)
            ).eval()
            images = torch.randn(IMAGES, 3, measured_pass.size, measured_pass.size)
            forward = _measure_cpu_seconds_per_image(
                partial(_run_forward_without_gradients, network, images), runs
            )
            training = _measure_cpu_seconds_per_image(
                partial(_run_forward_and_backward, network, images), runs
            )
            print(
                f"{name} at {measured_pass.size} px: {forward:.4f} s answered, {training:.4f} s learned"
            )


def _run_forward_without_gradients(network: Callable[[Tensor], Tensor], images: Tensor) -> None:
    with torch.no_grad():
        network(images)


def _run_forward_and_backward(network: Callable[[Tensor], Tensor], images: Tensor) -> None:
    network(images).square().sum().backward()


def _measure_cpu_seconds_per_image(run: Callable[[], object], runs: int) -> float:
    """Return the smallest CPU time per image over several runs, after a warm-up."""
    run()
    cpu_seconds = []
    for _ in range(runs):
        begin = time.process_time()
        run()
        cpu_seconds.append(time.process_time() - begin)
    return min(cpu_seconds) / IMAGES


if __name__ == "__main__":
    main()
