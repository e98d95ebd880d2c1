"""Curvature of one layer: a symmetric positive H over displacements d [o, w], bias as last column.

A block multiplies, H d, which is the gradient of the penalty ½ dᵀ H d, and merges with the block of another
task: each stored statistic is averaged, which equals measuring both tasks' data together (Shon et al. 2022,
DLCFT, section 3.2). No inverse is taken, so nothing is damped. vec(d) goes by rows, as flatten does: a
Kronecker block is G ⊗ A with G [o, o] and A [w, w].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from core.learn.curvature import factor
from core.learn.curvature.factor import Factor


class Block(ABC):
    """Base class. Fields are tensors or factors. Blocks are immutable; merging makes a new one."""

    kind: ClassVar[str]

    @abstractmethod
    def columns(self, outputs: int) -> int:
        """w of a displacement [o, w] with `outputs` rows."""

    @abstractmethod
    def matvec(self, d: Tensor) -> Tensor:
        """H d [o, w] for d [o, w]."""

    @abstractmethod
    def trace(self) -> Tensor:
        """Trace of H, 0-dim."""

    def compressed(self, limit: int | None, kernel: int = 1) -> Block:
        """The block with every factor in at most `limit` bytes; a diagonal where that is impossible.

        limit: None: no limit. kernel: pixels of a convolution's kernel.
        """
        return self

    def with_rows(self, outputs: int) -> Block:
        """The block of a layer that has grown to `outputs` rows, whose new rows have no curvature.

        Raises ValueError for fewer rows than before, or a kind of block that cannot grow.
        """
        raise ValueError(f"a {self.kind} block cannot grow")

    def merge(self, other: Block, share: float) -> Block:
        """(1 - share) · self + share · other for each stored statistic.

        Raises ValueError for another kind or shape.
        """
        if type(other) is not type(self):
            raise ValueError(f"a {self.kind} block cannot be merged with a {other.kind} one")
        merged: dict[str, Tensor | Factor] = {}
        for name, mine in self._values().items():
            theirs = other._values()[name]
            if isinstance(mine, Factor) and isinstance(theirs, Factor):
                merged[name] = mine.merge(theirs, share)
                continue
            assert isinstance(mine, Tensor) and isinstance(theirs, Tensor)
            if mine.shape != theirs.shape:
                raise ValueError(
                    f"blocks of shapes {list(mine.shape)} and {list(theirs.shape)} cannot be merged"
                )
            merged[name] = torch.lerp(mine, theirs.to(mine), share)
        return type(self)(**merged)

    def to_tensors(self) -> dict[str, Tensor]:
        """A tensor under its field's name, a factor's tensors as `<field>.<name>`."""
        found: dict[str, Tensor] = {}
        for name, value in self._values().items():
            if isinstance(value, Factor):
                found |= {f"{name}.{key}": tensor for key, tensor in value.to_tensors().items()}
            else:
                found[name] = value
        return found

    @property
    def tiers(self) -> dict[str, str]:
        """Storage tier of each field that is a factor."""
        return {name: value.tier for name, value in self._values().items() if isinstance(value, Factor)}

    @property
    def nbytes(self) -> int:
        """Bytes as stored."""
        return sum(value.nbytes for value in self._values().values())

    def _values(self) -> dict[str, Tensor | Factor]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Diagonal(Block):
    """values [o, w]: H is diagonal."""

    values: Tensor
    kind: ClassVar[str] = "diagonal"

    def columns(self, outputs: int) -> int:
        """w of `values`."""
        return self.values.shape[1]

    def matvec(self, d: Tensor) -> Tensor:
        """values ∘ d."""
        return self.values * d

    def with_rows(self, outputs: int) -> Block:
        """Zeros for the new rows."""
        return Diagonal(_padded(self.values, outputs, rows_only=True))

    def trace(self) -> Tensor:
        """Sum of the values."""
        return self.values.sum()


@dataclass(frozen=True, eq=False)
class Kfac(Block):
    """H = G ⊗ A: A [w, w] the mean of a aᵀ over examples and positions, G [o, o] of Σ_s g gᵀ over examples.

    Grosse & Martens 2016, arXiv 1602.01407 (KFC); "expand" in Eschenhagen et al. 2023, arXiv 2311.00636.
    """

    a: Factor
    g: Factor
    kind: ClassVar[str] = "kfac"

    def columns(self, outputs: int) -> int:
        """Size of A."""
        return self.a.size

    def matvec(self, d: Tensor) -> Tensor:
        """G d A."""
        return self.a.times(self.g.times(d.T).T)

    def with_rows(self, outputs: int) -> Block:
        """Zeros in G for the new rows."""
        return (
            self if outputs == self.g.size else Kfac(self.a, factor.dense(_padded(self.g.dense(), outputs)))
        )

    def trace(self) -> Tensor:
        """tr G · tr A."""
        return self.a.trace() * self.g.trace()

    def compressed(self, limit: int | None, kernel: int = 1) -> Block:
        """Compresses A and G; else the diagonal of G ⊗ A."""
        a, g = factor.compressed(self.a.dense(), limit, kernel), factor.compressed(self.g.dense(), limit)
        if a is None or g is None:
            return Diagonal(torch.outer(self.g.diagonal(), self.a.diagonal()))
        return Kfac(a, g)


@dataclass(frozen=True, eq=False)
class TKfac(Block):
    """H = Q ⊗ P / δ, P = E Σ Mᵀ M, Q = E Σ M Mᵀ, δ = tr P = tr Q: both partial traces are the exact block's.

    M is an example's gradient. After Gao et al. 2021, arXiv 2011.10741 (trace-restricted K-FAC), whose form
    for linear layers this is; for convolutions it assumes nothing about positions.
    """

    p: Factor
    q: Factor
    delta: Tensor
    kind: ClassVar[str] = "tkfac"

    def columns(self, outputs: int) -> int:
        """Size of P."""
        return self.p.size

    def matvec(self, d: Tensor) -> Tensor:
        """Q d P / δ."""
        return self.p.times(self.q.times(d.T).T / self._divisor)

    def with_rows(self, outputs: int) -> Block:
        """Zeros in Q for the new rows."""
        if outputs == self.q.size:
            return self
        return TKfac(self.p, factor.dense(_padded(self.q.dense(), outputs)), self.delta)

    def trace(self) -> Tensor:
        """tr P · tr Q / δ."""
        return self.p.trace() * (self.q.trace() / self._divisor)

    def compressed(self, limit: int | None, kernel: int = 1) -> Block:
        """Compresses P and Q; else the diagonal of Q ⊗ P / δ."""
        p, q = factor.compressed(self.p.dense(), limit, kernel), factor.compressed(self.q.dense(), limit)
        if p is None or q is None:
            return Diagonal(torch.outer(self.q.diagonal() / self._divisor, self.p.diagonal()))
        return TKfac(p, q, self.delta)

    @property
    def _divisor(self) -> Tensor:
        """δ is 0 only where P and Q are."""
        return self.delta.clamp_min(torch.finfo(self.delta.dtype).tiny)


@dataclass(frozen=True, eq=False)
class Exact(Block):
    """H = matrix [o w, o w]. For tests, and for layers of a few numbers."""

    matrix: Tensor
    kind: ClassVar[str] = "exact"

    def columns(self, outputs: int) -> int:
        """Size of the matrix over the number of rows."""
        return self.matrix.shape[0] // outputs

    def matvec(self, d: Tensor) -> Tensor:
        """The matrix times vec(d)."""
        return (self.matrix @ d.flatten()).view_as(d)

    def trace(self) -> Tensor:
        """Trace of the matrix."""
        return self.matrix.trace()


@dataclass(frozen=True, eq=False)
class Gram(Block):
    """H = I ⊗ A, A [w, w]: a head's block under half the squared error, for any number of rows.

    All rows have the same A, so nothing is stored per row, and rows that are added later have it too.
    """

    a: Factor
    kind: ClassVar[str] = "gram"

    def columns(self, outputs: int) -> int:
        """Size of A."""
        return self.a.size

    def matvec(self, d: Tensor) -> Tensor:
        """d A."""
        return self.a.times(d)

    def trace(self) -> Tensor:
        """Trace of A alone: the number of rows is not known here."""
        return self.a.trace()

    def compressed(self, limit: int | None, kernel: int = 1) -> Block:
        """Compresses A. Raises ValueError when it cannot be that small."""
        a = factor.compressed(self.a.dense(), limit)
        if a is None:
            raise ValueError(f"a head's factor of size {self.a.size} fits in no tier of {limit} bytes")
        return Gram(a)


@dataclass(frozen=True, eq=False)
class Channels(Block):
    """blocks [o, w, w]: the exact block of each output, none between outputs. For grouped convolutions."""

    blocks: Tensor
    kind: ClassVar[str] = "channels"

    def columns(self, outputs: int) -> int:
        """w of the blocks."""
        return self.blocks.shape[2]

    def matvec(self, d: Tensor) -> Tensor:
        """Each output's block times its row of d."""
        return (self.blocks @ d[:, :, None]).squeeze(2)

    def with_rows(self, outputs: int) -> Block:
        """Zero blocks for the new rows."""
        return Channels(_padded(self.blocks, outputs, rows_only=True))

    def trace(self) -> Tensor:
        """Sum of the blocks' traces."""
        return self.blocks.diagonal(dim1=1, dim2=2).sum()


