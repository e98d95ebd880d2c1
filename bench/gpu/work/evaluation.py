"""Answers of one network on the CPU and on the device, with TF32 and without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from bench.gpu.kit import create_job_bench, open_torch_device
from bench.gpu.step_run import GpuCheckStepRun
from core.learning.data.dataset import Dataset
from core.learning.evaluation.evaluate import compute_task_logits
from core.learning.networks import HeadSpec, ImageSpec, Network, build_network
from core.learning.precision import InputNormaliser, move_network_to_device

CLASSES = 100
TOLERANCE = 1e-3
"""Of float32 against float32: relative distance of logits. With TF32 it is above."""


def record_logit_differences_from_cpu(run: GpuCheckStepRun) -> None:
    """Record how far logits and predictions on the device differ from those on the CPU.

    `evaluate`: by the product, whatever torch's settings are, which must stay below `TOLERANCE`.
    `bare`: by the network alone under the same settings.
    """
    device = open_torch_device(run.device)
    size, images = (8, 16) if run.tiny else (32, 1000)
    bench = create_job_bench(run.folder, "cpu", {"name": "resnet18"}, size=size, n_held_out=images)
    names = tuple(str(c) for c in range(CLASSES))
    data = Dataset.read_dataset_file(bench.dataset(1, "held_out"), names)
    architecture = {"name": "resnet20"} if run.tiny else {"name": "resnet18"}
    network = build_network(architecture, ImageSpec(size, 3), "class", HeadSpec(names), seed=0)
    assert network.head is not None
    with torch.no_grad():
        for row in network.head.parameters():
            row.copy_(torch.randn(row.shape, generator=torch.Generator().manual_seed(1)))
    expected = compute_logits_as_service_evaluates(network, data, torch.device("cpu"))
    move_network_to_device(network, device)
    for tf32 in (True, False):
        with allow_or_forbid_tf32(tf32):
            for name, logits in (
                ("evaluate", compute_logits_as_service_evaluates(network, data, device)),
                ("bare", compute_logits_by_plain_forward(network, data, device)),
            ):
                apart = float((logits - expected).norm() / expected.norm())
                differing_count = int((logits.argmax(1) != expected.argmax(1)).sum())
                title = f"{name}, TF32 {'on' if tf32 else 'off'}"
                run.record_measurement(
                    title, {"distance": apart, "other answers": differing_count, "of": len(data)}
                )
                if name == "evaluate" and not apart < TOLERANCE:
                    run.record_problem(
                        f"{title}: logits are {apart:.1e} from the CPU's, not below {TOLERANCE:.0e}"
                    )


def compute_logits_as_service_evaluates(
    network: Network, data: Dataset, device: torch.device
) -> Tensor:
    """Compute logits on a device as the service's evaluation does."""
    logits = compute_task_logits(
        network, data, 1, lambda n, x, head: n(x, head), InputNormaliser(None, 3, device)
    )
    return logits.values


def compute_logits_by_plain_forward(
    network: Network, data: Dataset, device: torch.device
) -> Tensor:
    """Compute logits on a device by a plain forward pass, and return them on the CPU."""
    with torch.inference_mode():
        return network.eval()(InputNormaliser(None, 3, device)(data.images)).float().cpu()  # type: ignore[no-any-return]


@contextmanager
def allow_or_forbid_tf32(on: bool) -> Iterator[None]:
    """Allow or forbid TF32 for float32 products and convolutions, within the block."""
    matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = matmul.fp32_precision, conv.fp32_precision
    matmul.fp32_precision = conv.fp32_precision = "tf32" if on else "ieee"
    try:
        yield
    finally:
        matmul.fp32_precision, conv.fp32_precision = before
