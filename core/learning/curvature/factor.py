"""A symmetric positive factor F [w, w] of a layer's curvature, stored within a limit of bytes.

A wide convolution's input factor is nine times as large as its weight. The first tier that fits is
taken:

- full: all of F.
- packed: one triangle, lossless.
- packed bf16: one triangle in bfloat16, computed with in float32.
- low rank: leading eigenvectors, and a diagonal that preserves F's own.
- uncorrelated: a convolution's channels alone, the same at every pixel of its kernel.

A factor computes with what it stores: storing and loading changes no bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

Tier = Literal["full", "packed", "packed bf16", "low rank", "uncorrelated"]
MIN_RANK = 16  # below it, low rank is no use, and the next tier is taken
MAX_RANK = 512


class KroneckerFactor(ABC):
    """Base class of symmetric positive semidefinite factors F [w, w] of Kronecker products.

    Factors are immutable; merging makes a new one.
    """

    tier: Tier

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of rows and columns of the factor, w."""

    @abstractmethod
    def multiply_rows(self, x: Tensor) -> Tensor:
        """Multiply rows x [n, w] by the factor: x F, in the dtype of F."""

    @abstractmethod
    def diagonal(self) -> Tensor:
        """Return the diagonal of the factor F, [w]."""

    @abstractmethod
    def to_dense(self) -> Tensor:
        """Return the factor F as a dense matrix [w, w]."""

    @abstractmethod
    def to_tensors(self) -> dict[str, Tensor]:
        """Return the factor's tensors to store, from which `rebuild_kronecker_factor` restores it
        bit for bit.
        """

    def average_with(self, other: KroneckerFactor, share: float) -> KroneckerFactor:
        """Average two Kronecker factors, (1 - share) · self + share · other, in this factor's
        storage tier.

        Raises ValueError for another size.
        """
        if other.size != self.size:
            raise ValueError(f"factors of sizes {self.size} and {other.size} cannot be merged")
        return self._average_in_same_storage_tier(other, share)

    @abstractmethod
    def _average_in_same_storage_tier(
        self, other: KroneckerFactor, share: float
    ) -> KroneckerFactor: ...

    def trace(self) -> Tensor:
        """Return the trace of the factor F, 0-dim."""
        return self.diagonal().sum()

    @property
    def nbytes(self) -> int:
        """Size of the factor as stored, in bytes."""
        return sum(t.nbytes for t in self.to_tensors().values())


@dataclass(frozen=True, eq=False)
class DenseFactor(KroneckerFactor):
    """A Kronecker factor stored as a whole symmetric `matrix` [w, w], in the precision of its
    `tier`.

    The function `make_dense_factor` makes one, and rounds it for bf16.
    """

    matrix: Tensor
    tier: Tier = "full"

    @property
    def size(self) -> int:
        """Number of rows of the dense factor's matrix."""
        return self.matrix.shape[0]

    def multiply_rows(self, x: Tensor) -> Tensor:
        """Multiply rows x by the dense factor's matrix."""
        return x.to(self.matrix.dtype) @ self.matrix

    def diagonal(self) -> Tensor:
        """Return the diagonal of the dense factor's matrix."""
        return self.matrix.diagonal()

    def to_dense(self) -> Tensor:
        """Return the dense factor's matrix itself."""
        return self.matrix

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the tensors to store: the matrix, or its upper triangle by rows."""
        if self.tier == "full":
            return {"matrix": self.matrix}
        # The lower half mirrors the upper one.
        triangle = self.matrix.masked_select(_make_upper_triangle_mask(self.matrix))
        return {"triangle": triangle.bfloat16() if self.tier == "packed bf16" else triangle}

    def _average_in_same_storage_tier(
        self, other: KroneckerFactor, share: float
    ) -> KroneckerFactor:
        return make_dense_factor(
            torch.lerp(self.matrix, other.to_dense().to(self.matrix), share), self.tier
        )

    @property
    def nbytes(self) -> int:
        """Size of the stored dense factor in bytes, computed without building the triangle."""
        w, each = self.size, self.matrix.element_size()
        if self.tier == "full":
            return w * w * each
        return w * (w + 1) // 2 * (2 if self.tier == "packed bf16" else each)


@dataclass(frozen=True, eq=False)
class LowRankFactor(KroneckerFactor):
    """A low-rank Kronecker factor U diag(values) Uᵀ + diag(remainder), U = `vectors` [w, r]
    orthonormal.

    Trace and diagonal are those of F.
    """

    vectors: Tensor
    values: Tensor
    remainder: Tensor
    tier: ClassVar[Tier] = "low rank"  # type: ignore[misc]

    @property
    def size(self) -> int:
        """Number of rows of the low-rank factor."""
        return self.vectors.shape[0]

    def multiply_rows(self, x: Tensor) -> Tensor:
        """Multiply rows x by the low-rank factor: x U diag(values) Uᵀ + x diag(remainder)."""
        x = x.to(self.remainder.dtype)
        return torch.addcmul((x @ self.vectors * self.values) @ self.vectors.T, x, self.remainder)

    def diagonal(self) -> Tensor:
        """Return the diagonal of the low-rank factor, which is that of the original matrix."""
        return _compute_low_rank_diagonal(self.vectors, self.values) + self.remainder

    def to_dense(self) -> Tensor:
        """Return the low-rank factor as a dense matrix, U diag(values) Uᵀ + diag(remainder)."""
        return (self.vectors * self.values) @ self.vectors.T + self.remainder.diag()

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the low-rank factor's tensors to store: vectors, values and the remainder."""
        return {"vectors": self.vectors, "values": self.values, "rest": self.remainder}

    def _average_in_same_storage_tier(
        self, other: KroneckerFactor, share: float
    ) -> KroneckerFactor:
        """Average with another factor, keeping the leading singular vectors of both square roots
        together.

        The part of the diagonal that they do not cover goes into `remainder`.
        """
        rank = self.values.shape[0]
        addend = (
            other
            if isinstance(other, LowRankFactor)
            else make_low_rank_factor(other.to_dense().to(self.vectors), rank)
        )
        diagonal = torch.lerp(self.diagonal(), addend.diagonal().to(self.remainder), share)
        roots = [
            vectors * (part * values).sqrt()
            for part, vectors, values in (
                (1 - share, self.vectors, self.values),
                (share, addend.vectors.to(self.vectors), addend.values.to(self.values)),
            )
        ]
        # The left singular vectors of all roots side by side are the eigenvectors of the merged
        # sum, without forming a matrix [w, w].
        vectors, singular, _ = torch.linalg.svd(torch.cat(roots, 1), full_matrices=False)
        # The diagonal is merged exactly, so trace and diagonal lose nothing, however often factors
        # merge.
        return _build_low_rank_factor(vectors[:, :rank], singular[:rank].square(), diagonal)


