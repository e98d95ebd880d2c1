"""Features of a version in place of held-out images: each image passes through its network once.

Logits, answers, the k-NN probe and the discriminants on features all read the same features. Those of a backbone that
does not move are kept beside the images of each task, so that no pass is needed for earlier tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from core.learn.dataset import Dataset
from core.learn.networks import Network
from core.learn.precision import Inputs
from core.learn.probe import features
from core.learn.state import load_tensors, save_tensors
from core.protocol.job_result import FeaturesFile
from core.protocol.job_spec import JobSpec

MEMORY_BYTES = 256 << 20
"""Features beyond this size are not computed in advance: then every reader passes the images itself."""

MOST_FILLED = 8
"""Earlier tasks whose features one update stores because they are missing: it must not take much longer for it."""
NAME = "features"


class FeatureDataset(Dataset):
    """A dataset whose `images` are features float32 [N, D], which a network takes in place of images."""

    def __init__(self, images: Tensor, labels: Tensor, names: list[str]) -> None:
        self.images = images
        self.labels = labels
        self.names = list(names)


class HeldOutFeatures:
    """Features of held-out images by the backbone that a job starts from and does not move.

    `is_on`: the method of the job and its network allow them. `kept`: task → features float32 [N, D] that earlier
    updates have stored. `new`: those that this update has computed and that are to be stored.
    """

    def __init__(self) -> None:
        self.is_on = False
        self.kept: dict[int, Tensor] = {}
        self.new: dict[int, Tensor] = {}

    def read(self, spec: JobSpec, network: Network, parts: Mapping[int, Dataset]) -> None:
        """Read what is stored of held-out parts; what does not fit images or network is left out.

        Only of plain networks: the features of others are made by more than the backbone, which names what is stored.
        """
        self.is_on = network.family == "plain"
        if not self.is_on:
            return
        for task in spec.history:
            data = parts.get(task.number)
            if task.features is None or data is None:
                continue
            rows = load_tensors(task.features)[NAME]
            if rows.dtype == torch.float32 and rows.shape == (len(data), network.backbone.width):
                self.kept[task.number] = rows

    def keep(self, seen: Mapping[int, Dataset], own: int) -> None:
        """Take what was computed in place of images: of the task `own`, and of some that nothing is stored of."""
        computed = [
            task
            for task, data in seen.items()
            if isinstance(data, FeatureDataset) and task not in self.kept and task != own
        ]
        for task in (own, *computed[:MOST_FILLED]):
            data = seen.get(task)
            if isinstance(data, FeatureDataset):
                self.new[task] = data.images

    def write(self, folder: Path) -> list[FeaturesFile]:
        """Write `new` to files in `folder/features`, and describe them."""
        (folder / NAME).mkdir(parents=True, exist_ok=True)
        found = []
        for task, rows in self.new.items():
            name = f"{NAME}/{task}.safetensors"
            save_tensors({NAME: rows}, folder / name)
            found.append(FeaturesFile(task=task, file=name))
        return found


def replace_images(
    network: Network,
    parts: Mapping[int, Dataset],
    inputs: Inputs,
    kept: Mapping[int, Tensor],
    alive: Callable[[], None],
) -> dict[int, Dataset]:
    """Return held-out parts with the features of `network` in place of their images.

    Parts stay as they are where the network takes no features, and beyond `MEMORY_BYTES` of those that are computed.

    Args:
        kept: task → features of this network's backbone, one for each image.
        alive: called after each part that is passed.
    """
    if not network.takes_features:
        return dict(parts)
    found: dict[int, Dataset] = {}
    room = MEMORY_BYTES
    for task, data in parts.items():
        rows = kept.get(task)
        if rows is None and room > 0 and len(data):
            head = task if network.scenario == "task" else None
            rows = features(network, data.images, inputs, head).cpu()
            room -= rows.nbytes
            alive()
        found[task] = data if rows is None else FeatureDataset(rows, data.labels, data.names)
    return found
