"""What OLOR adds to an optimizer step, and to a whole training step.

    python -m bench.methods.optimizer_step [--device cpu|cuda] [--rounds 30] [--batch 32]
        [--size 32]

A ResNet-18 takes steps on made-up images with SGD (momentum 0.9), Adam and AdamW: once with the
stock fused optimizer, once with OLOR around the same one. The two take turns on the same gradients;
what is compared is the medians. Two ratios are printed: of the optimizer step alone (stock = 1),
and of the training step (forward, backward and optimizer step), whose forward and backward are
timed once and are the same for both. The goal is on the training step: ≤ 1.10 on a CPU, ≤ 1.03 on a
GPU.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch.nn import functional

from core.learning.networks import HeadSpec, ImageSpec, Network, build_network
from core.learning.optimizers.build import NamedOptimizer
from core.learning.optimizers.olor import AnchoredParameter, compute_rollback_share_by_parameter
from core.learning.precision import move_network_to_device, use_training_precision
from core.learning.recipe import OlorRecipe, OptimizerRecipe

WARM = 3
GOALS = {"cpu": 1.10, "cuda": 1.03}


def main() -> None:
    """Print the time of optimizer steps with and without OLOR, relative to a training pass."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=tuple(GOALS), default="cpu")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=32, help="pixels a side")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    goal = GOALS[options.device]
    print(
        f"resnet18, {options.size} px, batch {options.batch}, {options.device}, {options.threads} "
        f"threads"
    )
    for name, lr in (("sgd", 0.01), ("adam", 1e-4), ("adamw", 1e-4)):
        recipe = OptimizerRecipe.model_validate({"name": name, "lr": lr, "schedule": "constant"})
        backward, stock, olor = measure_optimizer_step_seconds(
            recipe, device, options.rounds, options.batch, options.size
        )
        alone, training_ratio = olor / stock, (backward + olor) / (backward + stock)
        print(
            f"{name:6} optimizer step {stock * 1e3:.2f} ms, with OLOR {olor * 1e3:.2f} ms: ratio "
            f"{alone:.2f} "
            "  "
            f"training step {(backward + stock) * 1e3:.1f} ms, with OLOR "
            f"{(backward + olor) * 1e3:.1f} ms: ratio {training_ratio:.3f} (goal ≤ {goal:.2f})",
            flush=True,
        )


def measure_optimizer_step_seconds(
    recipe: OptimizerRecipe, device: torch.device, rounds: int, batch: int, size: int
) -> tuple[float, float, float]:
    """Measure median seconds of forward and backward pass, of an optimizer step, and of one with
    OLOR.
    """
    network = build_network(
        {"name": "resnet18"}, ImageSpec(size, 3), "class", HeadSpec(tuple("0123456789")), seed=0
    )
    move_network_to_device(network, device)
    network.train()
    x = torch.randn(batch, 3, size, size, device=device).to(memory_format=torch.channels_last)
    y = torch.arange(batch, device=device) % 10
    parameters = dict(network.named_parameters())
    stock = NamedOptimizer(recipe, parameters, 1)
    rolled = NamedOptimizer(recipe, parameters, 1, list_olor_anchors_of_backbone(network))

    def run_forward_and_backward() -> None:
        for parameter in parameters.values():
            parameter.grad = None
        with use_training_precision(device):
            loss = functional.cross_entropy(network(x), y)
        loss.backward()

    times: dict[Callable[[], None], list[float]] = {
        run_forward_and_backward: [],
        stock.step: [],
        rolled.step: [],
    }
    for number in range(WARM + rounds):
        # Who comes first after the backward pass finds other things in the caches: the two swap
        # places.
        steps = (stock.step, rolled.step) if number % 2 else (rolled.step, stock.step)
        for work in (run_forward_and_backward, *steps):
            seconds = measure_device_work_seconds(work, device)
            if number >= WARM:
                times[work].append(seconds)
    first, second, third = (statistics.median(durations) for durations in times.values())
    return first, second, third


def list_olor_anchors_of_backbone(network: Network) -> list[AnchoredParameter]:
    """Return OLOR anchors (present weights with rollback shares) for every backbone tensor."""
    parameters = dict(network.named_parameters())
    rollback_shares = compute_rollback_share_by_parameter(
        list(parameters), network.backbone.layer_prefixes, OlorRecipe(iota2=0.001)
    )
    return [
        AnchoredParameter(parameters[name], parameters[name].detach().clone(), iota)
        for name, iota in rollback_shares.items()
    ]


def measure_device_work_seconds(work: Callable[[], object], device: torch.device) -> float:
    """Measure the seconds of a function until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
