r"""What linearising a network costs, beside the plain network in the same run.

    python -m bench.methods.dlcft_cost [--networks resnet18 slim-resnet18] [--device cpu|cuda] \
        [--rounds 5] [--batch 16]

The plain network is the edited one (LeakyReLU, norms folded) with all its weights moving; the
linearised one is its expansion around the same weights. Printed as ratios: floating-point
operations and seconds of a forward pass and of a training step (forward and backward, by dual
numbers and by torch.func.jvp), the penalty's gradient, and a curvature pass over as many images
(one probe each); and the megabytes of activations that each kind of step keeps for its backward
pass, and what a version stores. The kinds take turns; seconds are medians. Theory: forward 3.0,
training step 5/3; goal for the step ≤ 1.70.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from bench.methods.optimizer_step import measure_device_work_seconds
from core.learning.curvature.curvature import LayerCurvatures
from core.learning.curvature.estimate import CurvatureEstimator, Kind
from core.learning.curvature.fisher import draw_rademacher_cotangents
from core.learning.curvature.layers import list_layers_owning_parameters
from core.learning.methods.squared_loss import compute_squared_errors
from core.learning.networks import HeadSpec, ImageSpec, build_network
from core.learning.networks.linear.linearised import LinearisedNetwork
from core.learning.precision import move_network_to_device, use_training_precision

CLASSES = 10
GOAL = 1.70
KINDS: tuple[Kind, ...] = ("diagonal", "kfac", "tkfac")


class LinearisationCostSubject:
    """A network in plain and linearised form, with images for a step, to compare their cost."""

    def __init__(self, name: str, device: torch.device, batch: int, size: int) -> None:
        heads = HeadSpec(tuple(str(c) for c in range(CLASSES)))
        plain = build_network({"name": name}, ImageSpec(size, 3), "class", heads, seed=0)
        self.network = LinearisedNetwork(plain, slope=0.01, fixed_head=False, frozen=True).eval()
        move_network_to_device(self.network, device)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for p in (
                *self.network.displacement.parameters(),
                self.network.get_learned_head_rows(),
            ):
                p.copy_(torch.randn(p.shape, generator=generator) * 0.01)
        self.device = device
        self.x = torch.randn(batch, 3, size, size, generator=generator).to(device)
        self.x = self.x.to(memory_format=torch.channels_last)
        self.y = (torch.arange(batch) % CLASSES).to(device)
        self.weights = list(self.network.backbone.parameters())
        self.psi = list(self.network.displacement.parameters())

    def compute_plain_logits(self, x: Tensor) -> Tensor:
        """Compute the logits of the plain network."""
        return self.network.logits(self.network.backbone(x))

    def compute_logits_by_jvp(self, x: Tensor) -> Tensor:
        """Compute the logits of the linearised network by forward-mode differentiation."""
        value, tangent = self.network.expand_by_forward_mode(x)
        return self.network.logits(value + tangent)

    def run_forward_and_backward_pass(
        self, logits: Callable[[Tensor], Tensor], moving: list[torch.nn.Parameter]
    ) -> None:
        """Run forward and backward pass with gradients of the trained weights; update none."""
        for p in (*self.weights, *self.psi):
            p.grad = None
            p.requires_grad_(False)
        for p in moving:
            p.requires_grad_(True)
        with use_training_precision(self.device):
            loss = compute_squared_errors(logits(self.x), self.y, 15.0).mean()
        loss.backward()

    def estimate_curvature(self, kind: Kind) -> CurvatureEstimator:
        """Estimate the network's curvature from the images, and return the estimator."""
        backbone = self.network.backbone
        layers = list_layers_owning_parameters(
            backbone, [name for name, _ in backbone.named_parameters()]
        )
        estimator = CurvatureEstimator(
            backbone, self.network.compute_frozen_logits, dict.fromkeys(layers, kind)
        )
        estimator.add_examples(
            self.x,
            lambda outputs: draw_rademacher_cotangents(
                outputs, 1, torch.Generator().manual_seed(0)
            ),
        )
        return estimator


