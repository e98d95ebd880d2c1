"""The product's training loop beside plain PyTorch on one device: the same network, batches and
optimizer.

Bare loops hold uint8 images on the device, pick rows, scale them and train in the product's number
format, in channels_last where there are convolutions. Images are not augmented on either side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional

from bench.gpu.kit import (
    Bench,
    TrainingStepClock,
    create_job_bench,
    open_torch_device,
    wait_for_device,
)
from bench.gpu.step_run import GpuCheckStepRun
from core.ingest.dataset import memory_map_image_dataset
from core.learning.data import dataset
from core.learning.networks import HeadSpec, ImageSpec, Network, build_network
from core.learning.precision import InputNormaliser, move_network_to_device, use_training_precision

LR, MOMENTUM = 0.01, 0.9
GRAPH_WARM = 3
"""Steps on a side stream before a capture, as torch asks for."""


@dataclass(frozen=True)
class TrainingLoopLoad:
    """A workload to measure training loops on: network, image size, number of images, batch size."""

    architecture: str
    size: int
    batch: int
    images: int
    warm: int
    steps: int


TINY = TrainingLoopLoad("small-cnn", 8, 8, 32, 1, 2)


def record_resnet20_training_rates(run: GpuCheckStepRun) -> None:
    """Measure the training loops on ResNet-20 at 32 pixels."""
    _record_training_loop_rates(run, TrainingLoopLoad("resnet20", 32, 128, 2560, 10, 50))


def record_resnet18_training_rates(run: GpuCheckStepRun) -> None:
    """Measure the training loops on ResNet-18 at 32 pixels."""
    _record_training_loop_rates(run, TrainingLoopLoad("resnet18", 32, 256, 5120, 10, 50))


def record_resnet50_training_rates(run: GpuCheckStepRun) -> None:
    """Measure the training loops on ResNet-50 at 224 pixels."""
    _record_training_loop_rates(run, TrainingLoopLoad("resnet50", 224, 128, 512, 5, 25))


def record_vit_training_rates(run: GpuCheckStepRun) -> None:
    """Measure the training loops on ViT-B/16 at 224 pixels."""
    _record_training_loop_rates(run, TrainingLoopLoad("vit_b_16", 224, 128, 512, 5, 25))


def record_compiled_training_rates(run: GpuCheckStepRun) -> None:
    """Record images per second of a plain training loop on ResNet-20, with and without
    torch.compile.
    """
    device = open_torch_device(run.device)
    load = TrainingLoopLoad("resnet20", 32, 128, 2560, 10, 50)
    bench = create_job_bench(
        run.folder, run.device, {"name": load.architecture}, size=load.size, n=load.images
    )
    rates: dict[str, float] = {}
    for name, compiled in (("bare", False), ("bare, compiled", True)):
        seconds = measure_plain_step_seconds(bench, load, device, compiled=compiled)
        rates[name] = round(load.batch / seconds, 1)
        run.record_measurement("images per second", rates)


def _record_training_loop_rates(run: GpuCheckStepRun, load: TrainingLoopLoad) -> None:
    """Record the images per second of each kind of training loop on a workload."""
    device = open_torch_device(run.device)
    load = TINY if run.tiny else load
    run.record_measurement("load", vars(load))
    bench = create_job_bench(
        run.folder, run.device, {"name": load.architecture}, size=load.size, n=load.images
    )
    bench.dataset(1, "train")
    ways: dict[str, Callable[[], float]] = {
        "product": lambda: measure_job_step_seconds(bench, load, device),
        "product, not deterministic": lambda: measure_job_step_seconds(
            bench, load, device, deterministic=False
        ),
        "product, images on the host": lambda: measure_job_step_seconds(
            bench, load, device, on_host=True, deterministic=False
        ),
        "bare": lambda: measure_plain_step_seconds(bench, load, device),
        "bare, images on the host": lambda: measure_plain_step_seconds(
            bench, load, device, on_host=True
        ),
        "bare, CUDA graph": lambda: measure_graphed_step_seconds(bench, load, device),
    }
    if device.type != "cuda":
        run.record_measurement("left out", "CUDA graph: it is measured on CUDA alone")
        del ways["bare, CUDA graph"]
    rates: dict[str, float] = {}
    for name, way in ways.items():
        try:
            rates[name] = round(load.batch / way(), 1)
        except Exception as error:  # noqa: BLE001 - the other ways are measured
            run.record_problem(f"{name}: {type(error).__name__}: {error}"[:300])
        run.record_measurement("images per second", rates)
    if "bare" in rates:
        run.record_measurement(
            "over bare", {name: round(rate / rates["bare"], 3) for name, rate in rates.items()}
        )


def measure_job_step_seconds(
    bench: Bench,
    load: TrainingLoopLoad,
    device: torch.device,
    *,
    on_host: bool = False,
    deterministic: bool = True,
) -> float:
    """Measure the seconds per training step of a job, as a worker runs it."""
    epochs = -(-(load.warm + load.steps) * load.batch // load.images) + 1
    optimizer = {"lr": LR, "schedule": "constant"}
    spec = bench.spec(
        1,
        None,
        method="finetune",
        epochs=epochs,
        batch_size=load.batch,
        augment="none",
        deterministic=deterministic,
        optimizer=optimizer,
    )
    clock = TrainingStepClock(device, load.warm, load.steps)
    # As for images that would take more than half of the device's free memory.
    share = 0.0 if on_host else dataset.DEVICE_SHARE
    with mock.patch.object(dataset, "DEVICE_SHARE", share):
        bench.learn(spec, clock)
    return clock.mean_step_seconds


class PlainTrainingStep:
    """A network with a minimal training step on uint8 images, as a reference for speed."""

    def __init__(
        self, load: TrainingLoopLoad, device: torch.device, classes: int, compiled: bool = False
    ) -> None:
        names = tuple(str(label) for label in range(classes))
        image = ImageSpec(load.size, 3)
        network = build_network(
            {"name": load.architecture}, image, "class", HeadSpec(names), seed=0
        )
        move_network_to_device(network, device)
        network.train()
        self._device = device
        self._inputs = InputNormaliser(None, 3, device)
        self._network: Network | Callable[[Tensor], Tensor] = (
            torch.compile(network) if compiled else network
        )
        fused = device.type == "cuda"
        self._optimizer = torch.optim.SGD(
            network.parameters(), lr=LR, momentum=MOMENTUM, fused=fused
        )

    def __call__(self, images: Tensor, labels: Tensor) -> None:
        """Take one step."""
        self._optimizer.zero_grad(set_to_none=True)
        with use_training_precision(self._device):
            logits = self._network(self._inputs(images))
        functional.cross_entropy(logits.float(), labels).backward()
        self._optimizer.step()


def measure_plain_step_seconds(
    bench: Bench,
    load: TrainingLoopLoad,
    device: torch.device,
    *,
    on_host: bool = False,
    compiled: bool = False,
) -> float:
    """Measure the seconds of a minimal training step."""
    step = PlainTrainingStep(load, device, len(bench.task_classes(1)), compiled)
    batches = _iterate_random_batches(bench, load, device, on_host)
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False):
        return _measure_step_seconds(lambda: step(*next(batches)), load, device)


def measure_graphed_step_seconds(
    bench: Bench, load: TrainingLoopLoad, device: torch.device
) -> float:
    """Measure the seconds of a training step replayed from one CUDA graph."""
    step = PlainTrainingStep(load, device, len(bench.task_classes(1)))
    batches = _iterate_random_batches(bench, load, device, on_host=False)
    images, labels = (tensor.clone() for tensor in next(batches))
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(GRAPH_WARM):
                step(images, labels)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step(images, labels)

        def replay_graph() -> None:
            next_images, next_labels = next(batches)
            images.copy_(next_images)
            labels.copy_(next_labels)
            graph.replay()

        return _measure_step_seconds(replay_graph, load, device)


def _iterate_random_batches(
    bench: Bench, load: TrainingLoopLoad, device: torch.device, on_host: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield random image batches on the device without end."""
    pixels, targets = memory_map_image_dataset(bench.dataset(1, "train"))
    images, labels = torch.from_numpy(pixels.copy()), torch.from_numpy(targets.copy()).to(device)
    if not on_host:
        images = images.to(device)
    pin = on_host and device.type == "cuda"
    while True:
        for rows in torch.randperm(len(images)).split(load.batch):
            at = rows.to(device)
            if on_host:
                picked = images.index_select(0, rows)
                picked = (picked.pin_memory() if pin else picked).to(device, non_blocking=True)
            else:
                picked = images.index_select(0, at)
            yield picked, labels.index_select(0, at)


def _measure_step_seconds(
    step: Callable[[], Any], load: TrainingLoopLoad, device: torch.device
) -> float:
    """Measure the mean seconds per training step, without waiting for the device in between."""
    for _ in range(load.warm):
        step()
    wait_for_device(device)
    start = time.perf_counter()
    for _ in range(load.steps):
        step()
    wait_for_device(device)
    return (time.perf_counter() - start) / load.steps
