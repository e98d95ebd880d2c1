"""Retained examples of the closed form: features with their classes and keys.

A part of them, drawn by the order of their keys, evaluates the classifier with left-out scores.
Keys are digests of the images, so the draw does not depend on how the images were ordered or
batched.
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
class LabelledFeatureRows:
    """Feature rows of one or more tasks, with class numbers and image digests.

    Attributes:
        features: float32 [n, D], of the backbone.
        classes: int64 [n], numbered over all heads.
        keys: uint8 [n, 16], of `digest_each_image`.
    """

    features: Tensor
    classes: Tensor
    keys: Tensor

    def __len__(self) -> int:
        return len(self.classes)

    def select_rows(self, index: Tensor) -> LabelledFeatureRows:
        """Select rows of features, classes and keys by an int64 or bool index."""
        return LabelledFeatureRows(self.features[index], self.classes[index], self.keys[index])

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the tensors to store, under the names in `FIELDS`."""
        return {"features": self.features, "classes": self.classes, "keys": self.keys}

    @staticmethod
    def concatenate_rows(parts: Iterable[LabelledFeatureRows]) -> LabelledFeatureRows:
        """Concatenate several `LabelledFeatureRows` into one."""
        listed = list(parts)
        return LabelledFeatureRows(
            torch.cat([part.features for part in listed]),
            torch.cat([part.classes for part in listed]),
            torch.cat([part.keys for part in listed]),
        )


def digest_each_image(images: Tensor, seed: int) -> Tensor:
    """Compute a keyed BLAKE2b digest of each image [n, S, S, C], uint8 [n, 16].

    The key is the recipe's seed.
    """
    # Keyed by the seed, so that another seed draws other examples.
    key = seed.to_bytes(8, "little", signed=True)
    digests = [
        hashlib.blake2b(image.numpy().tobytes(), digest_size=KEY_BYTES, key=key).digest()
        for image in images.cpu()
    ]
    return torch.frombuffer(bytearray(b"".join(digests)), dtype=torch.uint8).view(
        len(digests), KEY_BYTES
    )


def draw_rows_per_class(rows: LabelledFeatureRows, per_class: int) -> Tensor:
    """Draw up to `per_class` examples of each class pseudo-randomly: those with the smallest keys.

    Of a class's examples with the same key only the first is drawn: an identical twin left in the
    training sums would give the answer away.

    Returns:
        bool [n].
    """
    drawn = torch.zeros(len(rows), dtype=torch.bool)
    if not len(rows):
        return drawn
    order = compute_row_order_by_key(rows.keys)
    classes = rows.classes.cpu()
    # The stable sort keeps the order of keys within a class.
    order = order[torch.sort(classes[order], stable=True).indices]  # by class, then by key
    classes, keys = classes[order], rows.keys.cpu()[order]
    begins = torch.ones(len(order), dtype=torch.bool)
    begins[1:] = classes[1:] != classes[:-1]
    is_first = begins.clone()
    is_first[1:] |= (keys[1:] != keys[:-1]).any(1)
    distinct_so_far = is_first.cumsum(0)  # over all classes
    # Distinct rows before the class of each row; `cummax` carries the class's first value on.
    before = torch.where(begins, distinct_so_far - 1, 0).cummax(0).values
    drawn[order[is_first & (distinct_so_far - before <= per_class)]] = True
    return drawn


def compute_row_order_by_key(keys: Tensor) -> Tensor:
    """Return the int64 [n] order that sorts keys uint8 [n, 16] as byte strings.

    Equal keys stay in their given order.
    """
    # torch cannot sort rows of bytes lexicographically.
    listed = [bytes(key) for key in keys.cpu().numpy()]
    return torch.tensor(sorted(range(len(listed)), key=lambda row: listed[row]), dtype=torch.int64)
