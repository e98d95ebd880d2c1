"""Curvature of one layer: a symmetric positive H over displacements d [o, w] of its weight, bias as last column.

A block knows how to multiply, H d, which is the gradient of the penalty ½ dᵀ H d, and how to merge with the block of
another task: every stored statistic for itself, which is what measuring both tasks' data together gives (Shon et al.
2022, DLCFT, section 3.2). No inverse is ever taken, and so nothing is damped. vec(d) goes by rows, as flatten does:
a Kronecker block is G ⊗ A with G [o, o] and A [w, w].
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
    """Fields are tensors or factors. Blocks are never changed; merging makes a new one."""

    kind: ClassVar[str]

    @abstractmethod
    def columns(self, outputs: int) -> int:
        """w of a displacement [o, w] with `outputs` rows."""

    @abstractmethod
    def mul(self, d: Tensor) -> Tensor:
        """H d for d [o, w]."""

    @abstractmethod
    def trace(self) -> Tensor:
        """Of H, 0-dim."""

    def quad(self, d: Tensor) -> Tensor:
        """dᵀ H d, 0-dim."""
        return (d * self.mul(d)).sum()

    def fitted(self, limit: int | None, kernel: int = 1) -> Block:
        """With every factor in a tier of at most `limit` bytes; a diagonal when one of them fits in none."""
        return self

    def grown(self, outputs: int) -> Block:
        """For a layer of `outputs` rows, of which those that were added have no curvature. ValueError: fewer rows."""
        raise ValueError(f"a {self.kind} block cannot grow")

    def merge(self, other: Block, share: float) -> Block:
        """(1 - share) · self + share · other for each stored statistic. ValueError: another type or shape."""
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
        """A tensor as its field's name, a factor's as `<field>.<name>`."""
        found: dict[str, Tensor] = {}
        for name, value in self._values().items():
            if isinstance(value, Factor):
                found |= {f"{name}.{key}": tensor for key, tensor in value.to_tensors().items()}
            else:
                found[name] = value
        return found

    @property
    def tiers(self) -> dict[str, str]:
        """Storage tier by field, of the fields that are factors."""
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
        return self.values.shape[1]

    def mul(self, d: Tensor) -> Tensor:
        return self.values * d

    def grown(self, outputs: int) -> Block:
        return Diagonal(_padded(self.values, outputs, rows_only=True))

    def trace(self) -> Tensor:
        return self.values.sum()


@dataclass(frozen=True, eq=False)
class Kfac(Block):
    """H = G ⊗ A, A [w, w] the mean of a aᵀ over examples and positions, G [o, o] the mean of Σ_s g gᵀ over examples.

    Grosse & Martens 2016, arXiv 1602.01407 (KFC); "expand" in Eschenhagen et al. 2023, arXiv 2311.00636.
    """

    a: Factor
    g: Factor
    kind: ClassVar[str] = "kfac"

    def columns(self, outputs: int) -> int:
        return self.a.size

    def mul(self, d: Tensor) -> Tensor:
        return self.a.times(self.g.times(d.T).T)

    def grown(self, outputs: int) -> Block:
        return (
            self if outputs == self.g.size else Kfac(self.a, factor.dense(_padded(self.g.dense(), outputs)))
        )

    def trace(self) -> Tensor:
        return self.a.trace() * self.g.trace()

    def fitted(self, limit: int | None, kernel: int = 1) -> Block:
        a, g = factor.fitted(self.a.dense(), limit, kernel), factor.fitted(self.g.dense(), limit)
        if a is None or g is None:
            return Diagonal(torch.outer(self.g.diagonal(), self.a.diagonal()))
        return Kfac(a, g)


@dataclass(frozen=True, eq=False)
class TKfac(Block):
    """H = Q ⊗ P / δ, P = E Σ Mᵀ M, Q = E Σ M Mᵀ, δ = tr P = tr Q: both partial traces are the exact block's.

    M is an example's gradient. After Gao et al. 2021, arXiv 2011.10741 (trace-restricted K-FAC), whose form for
    linear layers this is; for convolutions it assumes nothing about positions.
    """

    p: Factor
    q: Factor
    delta: Tensor
    kind: ClassVar[str] = "tkfac"

    def columns(self, outputs: int) -> int:
        return self.p.size

    def mul(self, d: Tensor) -> Tensor:
        return self.p.times(self.q.times(d.T).T / self._divisor)

    def grown(self, outputs: int) -> Block:
        if outputs == self.q.size:
            return self
        return TKfac(self.p, factor.dense(_padded(self.q.dense(), outputs)), self.delta)

    def trace(self) -> Tensor:
        return self.p.trace() * (self.q.trace() / self._divisor)

    def fitted(self, limit: int | None, kernel: int = 1) -> Block:
        p, q = factor.fitted(self.p.dense(), limit, kernel), factor.fitted(self.q.dense(), limit)
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
        return self.matrix.shape[0] // outputs

    def mul(self, d: Tensor) -> Tensor:
        return (self.matrix @ d.flatten()).view_as(d)

    def trace(self) -> Tensor:
        return self.matrix.trace()


@dataclass(frozen=True, eq=False)
class Gram(Block):
    """H = I ⊗ A, A [w, w]: a head's under half the squared error, for any number of rows.

    Rows that are appended later have the curvature of those that were there: nothing of a row is stored.
    """

    a: Factor
    kind: ClassVar[str] = "gram"

    def columns(self, outputs: int) -> int:
        return self.a.size

    def mul(self, d: Tensor) -> Tensor:
        return self.a.times(d)

    def trace(self) -> Tensor:
        """Of one row's A: how many rows there are is not known here."""
        return self.a.trace()

    def fitted(self, limit: int | None, kernel: int = 1) -> Block:
        a = factor.fitted(self.a.dense(), limit)
        if a is None:
            raise ValueError(f"a head's factor of size {self.a.size} fits in no tier of {limit} bytes")
        return Gram(a)


