"""Kept examples of the closed form: features with their classes and keys.

A part of them, drawn by the order of their keys, judges the classifier: its scores are those of a solution without the
example. Keys are digests of the images, so that the draw does not depend on order or cut of the batches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

KEY_BYTES = 16
FIELDS = ("features", "classes", "keys")


@dataclass(frozen=True)
class Rows:
    """Examples of one task or more.

    Attributes:
        features: float32 [n, D], of the backbone.
        classes: int64 [n], numbered over all heads.
        keys: uint8 [n, 16], of `digest_images`.
    """

    features: Tensor
    classes: Tensor
    keys: Tensor

    def __len__(self) -> int:
        return len(self.classes)

    def select(self, index: Tensor) -> Rows:
        """Return the rows of an index, int64 or bool."""
        return Rows(self.features[index], self.classes[index], self.keys[index])

    def packed(self) -> dict[str, Tensor]:
        """Return tensors to store, by the names in `FIELDS`."""
        return {"features": self.features, "classes": self.classes, "keys": self.keys}

    @staticmethod
    def join(parts: Iterable[Rows]) -> Rows:
        """Concatenate one or more."""
        listed = list(parts)
        return Rows(
            torch.cat([part.features for part in listed]),
            torch.cat([part.classes for part in listed]),
            torch.cat([part.keys for part in listed]),
        )


def digest_images(images: Tensor, seed: int) -> Tensor:
    """Return BLAKE2b digests of uint8 images [n, S, S, C], keyed by the recipe's seed, uint8 [n, 16]."""
    key = seed.to_bytes(8, "little", signed=True)
    digests = [
        hashlib.blake2b(image.numpy().tobytes(), digest_size=KEY_BYTES, key=key).digest()
        for image in images.cpu()
    ]
    return torch.frombuffer(bytearray(b"".join(digests)), dtype=torch.uint8).view(len(digests), KEY_BYTES)


def draw_rows(rows: Rows, per_class: int) -> Tensor:
    """Draw up to `per_class` examples of each class, those with the least keys.

    Of examples of a class with the same key only the first is drawn: one that has an equal twin among the others is
    answered by it.

    Returns:
        bool [n].
    """
    drawn = torch.zeros(len(rows), dtype=torch.bool)
    if not len(rows):
        return drawn
    order = order_by_key(rows.keys)
    classes = rows.classes.cpu()
    order = order[torch.sort(classes[order], stable=True).indices]  # by class, then by key
    classes, keys = classes[order], rows.keys.cpu()[order]
    begins = torch.ones(len(order), dtype=torch.bool)
    begins[1:] = classes[1:] != classes[:-1]
    is_first = begins.clone()
    is_first[1:] |= (keys[1:] != keys[:-1]).any(1)
    seen = is_first.cumsum(0)  # unlike ones so far, over all classes
    before = torch.where(begins, seen - 1, 0).cummax(0).values
    drawn[order[is_first & (seen - before <= per_class)]] = True
    return drawn


def order_by_key(keys: Tensor) -> Tensor:
    """Return the order of keys uint8 [n, 16] as bytes strings, int64 [n]; equal ones in the order in which they lie."""
    listed = [bytes(key) for key in keys.cpu().numpy()]
    return torch.tensor(sorted(range(len(listed)), key=lambda row: listed[row]), dtype=torch.int64)
