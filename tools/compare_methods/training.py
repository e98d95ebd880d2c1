"""A plain training loop, as usual today.

It uses AdamW, a cosine schedule, shifted images, and trains all weights.
"""

import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from core.learning.networks import Network
from core.learning.precision import InputNormaliser
from tools.compare_methods.pixels import Labels, Pixels, SelectedDecodedImages

BATCH = 32
LEARNING_RATE = 5e-4
WEIGHT_DECAY = 0.01
MAX_SHIFT = 0.08
"""Share of its side by which an image is shifted at most.

Images are not mirrored, because that changes digits and letters.
"""


class Trainer:
    """Trains all weights of a network with AdamW, one mini-batch at a time."""

    def __init__(
        self, network: Network, inputs: InputNormaliser, epochs: int, steps: int, seed: int
    ) -> None:
        """Set up the training; `steps` is the number of batches of each epoch."""
        self._network, self._inputs = network, inputs
        self._optimizer = torch.optim.AdamW(
            network.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY
        )
        self._schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
            self._optimizer, max(1, epochs * steps)
        )
        self._generator = torch.Generator().manual_seed(seed)

    def draw_epoch_batches(self, count: int) -> tuple[Tensor, ...]:
        """Shuffle the images of one epoch into mini-batches of nearly equal size.

        BatchNorm works badly with a small last batch.
        """
        return torch.randperm(count, generator=self._generator).tensor_split(
            count_epoch_batches(count)
        )

    def train_on_batch(self, pixels: Pixels, labels: Labels) -> None:
        """Do one training step on a mini-batch of images uint8 [B, S, S, C] and labels int64 [B]."""
        self._network.train()
        x = self._shift_images_randomly(self._inputs(torch.from_numpy(pixels)))
        self._optimizer.zero_grad()
        functional.cross_entropy(self._network(x), torch.from_numpy(labels)).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._schedule.step()

    def _shift_images_randomly(self, x: Tensor) -> Tensor:
        side = x.shape[-1]
        pad = max(1, round(MAX_SHIFT * side))
        down, right = torch.randint(0, 2 * pad + 1, (2,), generator=self._generator).tolist()
        padded = functional.pad(x, (pad, pad, pad, pad), mode="replicate")
        shifted = padded[..., down : down + side, right : right + side]
        # A slice is not contiguous, and networks with convolutions are in channels_last.
        return shifted.contiguous(memory_format=torch.channels_last)


def count_epoch_batches(count: int) -> int:
    """Return the number of mini-batches in an epoch of `count` images."""
    return max(1, round(count / BATCH))


def train_all_weights(
    network: Network, inputs: InputNormaliser, images: SelectedDecodedImages, epochs: int, seed: int
) -> None:
    """Train all weights of a network on images for some epochs."""
    trainer = Trainer(network, inputs, epochs, count_epoch_batches(len(images)), seed)
    for _ in range(epochs):
        for index in trainer.draw_epoch_batches(len(images)):
            # In the order of the file: its rows are mapped into memory and read from disk.
            trainer.train_on_batch(*images.copy_images_to_memory(np.sort(index.numpy())))


def extract_features(
    network: Network, inputs: InputNormaliser, images: SelectedDecodedImages
) -> Tensor:
    """Compute a network's features of images, float32 [N, width]."""
    network.eval()
    with torch.inference_mode():
        parts = [
            network.features(inputs(torch.from_numpy(pixels)))
            for pixels in _iterate_image_pixel_batches(images)
        ]
    return torch.cat(parts).float()


def _predict_labels(
    network: Network, inputs: InputNormaliser, images: SelectedDecodedImages
) -> Labels:
    """Predict the label of each image by a network, int64 [N]."""
    network.eval()
    with torch.inference_mode():
        parts = [
            network(inputs(torch.from_numpy(pixels))).argmax(1)
            for pixels in _iterate_image_pixel_batches(images)
        ]
    labels: Labels = torch.cat(parts).numpy()
    return labels


def measure_training_seconds_per_image(
    network: Network, inputs: InputNormaliser, images: SelectedDecodedImages
) -> float:
    """Measure the seconds per image of a training step, after a warm-up step."""
    pixels, labels = images.copy_images_to_memory(slice(0, BATCH))
    trainer = Trainer(network, inputs, 1, 1, 0)
    trainer.train_on_batch(pixels, labels)
    started_at = time.perf_counter()
    trainer.train_on_batch(pixels, labels)
    return (time.perf_counter() - started_at) / len(labels)


def measure_feature_seconds_per_image(
    network: Network, inputs: InputNormaliser, images: SelectedDecodedImages
) -> float:
    """Measure the seconds per image of feature extraction, after a warm-up pass."""
    part = SelectedDecodedImages(images.part, images.rows[:BATCH])
    extract_features(network, inputs, part)
    started_at = time.perf_counter()
    extract_features(network, inputs, part)
    return (time.perf_counter() - started_at) / len(part)


def _iterate_image_pixel_batches(images: SelectedDecodedImages) -> Iterator[Pixels]:
    for start in range(0, len(images), BATCH):
        yield images.copy_images_to_memory(slice(start, start + BATCH))[0]
