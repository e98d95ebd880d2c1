"""Costs of a classifier in closed form beside the pass that it needs, and those of a version of it
stores.

    python -m bench.research.analytic_cost [--images 1000] [--classes 10] [--threads 1]

The features are those of a ResNet-18 (D = 512) on made-up images of 32 pixels; what they are does
not change the time. Printed are, without random features and with 1,000: seconds of the forward
pass, of the sums over its features, and of the solve with its choice of a strength; (pass + sums +
solve) ÷ pass, each measured apart (goal 1.3); and bytes that a version adds. Then the same solve
for 2,049 columns and 100 classes, in seconds, with the memory that it takes in square matrices of
float64 (the estimate of a job's memory counts `SOLVING` of them).
"""

import argparse
import os
import resource
import time
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from core.admission.admission import SOLVING
from core.learning.analytic import ridge
from core.learning.analytic.linear import (
    append_column_of_ones,
    draw_projection_matrix,
    project_to_random_features,
)
from core.learning.analytic.sums import FeatureSums
from core.learning.networks import HeadSpec, ImageSpec, build_network

BATCH, SIZE, GOAL = 256, 32, 1.3
LARGE, LARGE_CLASSES = 2049, 100
Found = TypeVar("Found")


def main() -> None:
    """Measure CPU seconds of learning by closed-form solutions, and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    print(f"load of the machine {os.getloadavg()[0]:.1f}, {args.threads} threads")
    print_large_closed_form_solve_cost()  # first, while nothing else has taken memory
    features, passed = compute_features_and_cpu_seconds(args.images)
    labels = torch.arange(args.images) % args.classes
    for columns in (0, 1000):
        print_sums_and_solve_cost(features, labels, args.classes, columns, passed)


def compute_features_and_cpu_seconds(images: int) -> tuple[Tensor, float]:
    """Compute features float32 [N, 512] of images, and the CPU seconds that it takes."""
    network = build_network({"name": "resnet18"}, ImageSpec(SIZE, 3), "class", HeadSpec(), 1).eval()
    x = torch.randn(images, 3, SIZE, SIZE)
    with torch.inference_mode():
        network.features(x[:BATCH])  # the first pass makes its plans
        return call_and_measure_cpu_seconds(
            lambda: torch.cat([network.features(part) for part in x.split(BATCH)])
        )


def print_sums_and_solve_cost(
    features: Tensor, labels: Tensor, classes: int, projection: int, passed: float
) -> None:
    """Measure the CPU seconds to accumulate sums over one task and to solve for the head."""
    drawn = draw_projection_matrix(projection, features.shape[1], 0) if projection else None

    def build_feature_sums() -> FeatureSums:
        h = (
            append_column_of_ones(features)
            if drawn is None
            else project_to_random_features(features, drawn)
        )
        sums = FeatureSums.make_empty_sums(h.shape[1], classes)
        sums.add_examples(h, labels)
        return sums

    sums, added = call_and_measure_cpu_seconds(build_feature_sums)
    (_, weight), solved = call_and_measure_cpu_seconds(
        lambda: ridge.choose_ridge_strength_and_solve(sums)
    )
    ratio = (passed + added + solved) / passed
    stored = sum(t.nbytes for t in sums.to_tensors().values()), weight.float().nbytes
    print(
        f"D = {features.shape[1]}, projection {projection}, {len(labels):,} images, {classes} "
        f"classes: pass {passed:.2f} s, sums {added:.2f} s, solve {solved:.2f} s, ratio "
        f"{ratio:.2f} (goal {GOAL}); a version adds {stored[0]:,} bytes of sums and {stored[1]:,} "
        f"of its classifier"
    )


def print_large_closed_form_solve_cost() -> None:
    """Measure the CPU seconds of a closed-form solve with many features and classes."""
    labels = torch.arange(3 * LARGE) % LARGE_CLASSES
    sums = FeatureSums.make_empty_sums(LARGE, LARGE_CLASSES)
    for part in labels.split(BATCH):  # few at once: what the solve takes is to be the peak
        sums.add_examples(append_column_of_ones(torch.randn(len(part), LARGE - 1)), part)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _, chosen = call_and_measure_cpu_seconds(lambda: ridge.choose_ridge_strength_and_solve(sums))
    above = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / (8 * LARGE**2)
    _, solved = call_and_measure_cpu_seconds(lambda: ridge.solve_ridge_regression(sums, 1.0))
    print(
        f"{LARGE:,} columns, {LARGE_CLASSES} classes: {chosen:.2f} s with the choice of a "
        f"strength, {solved:.2f} s at a given one; {above + 1:.1f} square matrices at most, G "
        f"among them ({SOLVING} are counted)"
    )


def call_and_measure_cpu_seconds(run: Callable[[], Found]) -> tuple[Found, float]:
    """Call a function; return its result and the CPU seconds it took."""
    start = time.process_time()
    result = run()
    return result, time.process_time() - start


if __name__ == "__main__":
    main()
