"""Station 4 of predict: the versions that the helper keeps in memory, under a limit of bytes."""

import json
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.learn import predicting
from core.learn.fused import fuse_network
from core.learn.method import Method
from core.learn.networks import Network
from core.learn.precision import Inputs
from core.protocol.architecture import Normalisation
from core.protocol.manifest import Manifest
from core.work.predict.graphs import GraphMaker, Run, VersionGraph

KEPT_VERSIONS = 8
KEPT_BYTES = 2 << 30


@dataclass(frozen=True)
class Loaded:
    """A version in memory, for whom it was loaded, and the files it was loaded from with their bytes."""

    network: Network
    method: Method
    image: tuple[int, int]
    """Size and channels."""
    normalise: Normalisation | None
    temperature: float
    owner: str
    files: dict[str, int]
    graph: VersionGraph


class Networks:
    """Recently used versions. The owner with the most of them loses the one that he has not used for longest.

    A file that several of them were loaded from is in memory once: a chain of experts, a base that never changes. The
    graph of a version has its weights once more.

    Args:
        graphs: makes graphs of versions that are asked often.
    """

    def __init__(self, graphs: GraphMaker) -> None:
        self.graphs = graphs
        self._kept: OrderedDict[str, Loaded] = OrderedDict()
        self._tensors: dict[str, dict[str, Tensor]] = {}

    def get(self, owner: str, version_id: str, manifest: bytes, parts: Mapping[str, str]) -> Loaded:
        """A version by its id, loaded when it is not kept.

        Args:
            manifest: JSON; read only when it is loaded.
            parts: name to path of a file that never changes.
        """
        if version_id in self._kept:
            self._kept.move_to_end(version_id)
            return self._kept[version_id]
        files = {path: Path(path).stat().st_size for path in parts.values()}
        self._make_room(files)
        paths = {name: Path(path) for name, path in parts.items()}
        document = Manifest.from_json(json.loads(manifest))
        network, method = predicting.load(document, paths), predicting.method_of(document, paths)
        self._share(network, parts)
        image = document.image.size, document.image.channels
        weight_bytes = sum(files.values())

        def fuse(task: int | None) -> Run | None:
            return _fuse(network, method, document, task)

        graph = VersionGraph(version_id, manifest, dict(parts), weight_bytes, fuse)
        loaded = Loaded(network, method, image, document.normalise, document.divisor, owner, files, graph)
        self._kept[version_id] = loaded
        return loaded

    def _make_room(self, files: Mapping[str, int]) -> None:
        while self._kept and (len(self._kept) >= KEPT_VERSIONS or self._bytes(files) > KEPT_BYTES):
            full = len(self._kept) >= KEPT_VERSIONS
            held: Counter[str] = Counter()
            for kept in self._kept.values():
                held[kept.owner] += 1 if full else sum(kept.files.values())
            most = max(held.values())
            id = next(id for id, kept in self._kept.items() if held[kept.owner] == most)
            self.graphs.forget(self._kept.pop(id).graph)
            used = {path for kept in self._kept.values() for path in kept.files}
            self._tensors = {path: tensors for path, tensors in self._tensors.items() if path in used}

    def _bytes(self, more: Mapping[str, int]) -> int:
        """Of all that is kept and some more files."""
        files = dict(more)
        for kept in self._kept.values():
            files |= kept.files
        graphs = [kept.graph for kept in self._kept.values() if kept.graph.engine is not None]
        return sum(files.values()) + sum(graph.weight_bytes for graph in graphs)

    def _share(self, network: Network, parts: Mapping[str, str]) -> None:
        """Let the network use the tensors that are there already for its files."""
        tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
        for part, names in network.part_names().items():
            if part not in parts:
                continue
            held = self._tensors.setdefault(parts[part], {})
            for name in names:
                tensors[name].data = held.setdefault(name, tensors[name].data)


def _fuse(network: Network, method: Method, manifest: Manifest, task: int | None) -> Run | None:
    """Predictions by a copy of the network with fused layers; None where it has none to fuse."""
    image, normalise = manifest.image, manifest.normalise
    inputs = Inputs(normalise, image.channels, torch.device("cpu"))
    blank = inputs(torch.zeros(1, image.size, image.size, image.channels, dtype=torch.uint8))
    try:
        fused = fuse_network(network, blank, task)
    except Exception:  # noqa: BLE001 - a network that is built otherwise keeps its own arithmetic
        return None
    if fused is None:
        return None

    def run(images: NDArray[np.uint8], task: int | None) -> NDArray[np.float32]:
        scores, divisor = method.predict_logits, manifest.divisor
        return predicting.predict(fused, images, task, normalise, scores=scores, temperature=divisor)[1]

    return run
