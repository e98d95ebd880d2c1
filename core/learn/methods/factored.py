"""Importance of whole layers to earlier tasks, and a quadratic penalty that holds layers by it.

As `quadratic.py`, with Kronecker factors for each layer in place of one number for each weight: with the Fisher
information of a plain network that is the online structured Laplace approximation (Ritter et al. 2018, OSLA). A
layer's factors are merged as a mean over tasks and counted, since a sum of Kronecker products has no factors itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from core.learn.context import Context
from core.learn.curvature.curvature import Curvature
from core.learn.state import Section

PREFIX = "factors/"


class Factored:
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
    def of(ctx: Context, section: Section) -> Factored:
        """The view of a run, unpacked once."""
        if "factored" not in ctx.derived:
            ctx.derived["factored"] = Factored(section)
        found: Factored = ctx.derived["factored"]
        return found

    def fit(self, outputs: Mapping[str, int]) -> None:
        """Fit the blocks to a network that grew. outputs: rows by layer. Raises ValueError for a missing layer."""
        for name in self._mean.blocks:
            if name not in outputs:
                raise ValueError(f"the stored importance names {name}, which the network does not have")
        blocks = {name: block.grown(outputs[name]) for name, block in self._mean.blocks.items()}
        self._mean = Curvature(blocks)
        self._store()

    def gradient(self, deltas: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], float]:
        """H Δ by parameter, and 1/2 Δᵀ H Δ. deltas: by parameter."""
        found: dict[str, Tensor] = {}
        value = 0.0
        for name, block in self._mean.blocks.items():
            pull, half = Curvature({name: block}).gradient(deltas)
            found |= {key: r * self.counts[name] for key, r in pull.items()}
            value += self.counts[name] * float(half)
        return found, value

    def learn(self, fresh: Curvature, gamma: float, kind: str) -> None:
        """Take in a task that ended; those before it count `gamma` times as much as they did."""
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
