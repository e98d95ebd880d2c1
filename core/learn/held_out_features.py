"""Features of a version in place of held-out images: each image passes through its network once.

Logits, answers, the k-NN probe and the discriminants on features all read the same features. Those of a backbone that
does not move are kept beside the images of each task, so that no pass is needed for earlier tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from core.learn.dataset import Dataset
from core.learn.networks import Network
from core.learn.precision import Inputs
from core.learn.probe import features

MEMORY_BYTES = 256 << 20
"""Features beyond this size are not computed in advance: then every reader passes the images itself."""


class FeatureDataset(Dataset):
    """A dataset whose `images` are features float32 [N, D], which a network takes in place of images."""

    def __init__(self, images: Tensor, labels: Tensor, names: list[str]) -> None:
        self.images = images
        self.labels = labels
        self.names = list(names)


def replace_images(
    network: Network,
    parts: Mapping[int, Dataset],
    inputs: Inputs,
    kept: Mapping[int, Tensor],
    alive: Callable[[], None],
) -> dict[int, Dataset]:
    """Return held-out parts with the features of `network` in place of their images.

    Parts stay as they are where the network takes no features, and beyond `MEMORY_BYTES`.

    Args:
        kept: task → features float32 [N, D] of this network's backbone; those of another shape are not used.
        alive: called after each part.
    """
    if not network.takes_features:
        return dict(parts)
    found: dict[int, Dataset] = {}
    room = MEMORY_BYTES
    for task, data in parts.items():
        if room <= 0 or not len(data):
            found[task] = data
            continue
        rows = kept.get(task)
        if not fits(rows, network, data):
            head = task if network.scenario == "task" else None
            rows = features(network, data.images, inputs, head).cpu()
            alive()
        assert rows is not None
        room -= rows.nbytes
        found[task] = FeatureDataset(rows, data.labels, data.names)
    return found


def fits(rows: Tensor | None, network: Network, data: Dataset) -> bool:
    """Return True if `rows` are features of every image of `data`."""
    return (
        rows is not None and rows.dtype == torch.float32 and rows.shape == (len(data), network.backbone.width)
    )
