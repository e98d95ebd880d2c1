r"""DLCFT through HTTP in all three scenarios, on a base that is trained and uploaded here, beside
finetune.

    python -m bench.research.dlcft_http --data DIR [--epochs 10] [--images 150] \
        [--architecture small-cnn] [--scenarios …]

A small network with LeakyReLU learns the MNIST digits 6 to 9 with plain PyTorch and is uploaded as
a base. From it models learn three tasks each of the digits 0 to 5: in the data scenario all six,
turned by 0, 20 and 40 degrees; in the task and class scenarios two new digits at a time. Each
stream is learned by `dlcft` and by `finetune` from the same base. Printed are the accuracy
matrices, the forecast of every update beside the rise that was measured on held-out images, in
units of the squared error, and what a version's parts take. The first line says how the base does
on its own digits.

DIR holds `mnist/` with the four idx files. Some minutes on two cores.
"""

import argparse
import io
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from safetensors.torch import save
from torch.nn import functional

from bench.experiment.data import read_idx_array
from core.learning.networks import ImageSpec, Network, build_network
from core.learning.networks.linear.edits import replace_relu_by_leaky_relu
from perennial import Perennial, types
from tools import service

Json = dict[str, Any]
Pixels = npt.NDArray[np.uint8]
OF_BASE = (6, 7, 8, 9)
OF_TASKS = (0, 1, 2, 3, 4, 5)
ANGLES = (0, 20, 40)
"""Of the tasks in the data scenario, in degrees."""
SIZE = 16
"""Pixels a side, from 28: faster, and digits are as easy."""
SLOPE = 0.01
TESTED = 150
"""Held-out images of each class and task."""
SCENARIOS = ("data", "task", "class")
METHODS: dict[str, Json] = {
    "dlcft": {"name": "dlcft"},
    "dlcft-diagonal": {"name": "dlcft", "curvature": "diagonal"},
    "finetune": {"name": "finetune"},
}
USUAL = ("dlcft", "finetune")

BUFFER = 100
"""Images that are kept in the class scenario."""


@dataclass(frozen=True)
class ReducedMnist:
    """MNIST reduced to 16 × 16 pixels: images and labels of both parts."""

    train: tuple[Pixels, Pixels]
    test: tuple[Pixels, Pixels]

    @staticmethod
    def read_mnist_files(data: Path) -> "ReducedMnist":
        """Read and reduce MNIST from `data/mnist`. Raises OSError or ValueError for missing files."""
        parts = [
            (
                _resize_images(read_idx_array(data / "mnist" / f"{part}-images-idx3-ubyte.gz")),
                read_idx_array(data / "mnist" / f"{part}-labels-idx1-ubyte.gz"),
            )
            for part in ("train", "t10k")
        ]
        return ReducedMnist(*parts)

    def build_npz_batch(
        self, classes: Sequence[int], count: int, turn: int, angle: float = 0
    ) -> bytes:
        """Return an npz batch of `count` training images of each class and of held-out images."""
        arrays: dict[str, Any] = {}
        for part, prefix, size in ((self.train, "", count), (self.test, "test_", TESTED)):
            rows = np.concatenate(
                [np.flatnonzero(part[1] == c)[turn * size : (turn + 1) * size] for c in classes]
            )
            arrays[f"{prefix}images"] = _rotate_images(part[0][rows], angle)
            arrays[f"{prefix}labels"] = part[1][rows].astype(np.int64)
        out = io.BytesIO()
        np.savez(out, **arrays)
        return out.getvalue()


@dataclass(frozen=True)
class StreamLearningResult:
    """Results of one model that learned a stream: versions, metrics and sizes."""

    scenario: str
    method: str
    metrics: types.Metrics
    versions: list[types.Version]


