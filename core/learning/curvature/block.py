"""Curvature of one layer: a symmetric positive H over displacements d [o, w], bias as last column.

A block computes H d, the gradient of the penalty ½ dᵀ H d, and merges with the block of another
task. Each stored statistic is averaged, which equals measuring both tasks' data together (Shon et
al. 2022, DLCFT, section 3.2). No inverse is taken, so no damping is needed. vec(d) goes by rows, as
flatten does: a Kronecker block is G ⊗ A with G [o, o] and A [w, w].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from core.learning.curvature import factor
from core.learning.curvature.factor import KroneckerFactor


class CurvatureBlock(ABC):
    """Base class of a layer's block of the curvature matrix H, stored as tensors or factors.

    Blocks are immutable; merging makes a new one.
    """

    kind: ClassVar[str]

    @abstractmethod
    def count_displacement_columns(self, outputs: int) -> int:
        """Return the number of columns w of a layer's displacement [o, w] with o = `outputs`
        rows.
        """

    @abstractmethod
    def multiply_by_curvature(self, d: Tensor) -> Tensor:
        """Multiply a displacement d [o, w] by the curvature H; return H d [o, w]."""

    @abstractmethod
    def trace(self) -> Tensor:
        """Return the trace of the curvature block H, 0-dim."""

    def compress_factors(self, limit: int | None, kernel: int = 1) -> CurvatureBlock:
        """Return the curvature block with every factor compressed to at most `limit` bytes.

        Where that is impossible, return a diagonal.

        Args:
            limit: bytes per factor; None for no limit.
            kernel: pixels of a convolution's kernel.
        """
        return self

    def pad_to_outputs(self, outputs: int) -> CurvatureBlock:
        """Pad a layer's curvature block with zeros for rows that the layer has gained.

        Raises ValueError for fewer rows than the block has, or a kind of block that cannot grow.
        """
        raise ValueError(f"a {self.kind} block cannot grow")

    def average_with(self, other: CurvatureBlock, share: float) -> CurvatureBlock:
        """Average two curvature blocks: (1 - share) · self + share · other for each stored
        statistic.

        Raises ValueError for another kind or shape.
        """
        if type(other) is not type(self):
            raise ValueError(f"a {self.kind} block cannot be merged with a {other.kind} one")
        merged: dict[str, Tensor | KroneckerFactor] = {}
        for name, mine in self._get_fields().items():
            theirs = other._get_fields()[name]
            if isinstance(mine, KroneckerFactor) and isinstance(theirs, KroneckerFactor):
                merged[name] = mine.average_with(theirs, share)
                continue
            assert isinstance(mine, Tensor) and isinstance(theirs, Tensor)
            if mine.shape != theirs.shape:
                raise ValueError(
                    f"blocks of shapes {list(mine.shape)} and {list(theirs.shape)} cannot be merged"
                )
            # `lerp` is exact at shares 0 and 1, where the sum of two products may round.
            merged[name] = torch.lerp(mine, theirs.to(mine), share)
        return type(self)(**merged)

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the curvature block to store, by name.

        They are named `<field>`, and those of a factor `<field>.<name>`.
        """
        tensors: dict[str, Tensor] = {}
        for name, value in self._get_fields().items():
            if isinstance(value, KroneckerFactor):
                tensors |= {f"{name}.{key}": tensor for key, tensor in value.to_tensors().items()}
            else:
                tensors[name] = value
        return tensors

    @property
    def compression_by_factor(self) -> dict[str, str]:
        """Storage tier (dense, low-rank …) of each field of the curvature block that is a
        factor.
        """
        return {
            name: value.tier
            for name, value in self._get_fields().items()
            if isinstance(value, KroneckerFactor)
        }

    @property
    def nbytes(self) -> int:
        """Size of the stored curvature block, in bytes."""
        return sum(value.nbytes for value in self._get_fields().values())

    def _get_fields(self) -> dict[str, Tensor | KroneckerFactor]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class DiagonalCurvatureBlock(CurvatureBlock):
    """A diagonal curvature block H, with its diagonal as `values` [o, w]."""

    values: Tensor
    kind: ClassVar[str] = "diagonal"

    def count_displacement_columns(self, outputs: int) -> int:
        """Return the number of columns w of a displacement, that of `values`."""
        return self.values.shape[1]

    def multiply_by_curvature(self, d: Tensor) -> Tensor:
        """Multiply a displacement d by the diagonal curvature: values ∘ d."""
        return self.values * d

    def pad_to_outputs(self, outputs: int) -> CurvatureBlock:
        """Pad the diagonal curvature block with zeros for new rows."""
        return DiagonalCurvatureBlock(_pad_matrix_with_zeros(self.values, outputs, rows_only=True))

    def trace(self) -> Tensor:
        """Return the trace of the diagonal curvature block, the sum of its values."""
        return self.values.sum()


