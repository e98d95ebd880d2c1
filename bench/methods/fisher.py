"""Seconds per 1,000 examples of the diagonal Fisher against the two usual ways, in the same run.

    python -m bench.methods.fisher [--rounds 5] [--threads 1]

`loop` is one forward and backward per example, `vmap` is torch.func's per-sample gradients in
chunks of 32; both square what they get, for one sampled class per example. Ours is measured on the
same images and also with the exact sum over the ten classes. The ways take turns; figures are
medians. Goal: at most 1.2 times the better of the two.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from core.learning.curvature.fisher import Kind, estimate_diagonal_fisher
from core.learning.curvature.per_sample import CHUNK
from core.learning.networks import HeadSpec, ImageSpec, Network, build_network

CLASSES = 10
GOAL = 1.2
CASES: dict[str, tuple[dict[str, Any], ImageSpec, int]] = {
    "mlp": ({"name": "mlp", "hidden": [400, 400]}, ImageSpec(28, 1), 256),
    "resnet20": ({"name": "resnet20"}, ImageSpec(32, 3), 64),
}


def main() -> None:
    """Print the seconds of three ways to compute the diagonal Fisher information."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name, (architecture, image, n) in CASES.items():
        heads = HeadSpec(tuple(str(c) for c in range(CLASSES)))
        network = build_network(architecture, image, "class", heads, seed=0).eval()
        generator = torch.Generator().manual_seed(0)
        assert network.head is not None
        with torch.no_grad():
            for parameter in (network.head.weight, network.head.bias):
                parameter.normal_(std=0.1, generator=generator)
        x = torch.randn(n, image.channels, image.size, image.size, generator=generator)
        ways: dict[str, Callable[[], object]] = {
            "loop": partial(compute_fisher_by_loop, network, x),
            "vmap": partial(compute_fisher_by_vmap, network, x),
            "ours": partial(compute_fisher_by_service_code, network, x, "sample"),
            "ours, exact": partial(compute_fisher_by_service_code, network, x, "exact"),
        }
        took: dict[str, list[float]] = {way: [] for way in ways}
        for lap in range(options.rounds + 1):
            for way, run in ways.items():
                start = time.perf_counter()
                run()
                if lap:  # the first one warms up
                    took[way].append((time.perf_counter() - start) * 1000 / n)
        middle = {way: statistics.median(durations) for way, durations in took.items()}
        best = min(middle["loop"], middle["vmap"])
        figures = "   ".join(f"{way} {seconds:.3f} s" for way, seconds in middle.items())
        print(f"{name:9} {figures}   ratio {middle['ours'] / best:.2f} (goal ≤ {GOAL})", flush=True)


def compute_fisher_by_service_code(network: Network, x: Tensor, kind: Kind) -> dict[str, Tensor]:
    """Compute the diagonal Fisher information by the service's code."""
    y = torch.zeros(len(x), dtype=torch.int64)
    names = [name for name, _ in network.named_parameters()]
    examples = zip(x.split(CHUNK), y.split(CHUNK), strict=True)
    return estimate_diagonal_fisher(
        network, network, names, examples, kind=kind, generator=torch.Generator().manual_seed(0)
    )


def compute_fisher_by_loop(network: Network, x: Tensor) -> list[Tensor]:
    """Compute the diagonal Fisher information with one backward pass per example."""
    parameters = list(network.parameters())
    total = [torch.zeros_like(p, requires_grad=False) for p in parameters]
    for one in x.split(1):
        log_p = network(one).log_softmax(1)
        drawn = torch.multinomial(log_p.detach().exp(), 1)
        for t, grad in zip(
            total, torch.autograd.grad(log_p.gather(1, drawn).sum(), parameters), strict=True
        ):
            t += grad.square()
    return total


def compute_fisher_by_vmap(network: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """Compute the diagonal Fisher information by torch.func in chunks."""
    parameters = {name: p.detach() for name, p in network.named_parameters()}
    total = {name: torch.zeros_like(p) for name, p in parameters.items()}

    def compute_log_probability(params: dict[str, Tensor], one: Tensor, y: Tensor) -> Tensor:
        logits = torch.func.functional_call(network, params, (one[None],))
        return -functional.cross_entropy(logits, y[None])

    gradients = torch.func.vmap(torch.func.grad(compute_log_probability), in_dims=(None, 0, 0))
    for chunk in x.split(CHUNK):
        with torch.no_grad():
            drawn = torch.multinomial(network(chunk).softmax(1), 1).squeeze(1)
        for name, grad in gradients(parameters, chunk, drawn).items():
            total[name] += grad.square().sum(0)
    return total


if __name__ == "__main__":
    main()