def main() -> None:
    """Test DLCFT over HTTP: learn streams of digits, print accuracies, forecasts and sizes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument(
        "--images", type=int, default=150, help="per class and task (data: a third as many)"
    )
    parser.add_argument("--architecture", choices=("small-cnn", "resnet20"), default="small-cnn")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(USUAL))
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument(
        "--threads", type=int, default=0, help="per job (default: the service's own choice)"
    )
    options = parser.parse_args()
    start_time = time.monotonic()
    mnist = ReducedMnist.read_mnist_files(options.data)
    network, accuracy = train_base_network(mnist, {"name": options.architecture})
    print(
        f"base: {options.architecture} on digits {OF_BASE[0]} to {OF_BASE[-1]}, {accuracy:.3f} of "
        "its test images"
    )
    environment = {"PERENNIAL_THREADS": str(options.threads)} if options.threads else {}
    with (
        tempfile.TemporaryDirectory() as folder,
        service.run_temporary_service(Path(folder), environment) as running,
    ):
        client = Perennial(running.key, base_url=running.url)
        base = upload_network_as_base(client, network, {"name": options.architecture})
        results = learn_stream_with_every_method(client, mnist, base, options)
        print(
            render_accuracy_matrices(results),
            render_loss_forecasts(results),
            render_part_sizes(results),
            sep="\n\n",
        )
    print(f"\n{len(results)} streams in {time.monotonic() - start_time:.0f} s")


def train_base_network(mnist: ReducedMnist, architecture: Json) -> tuple[Network, float]:
    """Train a base network on digits, and return it with its test accuracy."""
    network = build_network(architecture, ImageSpec(SIZE, 1), "class", seed=0)
    network.add_task_classes(
        1, [str(c) for c in OF_BASE], "default", torch.Generator().manual_seed(0)
    )
    replace_relu_by_leaky_relu(network.backbone, SLOPE)
    x, y = _convert_base_digits_to_tensors(*mnist.train, limit=6000)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(0)
    network.train()
    for _ in range(3):
        for rows in torch.randperm(len(x), generator=generator).split(64):
            optimizer.zero_grad()
            functional.cross_entropy(network(x[rows]), y[rows]).backward()
            optimizer.step()
    network.eval()
    x, y = _convert_base_digits_to_tensors(*mnist.test, limit=2000)
    with torch.inference_mode():
        return network, float((network(x).argmax(1) == y).float().mean())


def upload_network_as_base(client: Perennial, network: Network, architecture: Json) -> str:
    """Upload a network to the service as a base; return its id."""
    tensors = {name: t.detach().contiguous() for name, t in network.backbone.state_dict().items()}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "base.safetensors"
        file.write_bytes(save(tensors))
        base = client.bases.create(file, architecture, image_size=SIZE, channels=1)
    return base.id


def learn_stream_with_every_method(
    client: Perennial, mnist: ReducedMnist, base: str, options: argparse.Namespace
) -> list[StreamLearningResult]:
    """Learn the digit stream with every scenario and method over HTTP, and return the results.

    Raises:
        JobEnded: a job did not end with a published version.
    """
    streams = {
        scenario: list(iterate_digit_stream_batches(mnist, scenario, options.images))
        for scenario in options.scenarios
    }
    jobs, named = [], []
    for scenario in options.scenarios:
        for method in options.methods:
            name = f"{scenario}-{method}"
            hyper = METHODS[method]
            linear = hyper["name"] == "dlcft"
            memory = {"buffer": BUFFER} if scenario == "class" and linear else {}
            recipe = {"method": {**hyper, **memory}, "epochs": options.epochs, "augment": "none"}
            client.models.create(
                name,
                scenario,
                architecture={"name": options.architecture},
                image={"size": SIZE, "channels": 1},
                base=base,
                classes=[str(c) for c in OF_TASKS] if scenario == "data" else None,
                recipe=recipe,
                gate={"checks": "off"},
            )
            named.append((name, scenario, method))
            jobs += [client.submit(name, archive, name=task) for task, archive in streams[scenario]]
    for job in jobs:
        job.wait(1800)
    return [
        StreamLearningResult(
            scenario,
            method,
            client.metrics.retrieve(name),
            [client.versions.retrieve(name, one.number) for one in client.versions.list(name)],
        )
        for name, scenario, method in named
    ]


def iterate_digit_stream_batches(
    mnist: ReducedMnist, scenario: str, count: int
) -> Iterator[tuple[str, bytes]]:
    """Yield the three batches of the digit stream as (task name, upload)."""
    for turn, angle in enumerate(ANGLES):
        if scenario == "data":
            yield f"turned-{angle}", mnist.build_npz_batch(OF_TASKS, count // 3, turn, angle)
        else:
            pair = OF_TASKS[2 * turn : 2 * turn + 2]
            yield f"digits-{pair[0]}-{pair[1]}", mnist.build_npz_batch(pair, count, 0)


def render_accuracy_matrices(results: list[StreamLearningResult]) -> str:
    """Render the accuracy matrix of every stream in Markdown, with ACC and forgetting."""
    lines = [
        "| scenario | method | version | task 1 | task 2 | task 3 | ACC | forgetting |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for stream in results:
        metrics, summary = stream.metrics, stream.metrics.summary
        for row, cells in zip(metrics.rows, metrics.accuracy_matrix, strict=True):
            last = row is metrics.rows[-1]
            figures = [figure if last else None for figure in (summary.acc, summary.forgetting)]
            shown = [stream.scenario, stream.method, str(row.version)]
            lines.append(
                f"| {' | '.join([*shown, *(_format_number(v) for v in [*cells, *figures])])} |"
            )
    return "\n".join(lines)


def render_loss_forecasts(results: list[StreamLearningResult]) -> str:
    """Render a table of each update's forecast and measured loss on earlier tasks."""
    lines = [
        "| scenario | method | version | predicted rise | measured rise | ratio | by task: before "
        "→ after |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for stream in results:
        for version in stream.versions:
            forecast = version.manifest.forecast
            if not forecast:
                continue
            predicted, measured = forecast.predicted, forecast.measured
            ratio = measured / predicted if predicted and measured is not None else None
            by_task = "; ".join(
                f"{task}: {_format_number(t.before)} → {_format_number(t.after)}"
                for task, t in forecast.tasks.items()
            )
            named = [stream.scenario, stream.method, str(version.number)]
            lines.append(
                f"| {' | '.join([*named, *(_format_number(v) for v in (predicted, measured, ratio)), by_task])} |"
            )
    return "\n".join(lines)


def render_part_sizes(results: list[StreamLearningResult]) -> str:
    """Render a table of the bytes in the last version's parts by type, total and new."""
    kinds = ("backbone", "displacement", "head", "curvature", "buffer")
    lines = [
        f"| scenario | method | {' | '.join(kinds)} | all | new |",
        f"|---|---|{'---:|' * (len(kinds) + 2)}",
    ]
    for stream in results:
        last = stream.versions[-1]
        bytes_by_kind = {
            kind: sum(part.bytes for part in last.parts if part.type == kind) for kind in kinds
        }
        cells = [*bytes_by_kind.values(), last.bytes, last.bytes_new]
        named = [stream.scenario, stream.method]
        lines.append(
            f"| {' | '.join([*named, *(f'{b / 1000:,.0f}' if b else '–' for b in cells)])} |"
        )
    return "\n".join(lines)


def _resize_images(images: Pixels) -> Pixels:
    small = [
        np.asarray(Image.fromarray(one).resize((SIZE, SIZE), Image.Resampling.BILINEAR))
        for one in images
    ]
    return np.stack(small)


def _rotate_images(images: Pixels, angle: float) -> Pixels:
    if not angle:
        return images
    return np.stack(
        [
            np.asarray(Image.fromarray(one).rotate(angle, Image.Resampling.BILINEAR))
            for one in images
        ]
    )


def _convert_base_digits_to_tensors(
    images: Pixels, labels: Pixels, limit: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the digits for training the base as normalised tensors."""
    rows = np.flatnonzero(np.isin(labels, OF_BASE))[:limit]
    x = torch.from_numpy(images[rows]).float().div(255).sub(0.5).div(0.25)
    return x[:, None], torch.from_numpy(labels[rows].astype(np.int64)) - OF_BASE[0]


def _format_number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()