@dataclass(frozen=True, eq=False)
class KroneckerCurvatureBlock(CurvatureBlock):
    """A curvature block as a Kronecker product, H = G ⊗ A.

    A [w, w] is the mean of a aᵀ over examples and positions, G [o, o] the mean of Σ_s g gᵀ over
    examples. Grosse & Martens 2016, arXiv 1602.01407 (KFC); "expand" in Eschenhagen et al. 2023,
    arXiv 2311.00636.
    """

    a: KroneckerFactor
    g: KroneckerFactor
    kind: ClassVar[str] = "kfac"

    def count_displacement_columns(self, outputs: int) -> int:
        """Return the number of columns w of a displacement, the size of the Kronecker factor A."""
        return self.a.size

    def multiply_by_curvature(self, d: Tensor) -> Tensor:
        """Multiply a displacement d by the Kronecker-factored curvature: G d A."""
        # One side at a time: the Kronecker product itself would have (o w)² entries.
        return self.a.multiply_rows(self.g.multiply_rows(d.T).T)

    def pad_to_outputs(self, outputs: int) -> CurvatureBlock:
        """Pad the Kronecker factor G with zeros for new rows."""
        return (
            self
            if outputs == self.g.size
            else KroneckerCurvatureBlock(
                self.a, factor.make_dense_factor(_pad_matrix_with_zeros(self.g.to_dense(), outputs))
            )
        )

    def trace(self) -> Tensor:
        """Return the trace of the Kronecker-factored curvature, tr G · tr A."""
        return self.a.trace() * self.g.trace()

    def compress_factors(self, limit: int | None, kernel: int = 1) -> CurvatureBlock:
        """Compress the Kronecker factors A and G; fall back to the diagonal of G ⊗ A if one fits in
        no tier.
        """
        a, g = (
            factor.fit_factor_to_byte_limit(self.a.to_dense(), limit, kernel),
            factor.fit_factor_to_byte_limit(self.g.to_dense(), limit),
        )
        if a is None or g is None:
            # The smallest form there is, as large as the weight itself.
            return DiagonalCurvatureBlock(torch.outer(self.g.diagonal(), self.a.diagonal()))
        return KroneckerCurvatureBlock(a, g)


@dataclass(frozen=True, eq=False)
class TraceRestrictedKroneckerBlock(CurvatureBlock):
    """A curvature block as a trace-restricted Kronecker product, H = Q ⊗ P / δ.

    P = E Σ Mᵀ M, Q = E Σ M Mᵀ and δ = tr P = tr Q, so both partial traces are those of the exact
    block. M is an example's gradient. After Gao et al. 2021, arXiv 2011.10741 (trace-restricted
    K-FAC), whose form for linear layers this is; for convolutions it assumes nothing about
    positions.
    """

    p: KroneckerFactor
    q: KroneckerFactor
    delta: Tensor
    kind: ClassVar[str] = "tkfac"

    def count_displacement_columns(self, outputs: int) -> int:
        """Return the number of columns w of a displacement, the size of the Kronecker factor P."""
        return self.p.size

    def multiply_by_curvature(self, d: Tensor) -> Tensor:
        """Multiply a displacement d by the trace-restricted Kronecker curvature: Q d P / δ."""
        # Divided between the two products: both factors have the size of δ, and their product could
        # overflow.
        return self.p.multiply_rows(self.q.multiply_rows(d.T).T / self._positive_divisor)

    def pad_to_outputs(self, outputs: int) -> CurvatureBlock:
        """Pad the output factor Q of the Kronecker block with zeros for new outputs."""
        if outputs == self.q.size:
            return self
        return TraceRestrictedKroneckerBlock(
            self.p,
            factor.make_dense_factor(_pad_matrix_with_zeros(self.q.to_dense(), outputs)),
            self.delta,
        )

    def trace(self) -> Tensor:
        """Return the trace of the trace-restricted Kronecker curvature, tr P · tr Q / δ."""
        # In this order the numbers stay near δ; the product of both traces could overflow.
        return self.p.trace() * (self.q.trace() / self._positive_divisor)

    def compress_factors(self, limit: int | None, kernel: int = 1) -> CurvatureBlock:
        """Compress the factors P and Q; if one fits in no tier, return the diagonal of Q ⊗ P /
        δ."""
        p, q = (
            factor.fit_factor_to_byte_limit(self.p.to_dense(), limit, kernel),
            factor.fit_factor_to_byte_limit(self.q.to_dense(), limit),
        )
        if p is None or q is None:
            return DiagonalCurvatureBlock(
                torch.outer(self.q.diagonal() / self._positive_divisor, self.p.diagonal())
            )
        return TraceRestrictedKroneckerBlock(p, q, self.delta)

    @property
    def _positive_divisor(self) -> Tensor:
        """The divisor δ of the Kronecker product, kept above zero to divide safely."""
        return self.delta.clamp_min(torch.finfo(self.delta.dtype).tiny)


