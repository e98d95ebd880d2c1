"""A classifier in closed form on features that do not move: one pass over a batch, no image kept.

All that the classifier needs of a task are sums over its examples (`core/learn/analytic/sums.py`). They are kept, added
over the tasks in their order, and solved anew after each: as if all images had been there at once, for whatever order
they came in. Nothing is forgotten, and nothing is learned but the classifier.

Heads: `ncm` (cosine similarity to class means), `ridge` (RanPAC, McDonnell et al. 2023, arXiv 2307.02251; ACIL, Zhuang
et al. 2022, arXiv 2205.14922), `lda` (SLDA, Hayes & Kanan 2020, arXiv 1909.01520). `projection` columns of random
features stand before it; 0: the backbone's features as they are. With `adapt` the first task also trains the backbone,
by the recipe's optimizer, which is then frozen for ever (RanPAC's first phase; APER, Zhou et al. 2023, arXiv
2303.07338).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from core.learn.analytic import balance, discriminant, ridge
from core.learn.analytic.linear import Linear
from core.learn.analytic.projection import append_ones, matrix, project
from core.learn.analytic.sums import Sums, total
from core.learn.analytic.temperature import temperature
from core.learn.context import Batch, Context
from core.learn.method import Accepts, Footprint, Method, Stage
from core.learn.networks import Network
from core.learn.recipe import Strict
from core.learn.registration import register

WEIGHT, BIAS, PROJECTION = "weight", "bias", "matrix"
COSINE_TEMPERATURE = 1 / 16
"""Cosines lie between -1 and 1: divided by this, their softmax tells classes apart."""
ROUNDING = 4 * 2.0**-23
"""Of Σ |w h|: float32's spacing at 1, four times. On nine networks scores in float32 and in float64 were up to 3.8e-7
of it apart."""
SPARED = 2000
"""Images at most by which the temperature of a ridge is chosen, each by the solution without it."""


UNTRAINED = (
    "analytic reads the features of a network with random weights, which tell classes apart badly. Give the model a "
    'base, or let its first batch train the network: {"method": {"name": "analytic", "adapt": {"epochs": 10, '
    '"depth": 5}}}'
)


class Adapt(Strict):
    """How the first task trains the backbone: passes over its images, and how much of the network moves."""

    epochs: Annotated[int, Field(ge=1, le=10_000)]
    depth: Annotated[int, Field(ge=2, le=5)]


class AnalyticHyper(Strict):
    """`head`: the classifier. `projection`: random features, 0 for none.

    `strength`: λ of `ridge`, in units of the mean of G's diagonal; null: by generalised cross-validation. `balanced`:
    whether in a ridge every class weighs the same, however many examples it has.
    `shrinkage`: ρ of `lda`; null: by OAS. `prior` of `lda`: "uniform" answers rare classes as readily as others.
    `adapt`: whether the first task also trains the backbone.
    """

    head: Literal["ncm", "ridge", "lda"] = "ridge"
    projection: Annotated[int, Field(ge=0, le=2048)] = 1000
    strength: Annotated[float, Field(gt=0, le=1e9)] | None = None
    balanced: bool = False
    shrinkage: Annotated[float, Field(ge=0, le=1)] | None = None
    prior: discriminant.Prior = "uniform"
    adapt: Adapt | None = None


@register
class Analytic(Method):
    """Classes are numbered over all heads. With a single head they are its rows."""

    name = "analytic"
    description = (
        "A classifier in closed form on frozen features: each batch costs one pass, no image is kept, and nothing "
        "that was learned is lost. It answers as well as the features tell classes apart: give it a pretrained base."
    )
    source = (
        "McDonnell et al. 2023, RanPAC, arXiv 2307.02251; Hayes & Kanan 2020, SLDA, arXiv 1909.01520; "
        "Zhuang et al. 2022, ACIL, arXiv 2205.14922"
    )
    Hyper = AnalyticHyper
    accepts = Accepts(depths=(1,), head_inits=("zero",))
    recipe_defaults = {"depth": 1}  # noqa: RUF012
    no_neutral = "it solves for its classifier and takes no steps"
    no_merge = "it solves for its classifier, and no weight moves after the first task"
    no_feature_cache = "it takes no steps: each image passes through the network once"
    footprint = Footprint(copies=7.0, columns="projection")
    immutable_hyperparameters = ("projection",)
    predicts_with = ("own", "projection")
    inference = "analytic"
    hyper: AnalyticHyper

    # What is trained: nothing, but for the first task with `adapt`.

    def rounding(self, network: Network, x: Tensor, task: int | None) -> Tensor:
        """In proportion to Σ |w h|, the most that the terms of a score can add up to: they are large and of opposite
        signs where a ridge has a low temperature or a discriminant divides by how little features vary."""
        own = self.state["own"].tensors
        if WEIGHT not in own:
            return super().rounding(network, x, task)
        h = self._read(network, x, task).abs()
        return ROUNDING * functional.linear(h, own[WEIGHT].abs(), own[BIAS].abs()).amax(1)

    def stages(self, ctx: Context) -> list[Stage]:
        """The backbone adapts to the first task, if `adapt` says so; of later ones nothing is trained."""
        adapt = self.hyper.adapt
        return [Stage("adapt", adapt.epochs, adapt.depth)] if ctx.first and adapt is not None else []

    def predict_logits(self, network: Network, x: Tensor, task: int | None) -> Tensor:
        """Scores of the classes of a head; before the first classifier, the network's own logits."""
        own = self.state["own"].tensors
        if WEIGHT not in own:
            return self.forward(network, x, task)
        start = network.first_class(task)
        rows = slice(start, start + len(network.classes_of(task)))
        return functional.linear(self._read(network, x, task), own[WEIGHT][rows], own[BIAS][rows])

    def begin_task(self, ctx: Context) -> None:
        """Draw the projection of a new model, and warn of features that know nothing."""
        if ctx.first and not ctx.network.pretrained and self.hyper.adapt is None:
            ctx.warn(UNTRAINED)
        self.state["own"].clear()  # trained or not, this task's logits are the network's until the end
        if self.hyper.projection and PROJECTION not in self.state["projection"].tensors:
            drawn = matrix(self.hyper.projection, ctx.network.backbone.width, ctx.recipe.seed)
            self.state["projection"].tensors[PROJECTION] = drawn.to(ctx.device)

    def end_task(self, ctx: Context, batches: Iterable[Batch]) -> None:
        """Add the task's images to the sums that are kept, and solve for the classifier of all classes so far."""
        with ctx.evaluation(), torch.no_grad():
            examples, labels = self._add(ctx)
            linear = self._solve(ctx, examples, labels)
        own = self.state["own"].tensors
        own[WEIGHT], own[BIAS] = linear.weight.float(), linear.bias.float()

    def _add(self, ctx: Context) -> tuple[Tensor, Tensor]:
        """Keep the sums of the task, in one pass over its images in the dataset's order.

        Returns columns float64 [n, K] and classes int64 [n] of some of the images, evenly spaced.
        """
        step, first = -(-ctx.num_images // SPARED), ctx.network.first_class(ctx.head_task)
        sums: Sums | None = None
        examples, labels, seen = [], [], 0
        for batch in ctx.in_order():
            h = self._columns(self._features(ctx.network, batch.x, batch.task))
            sums = sums or Sums.zero(h.shape[1], len(ctx.class_rows), h.device)
            sums.add(h, torch.searchsorted(ctx.class_rows, batch.y))
            some = slice(-seen % step, None, step)
            examples.append(h[some].double())
            labels.append(batch.y[some] + first)
            seen += len(h)
        assert sums is not None, "a task has images"
        stored = {**sums.packed(), "rows": ctx.class_rows + first}
        tensors = {f"{ctx.task}.{name}": tensor for name, tensor in stored.items()}
        self.state["statistics"].tensors.update(tensors)
        return torch.cat(examples), torch.cat(labels)

    # Features and classifier.

    def _read(self, network: Network, x: Tensor, task: int | None) -> Tensor:
        """float32 [B, K]: what scores are linear in."""
        h = self._features(network, x, task)
        return functional.normalize(h) if self.hyper.head == "ncm" else h

    def _features(self, network: Network, x: Tensor, task: int | None) -> Tensor:
        """float32 [B, K]: what the classifier reads, without the column of ones."""
        phi = network.features(x, task).float()
        drawn = self.state["projection"].tensors.get(PROJECTION) if self.hyper.projection else None
        return phi if drawn is None else project(phi, drawn)

    def _columns(self, h: Tensor) -> Tensor:
        """What sums are taken over: plain features get a column of ones, by which a ridge has its bias."""
        return h if self.hyper.projection else append_ones(h)

    def _tasks(self) -> list[int]:
        return sorted({int(name.split(".")[0]) for name in self.state["statistics"].tensors})

    def _sums(self, classes: int) -> Sums:
        """The sums of all tasks, added in their order."""
        return total(self._each(), classes)

    def _each(self) -> Iterator[tuple[Sums, list[int]]]:
        """The sums of one task after the other, with its classes; unpacked one at a time."""
        tensors = self.state["statistics"].tensors
        for task in self._tasks():
            stored = {name: tensors[f"{task}.{name}"] for name in ("gram", "cross", "counts", "rows")}
            yield Sums.unpacked(stored), stored["rows"].tolist()

    def _solve(self, ctx: Context, examples: Tensor, labels: Tensor) -> Linear:
        classes = sum(len(ctx.network.classes_of(task)) for task in ctx.network.head_tasks())
        sums = self._sums(classes)
        if self.hyper.head == "ridge":
            return self._ridge(ctx, sums, examples, labels)
        if not self.hyper.projection:
            sums = sums.without_last()
        if self.hyper.head == "lda":
            return discriminant.discriminant(sums, self.hyper.prior, self.hyper.shrinkage)
        means = functional.normalize(discriminant.means(sums)) / COSINE_TEMPERATURE
        return Linear(means, means.new_zeros(classes))

    def _ridge(self, ctx: Context, sums: Sums, examples: Tensor, labels: Tensor) -> Linear:
        weighted = balance.balance(sums) if self.hyper.balanced else sums
        strength = self.hyper.strength
        if strength is None:
            strength, weight = ridge.choose(weighted)
        else:
            strength *= float(weighted.gram.diagonal().mean())
            weight = ridge.solve(weighted, strength)
        if self.hyper.balanced:
            examples, labels = (t[sums.counts[labels] > 1] for t in (examples, labels))
            scores = balance.left_out(sums, strength, examples, labels)
        else:
            scores = ridge.left_out(sums, strength, weight, examples, labels)
        cool = temperature(scores, labels) if len(labels) else 1.0
        self.state["own"].json["ridge"] = {"strength": strength, "temperature": cool}
        ctx.log_metric("ridge_strength", strength, {})
        weight = weight.T / cool
        if self.hyper.projection:
            return Linear(weight.contiguous(), weight.new_zeros(len(weight)))
        return Linear(weight[:, :-1].contiguous(), weight[:, -1].contiguous())
