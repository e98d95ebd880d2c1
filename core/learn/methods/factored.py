"""Importance of layers as Kronecker factors, and a quadratic penalty by it.

As `quadratic.py`, with Kronecker factors per layer in place of one number per weight. With the Fisher
information of a plain network that is the online structured Laplace approximation (Ritter et al. 2018, OSLA).
A sum of Kronecker products is no Kronecker product, so factors are merged as a mean over tasks, and the tasks
are counted.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from core.learn.context import Context
from core.learn.curvature.curvature import Curvature
from core.learn.state import Section

PREFIX = "factors/"


class FactoredImportance:
    """A view of a state section: H = Σ over layers of `counts[layer]` times the layer's mean block.

    counts: tasks that measured the layer, older ones discounted.
    """

    def __init__(self, section: Section) -> None:
        self._section = section
        tensors = section.tensors
        held = {key.removeprefix(PREFIX): t for key, t in tensors.items() if key.startswith(PREFIX)}
        self.counts: dict[str, float] = dict(section.json.get("counts", {}))
        self._mean = Curvature.from_tensors(held, section.json.get("layers", {}))

    @staticmethod
    def of(ctx: Context, section: Section) -> FactoredImportance:
        """The view of a run, unpacked once."""
        if "factored" not in ctx.cache:
            ctx.cache["factored"] = FactoredImportance(section)
        found: FactoredImportance = ctx.cache["factored"]
        return found

    def grow(self, outputs: Mapping[str, int]) -> None:
        """Fit the blocks to a network that grew. outputs: rows by layer.

        Raises ValueError for a missing layer.
        """
        for name in self._mean.blocks:
            if name not in outputs:
                raise ValueError(f"the stored importance names {name}, which the network does not have")
        blocks = {name: block.with_rows(outputs[name]) for name, block in self._mean.blocks.items()}
        self._mean = Curvature(blocks)
        self._store()

    def gradient(self, deltas: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return H Δ by parameter. deltas: Δ by parameter."""
        found: dict[str, Tensor] = {}
        for name, block in self._mean.blocks.items():
            pull, _ = Curvature({name: block}).gradient(deltas)
            found |= {key: r * self.counts[name] for key, r in pull.items()}
        return found

    def value(self, deltas: Mapping[str, Tensor]) -> float:
        """Return 1/2 Δᵀ H Δ. deltas: Δ by parameter. A GPU is waited for, so this is not for each step."""
        halves = {
            name: Curvature({name: block}).gradient(deltas)[1] for name, block in self._mean.blocks.items()
        }
        return sum((self.counts[name] * float(half) for name, half in halves.items()), 0.0)

    def add_task(self, fresh: Curvature, gamma: float, kind: str) -> None:
        """Merge a task that ended. Tasks before it count `gamma` times what they did."""
        blocks = dict(self._mean.blocks)
        counts = {name: gamma * count for name, count in self.counts.items()}
        for name, block in fresh.blocks.items():
            counts[name] = counts.get(name, 0.0) + 1
            known = blocks.get(name)
            blocks[name] = block if known is None else known.merge(block, 1 / counts[name])
        self._mean, self.counts = Curvature(blocks), counts
        self._section.json["kind"] = kind
        self._store()

    def _store(self) -> None:
        kind = self._section.json["kind"]
        self._section.clear()
        self._section.tensors.update({PREFIX + key: t for key, t in self._mean.to_tensors().items()})
        self._section.json.update({"kind": kind, "counts": self.counts, "layers": self._mean.to_json()})