@dataclass(frozen=True, eq=False)
class UncorrelatedPixelsFactor(KroneckerFactor):
    """A Kronecker factor for a convolution with uncorrelated pixels: channels [c, c] ⊗ I over the
    kernel.

    channels is the mean of F's blocks over pixels, which preserves the trace. `corner` [1] is the
    entry of a bias column after the c · kernel columns; None without a bias.
    """

    channels: Tensor
    kernel: int
    corner: Tensor | None
    tier: ClassVar[Tier] = "uncorrelated"  # type: ignore[misc]

    @property
    def size(self) -> int:
        """Number of columns of the factor: c · kernel, + 1 with a bias."""
        return self.channels.shape[0] * self.kernel + (self.corner is not None)

    def multiply_rows(self, x: Tensor) -> Tensor:
        """Multiply rows x by the factor: mix channels at each pixel, scale the bias column."""
        x, channels = x.to(self.channels.dtype), self.channels.shape[0]
        pixels = x[:, : channels * self.kernel].reshape(-1, channels, self.kernel)
        product = torch.einsum("ncp,cd->ndp", pixels, self.channels).flatten(1)
        return product if self.corner is None else torch.cat([product, x[:, -1:] * self.corner], 1)

    def diagonal(self) -> Tensor:
        """Return the diagonal [size] of the uncorrelated-pixels factor.

        It has each channel's entry once for every pixel of the kernel, then the bias's entry if
        there is one.
        """
        pixels = self.channels.diagonal().repeat_interleave(self.kernel)
        return pixels if self.corner is None else torch.cat([pixels, self.corner])

    def to_dense(self) -> Tensor:
        """Return the factor as a dense matrix: channels ⊗ I, with the bias's corner appended."""
        eye = torch.eye(self.kernel, dtype=self.channels.dtype, device=self.channels.device)
        pixels = torch.kron(self.channels, eye)
        if self.corner is None:
            return pixels
        padded = functional.pad(pixels, (0, 1, 0, 1))
        padded[-1, -1] = self.corner[0]
        return padded

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the factor's tensors to store: channels, kernel and, with a bias, the corner."""
        tensors = {"channels": self.channels, "kernel": torch.tensor(self.kernel)}
        return tensors if self.corner is None else tensors | {"corner": self.corner}

    def _average_in_same_storage_tier(
        self, other: KroneckerFactor, share: float
    ) -> KroneckerFactor:
        addend = (
            other
            if isinstance(other, UncorrelatedPixelsFactor)
            else make_uncorrelated_pixels_factor(other.to_dense().to(self.channels), self.kernel)
        )
        if addend.kernel != self.kernel:
            raise ValueError(
                f"factors of kernels {self.kernel} and {addend.kernel} cannot be merged"
            )
        corner = None
        if self.corner is not None:
            assert addend.corner is not None
            corner = torch.lerp(self.corner, addend.corner.to(self.corner), share)
        channels = torch.lerp(self.channels, addend.channels.to(self.channels), share)
        return UncorrelatedPixelsFactor(channels, self.kernel, corner)


def make_dense_factor(matrix: Tensor, tier: Tier = "full") -> KroneckerFactor:
    """Make a dense Kronecker factor of a symmetric matrix [w, w], rounded to what `tier` stores."""
    return DenseFactor(matrix.bfloat16().float() if tier == "packed bf16" else matrix, tier)


