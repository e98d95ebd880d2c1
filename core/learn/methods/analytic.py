"""A classifier in closed form on features that do not move: one pass over a batch, no image kept.

All that the classifier needs of a task are sums over its examples (`core/learn/analytic/sums.py`). They are kept, added
over the tasks in their order, and solved anew after each: as if all images had been there at once, for whatever order
they came in. Nothing is forgotten, and nothing is learned but the classifier.

Heads: `ncm` (cosine similarity to class means), `ridge` (RanPAC, McDonnell et al. 2023, arXiv 2307.02251; ACIL, Zhuang
et al. 2022, arXiv 2205.14922), `lda` (SLDA, Hayes & Kanan 2020, arXiv 1909.01520), and `auto`, the better of the last
two by their answers to kept examples, each left out of the solution. `projection` columns of random features stand
before it; 0: the backbone's features as they are. With `adapt` the first task also trains the backbone, by the recipe's
optimizer, which is then frozen for ever (RanPAC's first phase; APER, Zhou et al. 2023, arXiv
2303.07338).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from core.learn.analytic import balance, choice, discriminant, ridge
from core.learn.analytic.linear import Linear
from core.learn.analytic.offsets import fit_offsets
from core.learn.analytic.projection import append_ones, matrix, project
from core.learn.analytic.rows import FIELDS, Rows, digest_images, draw_rows, order_by_key
from core.learn.analytic.sums import Sums, total
from core.learn.context import Batch, Context
from core.learn.method import Accepts, Footprint, Method, Stage
from core.learn.networks import Network
from core.learn.recipe import Strict
from core.learn.registration import register
from core.protocol.manifest import FEATURES, REST, STATISTICS, TOTALS
from core.protocol.projection import count_columns

WEIGHT, BIAS, PROJECTION = "weight", "bias", "matrix"
COSINE_TEMPERATURE = 1 / 16
"""Cosines lie between -1 and 1: divided by this, their softmax tells classes apart."""
ROUNDING = 4 * 2.0**-23
"""Of Σ |w h|: float32's spacing at 1, four times. On nine networks scores in float32 and in float64 were up to 3.8e-7
of it apart."""
LEFT_OUT = 4000
"""Kept examples at most that are answered by the solution without each. The standard error of their accuracy is half a
point."""
JUDGED, CHOSEN_BY = (1000, 1_000_000), (200, 400_000)
"""Of these examples at least, and scores at most beyond that, one for each example and class: those that judge the
heads, and those of them that λ and ρ are chosen by. Updates cost nearly the same however many classes there are."""
TASKS = "tasks"
"""Of the totals: numbers of the tasks that they cover, int64."""
LEFT_OUT_SCORES = "left-out scores"
"""In the context's cache: scores float64 [n, C] of the head that answers, and classes int64 [n]."""
SAMPLE = {"features": 100, "sums": 20}
"""`keep` → examples of each class and task that later jobs read."""

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
    """`head`: the classifier; "auto": `lda` or `ridge`. `projection`: random features; 0: none; null: none where the
    backbone has 512 features or more, else 1,000.

    `strength`: λ of `ridge`, in units of the mean of G's diagonal; null: by left-out answers where it is balanced, else
    by generalised cross-validation. `balanced`: whether in a ridge every class weighs the same.
    `offsets`: whether classes of many images, where each weighs the same, must score above others by what left-out
    answers say.
    `shrinkage`: ρ of `lda`; null: by left-out answers, without `balanced` by OAS. `prior` of `lda`: "uniform" answers
    rare classes as readily as others.
    `keep`: "features" of every training image, or "sums" and the features of 20 images of each class.
    `adapt`: whether the first task also trains the backbone.
    """

    head: Literal["auto", "ncm", "ridge", "lda"] = "auto"
    projection: Annotated[int, Field(ge=0, le=10_000)] | None = None
    strength: Annotated[float, Field(gt=0, le=1e9)] | None = None
    balanced: bool = True
    offsets: bool = True
    shrinkage: Annotated[float, Field(ge=0, le=1)] | None = None
    prior: discriminant.Prior = "uniform"
    keep: Literal["features", "sums"] = "features"
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
    former_defaults = {  # noqa: RUF012
        "head": "ridge",
        "projection": 1000,
        "balanced": False,
        "offsets": False,
        "keep": "sums",
    }
    accepts = Accepts(depths=(1,), head_inits=("zero",))
    recipe_defaults = {"depth": 1}  # noqa: RUF012
    no_neutral = "it solves for its classifier and takes no steps"
    no_merge = "it solves for its classifier, and no weight moves after the first task"
    no_shards = "it takes no steps: each image passes through the network once"
    no_feature_cache = "it takes no steps: each image passes through the network once"
    footprint = Footprint(copies=7.0, columns="projection")
    immutable_hyperparameters = ("projection",)
    frozen_until_end_task = (STATISTICS, FEATURES, TOTALS)
    predicts_with = ("own", "projection")
    inference = "analytic"
    hyper: AnalyticHyper

    # What is trained: nothing, but for the first task with `adapt`.

    @property
    def keeps_backbone(self) -> bool:  # type: ignore[override]
        """True unless the first task adapts the backbone."""
        return self.hyper.adapt is None

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
        columns = count_columns(self.hyper.projection, ctx.network.backbone.width)
        if columns and PROJECTION not in self.state["projection"].tensors:
            drawn = matrix(columns, ctx.network.backbone.width, ctx.recipe.seed)
            self.state["projection"].tensors[PROJECTION] = drawn.to(ctx.device)

    def end_task(self, ctx: Context, batches: Iterable[Batch]) -> None:
        """Add the task's images to the sums that are kept, and solve for the classifier of all classes so far."""
        with ctx.evaluation(), torch.no_grad():
            self._add(ctx)
            linear = self._solve(ctx)
        own = self.state["own"].tensors
        own[WEIGHT], own[BIAS] = linear.weight.float(), linear.bias.float()

    def left_out_scores(self, ctx: Context) -> tuple[Tensor, Tensor] | None:
        """Return the answers to kept examples, each by the solution without it; None of class means."""
        return ctx.cache.get(LEFT_OUT_SCORES)

    def erase(self, tasks: set[int]) -> None:
        """Remove the features of these tasks' images. Their sums stay: they hold no image.

        Totals with such features are deleted with them, and no job gets them.
        """
        kept = self.state[FEATURES].tensors
        for name in [name for name in kept if int(name.split(".")[0]) in tasks]:
            del kept[name]

    def _add(self, ctx: Context) -> None:
        """Keep the sums of the task and features of its images, in one pass over them in the dataset's order."""
        first = ctx.network.first_class(ctx.head_task)
        sums: Sums | None = None
        batches: list[Rows] = []
        for batch in ctx.in_order():
            phi = ctx.network.features(batch.x, batch.task).float()
            h = self._columns(self._project(phi))
            sums = sums or Sums.zero(h.shape[1], len(ctx.class_rows), h.device)
            sums.add(h, torch.searchsorted(ctx.class_rows, batch.y))
            keys = digest_images(batch.raw(torch.arange(len(phi))), ctx.recipe.seed)
            batches.append(Rows(phi.cpu(), batch.y.cpu() + first, keys))
        assert sums is not None, "a task has images"
        stored = {**sums.packed(), "rows": ctx.class_rows + first}
        tensors = {f"{ctx.task}.{name}": tensor for name, tensor in stored.items()}
        self.state[STATISTICS].tensors.update(tensors)
        self._keep(ctx.task, Rows.join(batches))

    def _keep(self, task: int, rows: Rows) -> None:
        """Keep the features that later jobs read, and apart from them the rest."""
        is_drawn = draw_rows(rows, SAMPLE[self.hyper.keep])
        kept = self.state[FEATURES].tensors
        kept.update({f"{task}.{name}": tensor for name, tensor in rows.select(is_drawn).packed().items()})
        if self.hyper.keep == "features" and not bool(is_drawn.all()):
            rest = rows.select(~is_drawn).packed()
            kept.update({f"{task}.{REST}.{name}": tensor for name, tensor in rest.items()})

    def _draw_left_out(self, classes: int) -> Rows | None:
        """Draw kept examples of all tasks, equally many of each class as far as there are; None: none are kept.

        Classes become no fewer, so what is drawn now contains what is drawn later of the tasks so far: the totals keep
        it in place of all examples.
        """
        tensors, totals = self.state[FEATURES].tensors, self.state[TOTALS].tensors
        tasks = sorted({int(name.split(".")[0]) for name in tensors} - set(self._covered()))
        parts = [Rows(*(totals[name].cpu() for name in FIELDS))] if FIELDS[0] in totals else []
        parts += [Rows(*(tensors[f"{task}.{name}"].cpu() for name in FIELDS)) for task in tasks]
        if not parts:
            return None
        rows = Rows.join(parts)
        return rows.select(draw_rows(rows, max(1, LEFT_OUT // classes)))

    def _covered(self) -> list[int]:
        """Numbers of the tasks that the totals cover."""
        covered = self.state[TOTALS].tensors.get(TASKS)
        return [] if covered is None else covered.tolist()

    def _keep_totals(self, sums: Sums, rows: Rows | None) -> None:
        """Keep the sums of all tasks, and the examples of them that later jobs may draw from."""
        covered = [*self._covered(), *self._tasks()]
        kept = self.state[TOTALS].tensors
        kept.clear()
        kept.update(sums.packed())
        kept[TASKS] = torch.tensor(sorted(set(covered)))
        if rows is not None:
            kept.update(rows.packed())

    # Features and classifier.

    def _read(self, network: Network, x: Tensor, task: int | None) -> Tensor:
        """float32 [B, K]: what scores are linear in."""
        h = self._features(network, x, task)
        return functional.normalize(h) if self.hyper.head == "ncm" else h

    def _features(self, network: Network, x: Tensor, task: int | None) -> Tensor:
        """float32 [B, K]: what the classifier reads, without the column of ones."""
        return self._project(network.features(x, task).float())

    def _project(self, phi: Tensor) -> Tensor:
        """Pass features [B, D] through the random ones; [B, K]."""
        drawn = self.state["projection"].tensors.get(PROJECTION)
        return phi if drawn is None else project(phi, drawn)

    def _columns(self, h: Tensor) -> Tensor:
        """What sums are taken over: plain features get a column of ones, by which a ridge has its bias."""
        return h if self._is_projected else append_ones(h)

    @property
    def _is_projected(self) -> bool:
        return PROJECTION in self.state["projection"].tensors

    def _tasks(self) -> list[int]:
        return sorted({int(name.split(".")[0]) for name in self.state["statistics"].tensors})

    def _sums(self, classes: int) -> Sums:
        """The sums of all tasks, added in their order."""
        return total(self._each(), classes)

    def _each(self) -> Iterator[tuple[Sums, Sequence[int]]]:
        """The totals, then the sums of one task after the other, with their classes; unpacked one at a time."""
        tensors, totals = self.state["statistics"].tensors, self.state[TOTALS].tensors
        if totals:
            yield Sums.unpacked(totals), range(len(totals["counts"]))
        for task in sorted(set(self._tasks()) - set(self._covered())):
            stored = {name: tensors[f"{task}.{name}"] for name in ("gram", "cross", "counts", "rows")}
            yield Sums.unpacked(stored), stored["rows"].tolist()

    def _solve(self, ctx: Context) -> Linear:
        classes = sum(len(ctx.network.classes_of(task)) for task in ctx.network.head_tasks())
        sums, rows = self._sums(classes), self._draw_left_out(classes)
        self._keep_totals(sums, rows)
        if self.hyper.head == "ncm":
            means = functional.normalize(discriminant.means(self._plain(sums))) / COSINE_TEMPERATURE
            return Linear(means, means.new_zeros(classes))
        examples = self._take_examples(ctx, sums, rows)
        solvers = {"lda": self._solve_discriminant, "ridge": self._solve_ridge}
        names = list(solvers) if self.hyper.head == "auto" else [self.hyper.head]
        solved = {name: solvers[name](ctx, sums, examples) for name in names}
        labels = examples.labels.cpu()
        scores = {name: each.left_out.cpu() for name, each in solved.items()}
        head = self._choose(ctx, scores, labels) if len(names) > 1 else names[0]
        ctx.cache[LEFT_OUT_SCORES] = scores[head], labels
        return solved[head].linear

    def _choose(self, ctx: Context, scores: dict[str, Tensor], labels: Tensor) -> str:
        """Choose the head that answers left-out examples better; the manifest says by how much."""
        own = self.state["own"].json
        before = own.get("auto", {}).get("head")
        chosen = choice.choose_head(scores, labels, before)
        own["auto"] = {"head": chosen.head, "images": len(labels)}
        if len(labels):
            own["auto"] |= {"accuracy": chosen.accuracy, "standard_error": chosen.error}
            listed = ", ".join(f"{name} {value:.1%}" for name, value in chosen.accuracy.items())
            ctx.log(
                f"head {chosen.head}: {listed} right in the mean over classes, measured on {len(labels)} training "
                "images, each by a solution without it"
            )
        return chosen.head

    def _take_examples(self, ctx: Context, sums: Sums, rows: Rows | None) -> _Examples:
        """Take the examples that judge the heads: all but those of a class that has no other example."""
        if rows is None:
            none = sums.counts[:0]
            return _Examples(sums.cross.new_zeros(0, len(sums.cross)), none, none.bool())
        rows = rows.select(sums.counts.cpu()[rows.classes] > 1)
        order, classes = order_by_key(rows.keys), len(sums.counts)
        judged = order[: _count_examples(JUDGED, classes)].sort().values
        choosing = torch.isin(judged, order[: _count_examples(CHOSEN_BY, classes)])
        rows = rows.select(judged)
        h = self._columns(self._project(rows.features.to(sums.gram.device)))
        heads = [len(ctx.network.classes_of(task)) for task in ctx.network.head_tasks()]
        head_of = torch.repeat_interleave(torch.arange(len(heads)), torch.tensor(heads)).to(h.device)
        labels = rows.classes.to(h.device)
        excluded = head_of[labels][:, None] != head_of if len(heads) > 1 else None
        return _Examples(h.double(), labels, choosing.to(h.device), excluded)

    def _plain(self, sums: Sums) -> Sums:
        """Leave out the column of ones, which only a ridge has."""
        return sums if self._is_projected else sums.without_last()

    def _solve_discriminant(self, ctx: Context, sums: Sums, examples: _Examples) -> _Solved:
        plain = self._plain(sums)
        h, share = examples.h[:, : len(plain.gram)], self.hyper.shrinkage
        if share is None and self.hyper.balanced and len(h):
            share = discriminant.choose_share(plain, h[examples.choosing], examples.labels[examples.choosing])
        elif share is None:
            share = discriminant.oas(discriminant.covariance(plain), plain.examples)
        linear = discriminant.discriminant(plain, self.hyper.prior, share)
        scores = discriminant.left_out(plain, h, examples.labels, share)
        if self.hyper.prior == "empirical":
            scores = scores + (plain.counts / plain.examples).log()
            return _Solved(linear, examples.mask(scores))
        return self._with_offsets(linear, examples.mask(scores), examples.labels, plain.counts)

    def _solve_ridge(self, ctx: Context, sums: Sums, examples: _Examples) -> _Solved:
        weighted = balance.balance(sums) if self.hyper.balanced else sums
        h, labels = examples.h, examples.labels
        strength = self.hyper.strength
        if strength is not None:
            strength *= float(weighted.gram.diagonal().mean())
            weight = ridge.solve(weighted, strength)
        elif self.hyper.balanced and len(labels):
            strength = balance.choose_strength(sums, h[examples.choosing], labels[examples.choosing])
            weight = ridge.solve(weighted, strength)
        else:
            strength, weight = ridge.choose(weighted)
        if self.hyper.balanced:
            scores = balance.left_out(sums, strength, h, labels)
        else:
            scores = ridge.left_out(sums, strength, weight, h, labels)
        scores = examples.mask(scores)
        self.state["own"].json["ridge"] = {"strength": strength}
        ctx.log_metric("ridge_strength", strength, {})
        weight = weight.T
        if self._is_projected:
            linear = Linear(weight.contiguous(), weight.new_zeros(len(weight)))
        else:
            linear = Linear(weight[:, :-1].contiguous(), weight[:, -1].contiguous())
        return self._with_offsets(linear, scores, labels, sums.counts)

    def _with_offsets(self, linear: Linear, scores: Tensor, labels: Tensor, counts: Tensor) -> _Solved:
        """The classifier and its left-out scores, with an offset for each class where they are asked for."""
        if not (self.hyper.offsets and self.hyper.balanced):
            return _Solved(linear, scores)
        offsets = fit_offsets(scores, labels, counts)
        return _Solved(Linear(linear.weight, linear.bias + offsets.to(linear.bias.dtype)), scores + offsets)


def _count_examples(bounds: tuple[int, int], classes: int) -> int:
    """Return how many examples are scored against each of `classes`, for (examples at least, scores at most)."""
    least, scores = bounds
    return max(least, scores // classes)


@dataclass(frozen=True)
class _Examples:
    """Kept examples that judge a classifier.

    Attributes:
        h: float64 [n, K], what sums are taken over.
        labels: int64 [n].
        choosing: bool [n], those that λ and ρ are chosen by.
        excluded: bool [n, C], classes of other heads than the example's; None: there is one head.
    """

    h: Tensor
    labels: Tensor
    choosing: Tensor
    excluded: Tensor | None = None

    def mask(self, scores: Tensor) -> Tensor:
        """Return scores [n, C] with those of other heads at −inf."""
        return scores if self.excluded is None else scores.masked_fill(self.excluded, -torch.inf)


@dataclass(frozen=True)
class _Solved:
    """A classifier, and its scores float64 [n, C] of the examples, each by the solution without it."""

    linear: Linear
    left_out: Tensor