@dataclass(frozen=True, eq=False)
class ExactCurvatureBlock(CurvatureBlock):
    """A full curvature block H = matrix [o w, o w], for tests and for layers of a few numbers."""

    matrix: Tensor
    kind: ClassVar[str] = "exact"

    def count_displacement_columns(self, outputs: int) -> int:
        """Return the number of columns w of a displacement: the full matrix's size over the
        rows.
        """
        return self.matrix.shape[0] // outputs

    def multiply_by_curvature(self, d: Tensor) -> Tensor:
        """Multiply a displacement d by the full curvature matrix: H vec(d), in the shape of d."""
        return (self.matrix @ d.flatten()).view_as(d)

    def trace(self) -> Tensor:
        """Return the trace of the full curvature matrix."""
        return self.matrix.trace()


@dataclass(frozen=True, eq=False)
class HeadGramCurvatureBlock(CurvatureBlock):
    """A head's curvature block under half the squared error: H = I ⊗ A, A [w, w], for any number of
    rows.

    All rows share A, so no row is stored separately, and rows that are added later have the same A.
    """

    a: KroneckerFactor
    kind: ClassVar[str] = "gram"

    def count_displacement_columns(self, outputs: int) -> int:
        """Return the number of columns w of a displacement, the size of A."""
        return self.a.size

    def multiply_by_curvature(self, d: Tensor) -> Tensor:
        """Multiply a displacement d by the head's curvature I ⊗ A: d A."""
        return self.a.multiply_rows(d)

    def trace(self) -> Tensor:
        """Return the trace of A alone: the number of rows is unknown here."""
        return self.a.trace()

    def compress_factors(self, limit: int | None, kernel: int = 1) -> CurvatureBlock:
        """Compress the factor A. Raises ValueError when A fits in no tier of `limit` bytes."""
        a = factor.fit_factor_to_byte_limit(self.a.to_dense(), limit)
        if a is None:
            raise ValueError(
                f"a head's factor of size {self.a.size} fits in no tier of {limit} bytes"
            )
        return HeadGramCurvatureBlock(a)


@dataclass(frozen=True, eq=False)
class GroupedConvolutionCurvatureBlock(CurvatureBlock):
    """Curvature of a grouped convolution: an exact block for each output, none between outputs.

    blocks: [o, w, w].
    """

    blocks: Tensor
    kind: ClassVar[str] = "channels"

    def count_displacement_columns(self, outputs: int) -> int:
        """Return the number of columns w of a displacement, that of the outputs' blocks."""
        return self.blocks.shape[2]

    def multiply_by_curvature(self, d: Tensor) -> Tensor:
        """Multiply a displacement d by the curvature of a grouped convolution, row by row."""
        return (self.blocks @ d[:, :, None]).squeeze(2)

    def pad_to_outputs(self, outputs: int) -> CurvatureBlock:
        """Pad the grouped convolution's curvature with zeros for new rows."""
        return GroupedConvolutionCurvatureBlock(
            _pad_matrix_with_zeros(self.blocks, outputs, rows_only=True)
        )

    def trace(self) -> Tensor:
        """Return the trace of the grouped convolution's curvature, the sum over its blocks."""
        return self.blocks.diagonal(dim1=1, dim2=2).sum()


TYPES: dict[str, type[CurvatureBlock]] = {
    t.kind: t
    for t in (
        DiagonalCurvatureBlock,
        KroneckerCurvatureBlock,
        TraceRestrictedKroneckerBlock,
        ExactCurvatureBlock,
        HeadGramCurvatureBlock,
        GroupedConvolutionCurvatureBlock,
    )
}


def rebuild_curvature_block(
    kind: str, tiers: Mapping[str, str], tensors: Mapping[str, Tensor]
) -> CurvatureBlock:
    """Rebuild a curvature block from its kind, storage tiers and stored tensors.

    Raises ValueError for an unknown kind or tier.
    """
    if kind not in TYPES:
        raise ValueError(f"unknown kind of curvature {kind!r}; known: {', '.join(TYPES)}")
    # A dot separates a factor's name from its tensor: fields without one are plain tensors.
    values: dict[str, Tensor | KroneckerFactor] = {k: t for k, t in tensors.items() if "." not in k}
    for name, tier in tiers.items():
        prefix = f"{name}."
        stored = {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
        values[name] = factor.rebuild_kronecker_factor(tier, stored)
    return TYPES[kind](**values)


def _pad_matrix_with_zeros(values: Tensor, rows: int, *, rows_only: bool = False) -> Tensor:
    """Pad a matrix with zeros up to `rows` rows, and as many columns unless `rows_only`.

    Raises ValueError where there are already more rows.
    """
    missing = rows - values.shape[0]
    if missing < 0:
        # Heads only grow, so fewer rows mean that the block is of another network.
        raise ValueError(f"a block of {values.shape[0]} rows cannot shrink to {rows}")
    pads = [0, 0] * (values.dim() - 1) if rows_only else [0, missing]
    return functional.pad(values, [*pads, 0, missing]) if missing else values
