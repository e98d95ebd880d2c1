"""Stage 4 of predict: versions in the helper's memory, limited in number and bytes."""

import json
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.contract.architecture import Normalisation
from core.contract.manifest import Manifest
from core.learning.evaluation import predicting
from core.learning.evaluation.fused import copy_network_with_fused_norms
from core.learning.methods.method import Method
from core.learning.networks import Network
from core.learning.precision import InputNormaliser
from core.predictions.helper.graphs import OnnxGraphMaker, Run, VersionOnnxGraph

KEPT_VERSIONS = 8
KEPT_BYTES = 2 << 30


@dataclass(frozen=True)
class LoadedVersion:
    """A version loaded for prediction: network, method, owner, and its files with their sizes."""

    network: Network
    method: Method
    image: tuple[int, int]
    """Side in pixels, and number of channels."""
    normalise: Normalisation | None
    temperature: float
    owner: str
    files: dict[str, int]
    graph: VersionOnnxGraph


class LoadedVersionCache:
    """Cache of loaded versions; if memory is short, the owner with the most loses the least recent
    one.

    A file from which several versions were loaded is in memory once, such as a chain of experts or
    a base that never changes. A version's graph has its own copy of the weights.

    Args:
        graphs: makes graphs of versions that are used often.
    """

    def __init__(self, graphs: OnnxGraphMaker) -> None:
        self.graphs = graphs
        self._kept: OrderedDict[str, LoadedVersion] = OrderedDict()
        self._tensors: dict[str, dict[str, Tensor]] = {}

    def load_version(
        self, owner: str, version_id: str, manifest: bytes, parts: Mapping[str, str]
    ) -> LoadedVersion:
        """Return a loaded version by its id, loading it if it is not in memory.

        Args:
            owner: id of the owner for whom it is loaded.
            manifest: JSON; read only when the version is loaded.
            parts: path by name; the files never change.
        """
        if version_id in self._kept:
            self._kept.move_to_end(version_id)
            return self._kept[version_id]
        files = {path: Path(path).stat().st_size for path in parts.values()}
        # Before loading, or both versions would be in memory at once.
        self._drop_versions_for_room(files)
        paths = {name: Path(path) for name, path in parts.items()}
        document = Manifest.from_json(json.loads(manifest))
        network, method = (
            predicting.load_version_network(document, paths),
            predicting.load_prediction_method(document, paths),
        )
        self._share_equal_tensors(network, parts)
        image = document.image.size, document.image.channels
        weight_bytes = sum(files.values())

        def build_fused_run(task: int | None) -> Run | None:
            return _build_fused_prediction_function(network, method, document, task)

        graph = VersionOnnxGraph(version_id, manifest, dict(parts), weight_bytes, build_fused_run)
        loaded = LoadedVersion(
            network, method, image, document.normalise, document.logit_divisor, owner, files, graph
        )
        self._kept[version_id] = loaded
        return loaded

    def _drop_versions_for_room(self, files: Mapping[str, int]) -> None:
        """Drop loaded versions until another one with these files fits into memory."""
        while self._kept and (
            len(self._kept) >= KEPT_VERSIONS or self._count_loaded_bytes(files) > KEPT_BYTES
        ):
            full = len(self._kept) >= KEPT_VERSIONS
            use_by_owner: Counter[str] = Counter()
            for loaded in self._kept.values():
                # Measured by what is short, the number of versions or their bytes.
                use_by_owner[loaded.owner] += 1 if full else sum(loaded.files.values())
            largest = max(use_by_owner.values())
            # Versions are in the order of their last use, so the first one was unused for longest.
            id = next(
                id for id, loaded in self._kept.items() if use_by_owner[loaded.owner] == largest
            )
            self.graphs.drop_graph(self._kept.pop(id).graph)
            # Files of the dropped version would otherwise stay in memory.
            used_paths = {path for loaded in self._kept.values() for path in loaded.files}
            self._tensors = {
                path: tensors for path, tensors in self._tensors.items() if path in used_paths
            }

    def _count_loaded_bytes(self, more: Mapping[str, int]) -> int:
        """Count the bytes of all loaded versions' files, of these further files, and of graphs."""
        files = dict(more)
        for loaded in self._kept.values():
            # By path, since files that versions share are in memory once.
            files |= loaded.files
        graphs = [loaded.graph for loaded in self._kept.values() if loaded.graph.engine is not None]
        return sum(files.values()) + sum(graph.weight_bytes for graph in graphs)

    def _share_equal_tensors(self, network: Network, parts: Mapping[str, str]) -> None:
        """Replace a network's tensors by equal ones of other versions in memory, to share them."""
        tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
        for part, names in network.list_tensor_names_by_part().items():
            if part not in parts:
                continue
            shared = self._tensors.setdefault(parts[part], {})
            for name in names:
                # The parameters stay the network's own; only their bytes are shared.
                tensors[name].data = shared.setdefault(name, tensors[name].data)


def _build_fused_prediction_function(
    network: Network, method: Method, manifest: Manifest, task: int | None
) -> Run | None:
    """Build the function that predicts by a copy of a network with fused layers.

    Return None if no layers can be fused.
    """
    image, normalise = manifest.image, manifest.normalise
    inputs = InputNormaliser(normalise, image.channels, torch.device("cpu"))
    blank = inputs(torch.zeros(1, image.size, image.size, image.channels, dtype=torch.uint8))
    try:
        fused = copy_network_with_fused_norms(network, blank, task)
    except Exception:  # noqa: BLE001 - a network of another structure keeps its own arithmetic
        return None
    if fused is None:
        return None

    def predict_fused(images: NDArray[np.uint8], task: int | None) -> NDArray[np.float32]:
        scoring = predicting.SoftmaxScoring(method.predict_logits, manifest.logit_divisor)
        return predicting.predict_images(fused, images, task, normalise, scoring=scoring)[1]

    return predict_fused