@dataclass(frozen=True, eq=False)
class Channels(Block):
    """blocks [o, w, w]: each output's own exact block, none between outputs. For grouped convolutions."""

    blocks: Tensor
    kind: ClassVar[str] = "channels"

    def columns(self, outputs: int) -> int:
        return self.blocks.shape[2]

    def mul(self, d: Tensor) -> Tensor:
        return (self.blocks @ d[:, :, None]).squeeze(2)

    def grown(self, outputs: int) -> Block:
        return Channels(_padded(self.blocks, outputs, rows_only=True))

    def trace(self) -> Tensor:
        return self.blocks.diagonal(dim1=1, dim2=2).sum()


TYPES: dict[str, type[Block]] = {t.kind: t for t in (Diagonal, Kfac, TKfac, Exact, Gram, Channels)}


def from_tensors(kind: str, tiers: Mapping[str, str], tensors: Mapping[str, Tensor]) -> Block:
    """The block that `to_tensors`, `kind` and `tiers` came from. Raises ValueError for an unknown kind or tier."""
    if kind not in TYPES:
        raise ValueError(f"unknown kind of curvature {kind!r}; known: {', '.join(TYPES)}")
    values: dict[str, Tensor | Factor] = {k: t for k, t in tensors.items() if "." not in k}
    for name, tier in tiers.items():
        prefix = f"{name}."
        stored = {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
        values[name] = factor.from_tensors(tier, stored)
    return TYPES[kind](**values)


def _padded(values: Tensor, rows: int, *, rows_only: bool = False) -> Tensor:
    """With zeros up to `rows` rows, and as many columns unless `rows_only`."""
    missing = rows - values.shape[0]
    if missing < 0:
        raise ValueError(f"a block of {values.shape[0]} rows cannot shrink to {rows}")
    pads = [0, 0] * (values.dim() - 1) if rows_only else [0, missing]
    return functional.pad(values, [*pads, 0, missing]) if missing else values
