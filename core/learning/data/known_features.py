"""Cached features of a backbone that no step of a job moves: each image passes through it once.

A job that solves for its classifier reads its images several times: to find suspicious labels, to
compare with production, to learn, and to measure base, parent and new version. All use the same
features. They are computed first, one dataset after the other in its own order, and
`FeatureCachingInputNormaliser` then returns them in place of images. Nothing is stored: a resumed job
computes the same bits again, because its batches have the composition and order of the datasets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from core.contract.architecture import Normalisation
from core.learning.networks import Network
from core.learning.networks.network import use_eval_mode
from core.learning.precision import InputNormaliser, move_network_to_device, use_full_precision

BATCH = 32
"""Images per forward pass."""
LEAST_BATCH = 16
"""Images of the smallest pass.

Products of one row per image, as in an MLP or a squeeze-and-excitation block, are rounded otherwise
with fewer rows: on a processor with AMX with fewer than 16, on one without with fewer than 4.
"""
MEMORY_BYTES = 256 << 20
"""Bytes of features above which they are recomputed at each read."""


class FeatureCachingInputNormaliser(InputNormaliser):
    """Network inputs that replace images [N, C, S, S] with known features by these features [N, D].

    Networks return such features unchanged (`Network.features`). A batch with any unknown image
    stays a batch of images.
    """

    def __init__(
        self, normalise: Normalisation | None, channels: int, device: torch.device
    ) -> None:
        super().__init__(normalise, channels, device)
        self._known: dict[bytes, Tensor] = {}
        self._bytes = 0

    @property
    def has_known_features(self) -> bool:
        """True if features of any images are known."""
        return bool(self._known)

    def __call__(self, images: Tensor) -> Tensor:
        # Inputs that are features already have no digest.
        if self._known and images.dtype == torch.uint8:
            features = [self._known.get(key) for key in _digest_images_by_bytes(images)]
            if features and all(row is not None for row in features):
                # All or none: a batch cannot mix images and features.
                return torch.stack([row for row in features if row is not None]).to(self.device)
        return super().__call__(images)

    def cache_dataset_features(
        self, network: Network, images: Tensor, alive: Callable[[], None]
    ) -> None:
        """Compute a network's features of a dataset's images, uint8 [N, S, S, C], batch by batch.

        Equal images keep the features of the first. `alive` is called after each batch.
        """
        with use_eval_mode(network), use_full_precision(self.device), torch.no_grad():
            for part in images.split(BATCH):  # type: ignore[no-untyped-call]
                # Images beyond the limit pass through the network at each read.
                if self._bytes >= MEMORY_BYTES:
                    return
                # Repeated, since products of few rows are rounded otherwise: an image has the same
                # features in any batch.
                missing = max(0, LEAST_BATCH - len(part))
                batch = torch.cat([part, part[-1:].expand(missing, *part.shape[1:])])
                features = network.features(super().__call__(batch), None).float().cpu()
                self.add_features(part, features[: len(part)])
                alive()

    def add_features(self, images: Tensor, features: Tensor) -> None:
        """Add features float32 [N, D] of images uint8 [N, S, S, C]; features already known are not
        replaced.
        """
        for key, row in zip(_digest_images_by_bytes(images), features, strict=True):
            if key not in self._known:
                self._known[key] = row
                self._bytes += row.nbytes

    def cache_features_of_job_images(
        self,
        parent: Network,
        base: Network | None,
        parts: Iterable[Tensor],
        alive: Callable[[], None],
    ) -> None:
        """Compute the features of all images of a job, unless its versions do not share one plain
        backbone.

        Args:
            parent: the network that the job starts from; back on the CPU afterwards.
            base: the network of version 0; None: the parent is version 0.
            parts: images of each dataset.
        """
        networks = [parent] if base is None else [parent, base]
        if self.has_known_features or any(
            type(each).features is not Network.features for each in networks
        ):
            return
        # Known features would be mistaken for those of the other version.
        if base is not None and not _have_modules_equal_tensors(parent.backbone, base.backbone):
            return
        move_network_to_device(parent, self.device)
        for images in parts:
            self.cache_dataset_features(parent, images, alive)
        # Back on the CPU, where the caller expects it.
        parent.to("cpu", memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def _have_modules_equal_tensors(a: nn.Module, b: nn.Module) -> bool:
    """Return True if two modules have the same tensors, bit for bit."""
    ours, theirs = a.state_dict(), b.state_dict()
    return ours.keys() == theirs.keys() and all(
        tensor.shape == theirs[name].shape and bool(torch.equal(tensor, theirs[name]))
        for name, tensor in ours.items()
    )


def _digest_images_by_bytes(images: Tensor) -> list[bytes]:
    """Compute a digest of each image's pixel bytes, to recognise equal images."""
    pixels = images.cpu().contiguous().numpy()
    return [
        hashlib.blake2b(pixels[number].data, digest_size=16).digest()
        for number in range(len(pixels))
    ]
