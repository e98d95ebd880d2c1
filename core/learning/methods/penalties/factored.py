"""Importance of layers as Kronecker factors, and its quadratic penalty.

Like `quadratic.py`, with Kronecker factors per layer in place of one number per weight. With the
Fisher information of a plain network that is the online structured Laplace approximation (Ritter et
al. 2018, OSLA). A sum of Kronecker products is no Kronecker product. Factors are therefore merged
as a mean over tasks, and the tasks are counted.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from core.learning.curvature.curvature import LayerCurvatures
from core.learning.state import MethodStateSection
from core.learning.training.context import TaskTrainingContext

PREFIX = "factors/"


class FactoredImportance:
    """Kronecker-factored parameter importance, stored as a block for each layer in a state section.

    counts: number of tasks that measured the layer, older ones discounted.
    """

    def __init__(self, section: MethodStateSection) -> None:
        self._section = section
        tensors = section.tensors
        stored = {
            key.removeprefix(PREFIX): t for key, t in tensors.items() if key.startswith(PREFIX)
        }
        self.counts: dict[str, float] = dict(section.json.get("counts", {}))
        self._mean = LayerCurvatures.from_tensors(stored, section.json.get("layers", {}))

    @staticmethod
    def get_cached_importance(
        ctx: TaskTrainingContext, section: MethodStateSection
    ) -> FactoredImportance:
        """Return the factored importance of a run, cached after it was unpacked once."""
        if "factored" not in ctx.cache:
            ctx.cache["factored"] = FactoredImportance(section)
        importance: FactoredImportance = ctx.cache["factored"]
        return importance

    def grow_blocks_to_outputs(self, outputs: Mapping[str, int]) -> None:
        """Pad each layer's importance block to the `outputs` rows of a network that grew.

        Raises ValueError for a missing layer.
        """
        for name in self._mean.blocks:
            if name not in outputs:
                raise ValueError(
                    f"the stored importance names {name}, which the network does not have"
                )
        blocks = {
            name: block.pad_to_outputs(outputs[name]) for name, block in self._mean.blocks.items()
        }
        self._mean = LayerCurvatures(blocks)
        self._write_to_section()

    def drop_layer(self, name: str) -> None:
        """Remove the importance of a layer, if there is one."""
        if name in self._mean.blocks:
            self._mean = LayerCurvatures({n: b for n, b in self._mean.blocks.items() if n != name})
            del self.counts[name]
            self._write_to_section()

    def compute_penalty_gradient(self, deltas: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute the penalty's gradient H Δ by parameter, for displacements Δ by parameter."""
        gradients: dict[str, Tensor] = {}
        for name, block in self._mean.blocks.items():
            pull, _ = LayerCurvatures({name: block}).compute_penalty_and_gradient(deltas)
            gradients |= {key: r * self.counts[name] for key, r in pull.items()}
        return gradients

    def compute_penalty_value(self, deltas: Mapping[str, Tensor]) -> float:
        """Compute the penalty ½ Δᵀ H Δ, for displacements Δ by parameter.

        The result is read from the device, so a GPU must finish first: do not call it in each step.
        """
        halves = {
            name: LayerCurvatures({name: block}).compute_penalty_and_gradient(deltas)[1]
            for name, block in self._mean.blocks.items()
        }
        return sum((self.counts[name] * float(half) for name, half in halves.items()), 0.0)

    def merge_task_curvature(self, fresh: LayerCurvatures, gamma: float, kind: str) -> None:
        """Add a finished task's curvature to the importance, discounting earlier tasks by
        `gamma`.
        """
        blocks = dict(self._mean.blocks)
        # Discounted before the new task is counted: gamma applies to earlier tasks alone.
        counts = {name: gamma * count for name, count in self.counts.items()}
        for name, block in fresh.blocks.items():
            counts[name] = counts.get(name, 0.0) + 1
            previous = blocks.get(name)
            # 1 / counts is the new task's share of the mean.
            blocks[name] = (
                block if previous is None else previous.average_with(block, 1 / counts[name])
            )
        self._mean, self.counts = LayerCurvatures(blocks), counts
        self._section.json["kind"] = kind
        self._write_to_section()

    def _write_to_section(self) -> None:
        # Read before the section is cleared.
        kind = self._section.json["kind"]
        self._section.clear_section()
        self._section.tensors.update(
            {PREFIX + key: t for key, t in self._mean.to_tensors().items()}
        )
        self._section.json.update(
            {"kind": kind, "counts": self.counts, "layers": self._mean.to_json()}
        )
