"""Trains the small base that comes with the package: a ResNet-20 of double width on 60 of
CIFAR-100's classes.

    python -m bench.research.train_base --data DIR --out FOLDER [--epochs 60] [--width 32]
        [--minutes 120]

DIR holds `classes_00-09.zip` … `classes_50-59.zip`, each with `train/<class>/` and `test/<class>/`;
the other 40 classes stay unseen, so that whatever is measured with the base is new to it. The run
goes on where FOLDER says that it stopped: weights, momentum and epoch are written after each epoch,
and each epoch draws from a generator of its own. At the end FOLDER holds `base.safetensors` (the
backbone) and `base.json` (seed, command, curve, accuracy).

Images are cropped by up to 4 pixels, mirrored, and changed in brightness and contrast; one in ten
is made grey, so that the base also serves images of one channel. SGD with Nesterov momentum, a rate
that rises and falls once, bfloat16.
"""

import argparse
import io
import json
import math
import shutil
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from core.learning.networks import ImageSpec, build_initialised_backbone

ARCHIVES = [f"classes_{first:02}-{first + 9:02}.zip" for first in range(0, 60, 10)]
MEAN, STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
"""Of CIFAR-100's training images, per channel, in [0, 1]."""
BATCH, RATE, DECAY, MOMENTUM = 128, 0.2, 5e-4, 0.9
GREY = 0.1
PAD = 4
SEED = 0