def make_low_rank_factor(matrix: Tensor, rank: int) -> LowRankFactor:
    """Make a low-rank factor of a symmetric matrix: leading `rank` eigenvectors, and its
    diagonal.
    """
    # `eigh` sorts ascending: the leading ones are the last.
    values, vectors = torch.linalg.eigh(matrix)
    # An eigenvalue below zero is rounding.
    return _build_low_rank_factor(
        vectors[:, -rank:], values[-rank:].clamp_min(0), matrix.diagonal()
    )


def make_uncorrelated_pixels_factor(matrix: Tensor, kernel: int) -> UncorrelatedPixelsFactor:
    """Make a factor of a convolution's matrix [w, w] by averaging over the kernel's pixels.

    w is channels · kernel, + 1 with a bias. Raises ValueError for another size.
    """
    channels, bias = divmod(matrix.shape[0], kernel)
    if bias > 1 or kernel == 1:
        raise ValueError(
            f"a factor of size {matrix.shape[0]} is none of a kernel of {kernel} pixels"
        )
    end = channels * kernel
    blocks = matrix[:end, :end].view(channels, kernel, channels, kernel)
    return UncorrelatedPixelsFactor(
        blocks.diagonal(dim1=1, dim2=3).mean(2),
        kernel,
        # A copy of the last entry, since a view would keep the whole matrix in memory.
        matrix[-1, -1:].clone() if bias else None,
    )


def fit_factor_to_byte_limit(
    matrix: Tensor, limit: int | None, kernel: int = 1
) -> KroneckerFactor | None:
    """Choose a factor that stores a symmetric matrix [w, w] in at most `limit` bytes.

    It has the first storage tier that fits. Returns None if no tier fits.

    Args:
        matrix: the factor to store.
        limit: bytes; None for no limit.
        kernel: pixels of a convolution's kernel, for the factor of its inputs.
    """
    w, each = matrix.shape[0], matrix.element_size()
    # Tiers in the order of their loss: the first two lose nothing.
    triangle = w * (w + 1) // 2
    if limit is None or w * w * each <= limit:
        return make_dense_factor(matrix)
    if triangle * each <= limit:
        return make_dense_factor(matrix, "packed")
    if triangle * 2 <= limit:
        return make_dense_factor(matrix, "packed bf16")
    # Room for r vectors, r values and a diagonal.
    rank = min((limit // each - w) // (w + 1), MAX_RANK)
    if rank >= MIN_RANK:
        return make_low_rank_factor(matrix, rank)
    if kernel > 1 and ((w // kernel) ** 2 + w % kernel) * each <= limit:
        return make_uncorrelated_pixels_factor(matrix, kernel)
    return None


def rebuild_kronecker_factor(tier: str, tensors: Mapping[str, Tensor]) -> KroneckerFactor:
    """Rebuild a Kronecker factor from its `to_tensors`. Raises ValueError for an unknown tier."""
    if tier == "full":
        return DenseFactor(tensors["matrix"])
    if tier in ("packed", "packed bf16"):
        return DenseFactor(
            _unpack_symmetric_matrix(tensors["triangle"]),
            "packed" if tier == "packed" else "packed bf16",
        )
    if tier == "low rank":
        return LowRankFactor(tensors["vectors"], tensors["values"], tensors["rest"])
    if tier == "uncorrelated":
        return UncorrelatedPixelsFactor(
            tensors["channels"], int(tensors["kernel"]), tensors.get("corner")
        )
    raise ValueError(f"unknown storage tier {tier!r}")


def _build_low_rank_factor(vectors: Tensor, values: Tensor, diagonal: Tensor) -> LowRankFactor:
    """Build a low-rank factor whose `remainder` restores the given diagonal."""
    # Rounding may leave entries just below zero, which would make F indefinite.
    remainder = (diagonal - _compute_low_rank_diagonal(vectors, values)).clamp_min(0)
    return LowRankFactor(vectors.contiguous(), values.contiguous(), remainder)


def _compute_low_rank_diagonal(vectors: Tensor, values: Tensor) -> Tensor:
    """Return the diagonal of U diag(values) Uᵀ."""
    return vectors.square() @ values


def _make_upper_triangle_mask(matrix: Tensor) -> Tensor:
    """Return a mask that is true on and above the diagonal.

    A mask takes a sixteenth of the memory of two index tensors.
    """
    return torch.ones_like(matrix, dtype=torch.bool).triu()


def _unpack_symmetric_matrix(triangle: Tensor) -> Tensor:
    """Return the symmetric matrix of an upper triangle by rows; as float32 if it is bfloat16."""
    size = int((2 * triangle.numel()) ** 0.5)  # w² < w (w + 1) < (w + 1)²
    values = triangle.float() if triangle.dtype == torch.bfloat16 else triangle
    upper = values.new_zeros(size, size)
    upper.masked_scatter_(_make_upper_triangle_mask(upper), values)
    # Without the diagonal, which would be added twice.
    return upper + upper.triu(1).T