TYPES: dict[str, type[Block]] = {t.kind: t for t in (Diagonal, Kfac, TKfac, Exact, Gram, Channels)}


def from_tensors(kind: str, tiers: Mapping[str, str], tensors: Mapping[str, Tensor]) -> Block:
    """The block that `to_tensors`, `kind` and `tiers` describe.

    Raises ValueError for an unknown kind or tier.
    """
    if kind not in TYPES:
        raise ValueError(f"unknown kind of curvature {kind!r}; known: {', '.join(TYPES)}")
    values: dict[str, Tensor | Factor] = {k: t for k, t in tensors.items() if "." not in k}
    for name, tier in tiers.items():
        prefix = f"{name}."
        stored = {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
        values[name] = factor.from_tensors(tier, stored)
    return TYPES[kind](**values)


def _padded(values: Tensor, rows: int, *, rows_only: bool = False) -> Tensor:
    """Zeros appended up to `rows` rows, and as many columns unless `rows_only`."""
    missing = rows - values.shape[0]
    if missing < 0:
        raise ValueError(f"a block of {values.shape[0]} rows cannot shrink to {rows}")
    pads = [0, 0] * (values.dim() - 1) if rows_only else [0, missing]
    return functional.pad(values, [*pads, 0, missing]) if missing else values