def main() -> None:
    """Train the packaged base network on CIFAR-100, or resume its training, and write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="stop after so many, to go on later"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    data = load_cifar_images(args.data, args.out / "images.npz")
    BaseTraining(data, args.out, args.epochs, args.width).train_until(
        time.monotonic() + args.minutes * 60
    )


def load_cifar_images(folder: Path, cache: Path) -> dict[str, np.ndarray]:
    """Load the training and test images of 60 CIFAR-100 classes with labels."""
    if not cache.exists():
        array_values: dict[str, list[Any]] = {
            "train": [],
            "test": [],
            "train_labels": [],
            "test_labels": [],
        }
        classes: list[str] = []
        for name in ARCHIVES:
            with zipfile.ZipFile(folder / name) as archive:
                for entry in sorted(archive.namelist()):
                    if entry.endswith("/"):
                        continue
                    part, label, _ = entry.split("/")[-3:]
                    if label not in classes:
                        classes.append(label)
                    with Image.open(io.BytesIO(archive.read(entry))) as picture:
                        array_values[part].append(
                            np.asarray(picture.convert("RGB")).transpose(2, 0, 1)
                        )
                    array_values[f"{part}_labels"].append(classes.index(label))
        arrays = {name: np.asarray(values) for name, values in array_values.items()}
        np.savez(cache, allow_pickle=False, classes=np.asarray(classes), **arrays)
    with np.load(cache, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


class BaseTraining:
    """Training run of the packaged base, with checkpoints in a folder."""

    def __init__(self, data: dict[str, np.ndarray], folder: Path, epochs: int, width: int) -> None:
        self.data, self.folder, self.epochs = data, folder, epochs
        self.architecture = {"name": "resnet20", "width": width}
        generator = torch.Generator().manual_seed(SEED)
        self.backbone = build_initialised_backbone(self.architecture, ImageSpec(32, 3), generator)
        self.head = nn.Linear(self.backbone.width, len(data["classes"]))
        with torch.no_grad():
            self.head.weight.normal_(0, 0.01, generator=generator)
            self.head.bias.zero_()
        self.network = nn.Sequential(self.backbone, self.head)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stub lacks it
        self.momentum = {name: torch.zeros_like(p) for name, p in self.network.named_parameters()}
        self.curve: list[dict[str, float]] = []
        self._load_checkpoint()

    def train_until(self, until: float) -> None:
        """Train epochs until all are done or a given time is reached."""
        while len(self.curve) < self.epochs and time.monotonic() < until:
            epoch, began = len(self.curve), time.process_time()
            loss = self._train_epoch(epoch)
            row = {"epoch": epoch + 1, "loss": loss, "cpu_seconds": time.process_time() - began}
            if (epoch + 1) % 5 == 0 or epoch + 1 == self.epochs:
                row["accuracy"] = self.measure_test_accuracy()
            self.curve.append(row)
            self._save_checkpoint_and_remove_older()
            print(json.dumps(row), flush=True)
        if len(self.curve) >= self.epochs:
            self._write_trained_base()

    def _train_epoch(self, epoch: int) -> float:
        generator = torch.Generator().manual_seed(SEED * 1_000_003 + epoch + 1)
        inputs, labels = (
            torch.from_numpy(self.data["train"]),
            torch.from_numpy(self.data["train_labels"]),
        )
        order = torch.randperm(len(inputs), generator=generator)
        batches = order.split(BATCH)
        self.network.train()
        total = 0.0
        for i, batch in enumerate(batches):
            x = augment_images(inputs[batch], generator)
            rate = RATE * compute_learning_rate_share((epoch + i / len(batches)) / self.epochs)
            total += self._run_training_step(x, labels[batch], rate) * len(batch)
        return total / len(inputs)

    def _run_training_step(self, x: Tensor, y: Tensor, rate: float) -> float:
        with torch.autocast("cpu", torch.bfloat16):
            scores = self.network(x)
        loss = functional.cross_entropy(scores.float(), y)
        self.network.zero_grad()
        loss.backward()
        with torch.no_grad():
            for name, parameter in self.network.named_parameters():
                assert parameter.grad is not None
                decay = DECAY if parameter.ndim > 1 else 0.0
                gradient = parameter.grad.add(parameter, alpha=decay)
                velocity = self.momentum[name].mul_(MOMENTUM).add_(gradient)
                parameter.sub_(gradient.add(velocity, alpha=MOMENTUM), alpha=rate)  # Nesterov
        return float(loss.detach())

    @torch.no_grad()
    def measure_test_accuracy(self) -> float:
        """Measure the accuracy on the test images, in float32."""
        self.network.eval()
        inputs, labels = (
            torch.from_numpy(self.data["test"]),
            torch.from_numpy(self.data["test_labels"]),
        )
        right = 0
        for x, y in zip(inputs.split(500), labels.split(500), strict=True):
            right += int((self.network(normalise_images(x.float() / 255)).argmax(1) == y).sum())
        return right / len(inputs)

    def _save_checkpoint_and_remove_older(self) -> None:
        new = self.folder / "new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        save_file(
            {k: v.contiguous() for k, v in self.network.state_dict().items()},
            new / "weights.safetensors",
        )
        save_file(
            {k: v.contiguous() for k, v in self.momentum.items()}, new / "momentum.safetensors"
        )
        (new / "curve.json").write_text(json.dumps(self.curve))
        new.rename(self.folder / f"epoch-{len(self.curve):04}")
        for old in sorted(self.folder.glob("epoch-*"))[:-1]:
            shutil.rmtree(old)

    def _load_checkpoint(self) -> None:
        done = sorted(self.folder.glob("epoch-*"))
        if not done:
            return
        self.network.load_state_dict(load_file(done[-1] / "weights.safetensors"))
        for name, velocity in load_file(done[-1] / "momentum.safetensors").items():
            self.momentum[name].copy_(velocity)
        self.curve = json.loads((done[-1] / "curve.json").read_text())

    def _write_trained_base(self) -> None:
        state = {name: value.contiguous() for name, value in self.backbone.state_dict().items()}
        save_file(state, self.folder / "base.safetensors")
        about = {
            "architecture": self.architecture,
            "size": 32,
            "normalise": {"mean": MEAN, "std": STD},
            "classes": [str(name) for name in self.data["classes"]],
            "accuracy": self.curve[-1]["accuracy"],
            "parameters": sum(p.numel() for p in self.backbone.parameters()),
            "seed": SEED,
            "command": f"python -m bench.research.train_base --data DIR --out FOLDER --epochs "
            f"{self.epochs} --width {self.architecture['width']}",
            "cpu_seconds": sum(row["cpu_seconds"] for row in self.curve),
            "torch": torch.__version__,
            "curve": self.curve,
        }
        (self.folder / "base.json").write_text(json.dumps(about, indent=1))


def compute_learning_rate_share(share: float) -> float:
    """Return the learning rate as a share of its peak: linear warm-up, then cosine decay."""
    rise = 0.15
    return (
        share / rise
        if share < rise
        else 0.5 * (1 + math.cos(math.pi * (share - rise) / (1 - rise)))
    )


def augment_images(x: Tensor, generator: torch.Generator) -> Tensor:
    """Augment images uint8 [n, 3, 32, 32] by random crops, mirroring and colour changes."""
    n, _, size, _ = x.shape
    draws = torch.rand(n, 6, generator=generator)
    padded = functional.pad(x.float() / 255, (PAD, PAD, PAD, PAD), mode="reflect")
    top, left = ((draws[:, i] * (2 * PAD + 1)).long() for i in (0, 1))
    span = torch.arange(size)
    columns = torch.where(draws[:, 2, None] < 0.5, span, span.flip(0)) + left[:, None]
    rows = span + top[:, None]
    x = padded[torch.arange(n)[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(
        0, 3, 1, 2
    )
    x = x * (0.75 + 0.5 * draws[:, 3]).view(-1, 1, 1, 1)
    mean = x.mean((1, 2, 3), keepdim=True)
    x = (x - mean) * (0.75 + 0.5 * draws[:, 4]).view(-1, 1, 1, 1) + mean
    luma = (x * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)
    x = torch.where(draws[:, 5].view(-1, 1, 1, 1) < GREY, luma, x).clamp(0, 1)
    return normalise_images(x)


def normalise_images(x: Tensor) -> Tensor:
    """Normalise images in [0, 1] by CIFAR-100's statistics, in channels_last."""
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    return ((x - mean) / std).to(memory_format=torch.channels_last)


if __name__ == "__main__":
    main()