def main() -> None:
    """Print tables of operations, memory, bytes and seconds of the method DLCFT."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="+", default=["resnet18", "slim-resnet18"])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=32, help="pixels a side")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name in options.networks:
        print(
            f"{name}, {options.size} px, batch {options.batch}, {options.device}, "
            f"{options.threads} threads"
        )
        subject = LinearisationCostSubject(
            name, torch.device(options.device), options.batch, options.size
        )
        for line in (
            *render_dlcft_operations_table(subject),
            *render_backward_pass_memory_table(subject),
            *render_version_size_table(subject),
            *render_pass_seconds_table(subject, options.rounds),
        ):
            print(f"  {line}", flush=True)


def render_dlcft_operations_table(subject: LinearisationCostSubject) -> list[str]:
    """Render a table of floating-point operations of each pass, relative to the plain network."""

    def count_flops(work: Callable[[], object]) -> int:
        with FlopCounterMode(display=False) as counter:
            work()
        return int(counter.get_total_flops())

    def make_work_without_graph(logits: Callable[[Tensor], Tensor]) -> Callable[[], object]:
        def compute_without_graph() -> None:
            with torch.no_grad():
                logits(subject.x)

        return compute_without_graph

    forward = count_flops(make_work_without_graph(subject.compute_plain_logits))
    step = count_flops(
        lambda: subject.run_forward_and_backward_pass(subject.compute_plain_logits, subject.weights)
    )
    ours = count_flops(make_work_without_graph(subject.network.forward))
    linear = count_flops(
        lambda: subject.run_forward_and_backward_pass(subject.network.forward, subject.psi)
    )
    return [
        f"operations  forward {forward / 1e9:.1f} G, linearised {ours / 1e9:.1f} G: ratio "
        f"{ours / forward:.2f}   "
        f"step {step / 1e9:.1f} G, linearised {linear / 1e9:.1f} G: ratio {linear / step:.2f}"
    ]


def render_backward_pass_memory_table(subject: LinearisationCostSubject) -> list[str]:
    """Render a table of the memory that a training step keeps for its backward pass."""
    network = subject.network
    saved_bytes = {
        "plain": count_bytes_saved_by_autograd(
            subject, subject.compute_plain_logits, subject.weights
        ),
        "by jvp": count_bytes_saved_by_autograd(
            subject, subject.compute_logits_by_jvp, subject.psi
        ),
        "by dual numbers": count_bytes_saved_by_autograd(subject, network.forward, subject.psi),
    }
    return [
        "kept for the backward pass, MB: "
        + ", ".join(f"{k} {v / 1e6:.1f}" for k, v in saved_bytes.items())
    ]


def count_bytes_saved_by_autograd(
    subject: LinearisationCostSubject,
    logits: Callable[[Tensor], Tensor],
    moving: list[torch.nn.Parameter],
) -> int:
    """Return the bytes of activations that autograd saves for the backward pass."""
    parameter_addresses = {p.untyped_storage().data_ptr() for p in subject.network.parameters()}
    bytes_by_address: dict[int, int] = {}
    saved_tensors: list[Tensor] = []  # so that no storage is freed and its address given to another

    def record_saved_tensor(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameter_addresses:
            bytes_by_address[storage.data_ptr()] = storage.nbytes()
            saved_tensors.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(record_saved_tensor, lambda tensor: tensor):
        subject.run_forward_and_backward_pass(logits, moving)
    return sum(bytes_by_address.values())


def render_version_size_table(subject: LinearisationCostSubject) -> list[str]:
    """Render a table of the bytes that versions store: frozen backbone once, the rest per version."""
    blocks = {kind: subject.estimate_curvature(kind) for kind in KINDS}
    stored_bytes = {
        "base, once": _sum_tensor_bytes(subject.weights),
        "displacement": _sum_tensor_bytes(subject.psi),
    }
    stored_bytes |= {
        f"curvature, {kind}": sum(b.nbytes for b in e.build_curvature_blocks().values())
        for kind, e in blocks.items()
    }
    for share in (0.51, 0.26):  # of the largest factor: packed triangles, then in bfloat16
        limit = int(
            share * max(max(t.nbytes for t in e.to_tensors().values()) for e in blocks.values())
        )
        packed = sum(b.nbytes for b in blocks["tkfac"].build_curvature_blocks(limit).values())
        stored_bytes[f"tkfac with max_factor_bytes {limit}"] = packed
    return [
        "MB stored: " + ", ".join(f"{name} {size / 1e6:.2f}" for name, size in stored_bytes.items())
    ]


def _sum_tensor_bytes(tensors: Sequence[Tensor]) -> int:
    return sum(t.nbytes for t in tensors)


def render_pass_seconds_table(subject: LinearisationCostSubject, rounds: int) -> list[str]:
    """Render a table of the median seconds of each pass, relative to the plain network."""
    network = subject.network
    curvature = {
        kind: LayerCurvatures(subject.estimate_curvature(kind).build_curvature_blocks())
        for kind in KINDS
    }
    moved = {name: p.detach() for name, p in network.displacement.named_parameters()}
    ways: dict[str, Callable[[], object]] = {
        "forward": lambda: subject.compute_plain_logits(subject.x),
        "linearised forward": lambda: network(subject.x),
        "step": lambda: subject.run_forward_and_backward_pass(
            subject.compute_plain_logits, subject.weights
        ),
        "linearised step": lambda: subject.run_forward_and_backward_pass(
            network.forward, subject.psi
        ),
        "jvp step": lambda: subject.run_forward_and_backward_pass(
            subject.compute_logits_by_jvp, subject.psi
        ),
    }
    for kind in KINDS:
        ways[f"penalty, {kind}"] = lambda kind=kind: curvature[kind].compute_penalty_and_gradient(
            moved
        )  # type: ignore[misc]
        ways[f"curvature pass, {kind}"] = lambda kind=kind: subject.estimate_curvature(kind)  # type: ignore[misc]
    took: dict[str, list[float]] = {way: [] for way in ways}
    for lap in range(rounds + 1):
        for way, work in ways.items():
            with torch.set_grad_enabled("forward" not in way):
                spent = measure_device_work_seconds(work, subject.device)
            if lap:  # the first one warms up
                took[way].append(spent)
    middle = {way: statistics.median(seconds) for way, seconds in took.items()}
    forward, step = middle["forward"], middle["step"]
    lines = [
        f"seconds     forward {forward * 1e3:.1f} ms, linearised ratio "
        f"{middle['linearised forward'] / forward:.2f}",
        f"            step {step * 1e3:.1f} ms, linearised ratio "
        f"{middle['linearised step'] / step:.2f} (goal ≤ {GOAL:.2f}), by jvp "
        f"{middle['jvp step'] / step:.2f}",
    ]
    for what in ("penalty", "curvature pass"):
        each = ", ".join(f"{kind} {middle[f'{what}, {kind}'] / step:.2f}" for kind in KINDS)
        lines.append(f"            {what} over a plain step: {each}")
    return lines


if __name__ == "__main__":
    main()
