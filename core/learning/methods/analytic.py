"""A closed-form classifier on frozen features: one pass over a batch, and no image is stored.

All that the classifier needs of a task are sums over its examples (`core/learning/analytic/sums.py`).
They are stored, added over the tasks in their order, and solved again after each task. The result
is as if all images had been present at once, in any order. Nothing is forgotten, and nothing but
the classifier is learned.

Heads:

- `ncm`: cosine similarity to class means.
- `ridge`: RanPAC, McDonnell et al. 2023, arXiv 2307.02251; ACIL, Zhuang et al. 2022, arXiv
  2205.14922.
- `lda`: SLDA, Hayes & Kanan 2020, arXiv 1909.01520.
- `auto`: the better of the last two by left-out scores of retained examples.

`projection` columns of random features precede the head; with 0 it uses the backbone's features
directly. With `adapt` the first task also trains the backbone, by the recipe's optimizer;
afterwards it stays frozen (RanPAC's first phase; APER, Zhou et al. 2023, arXiv 2303.07338).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from core.contract.manifest import FEATURES, ORDER, REST, STATISTICS, TOTALS
from core.contract.projection import resolve_random_feature_count
from core.learning.analytic import balance, choice, discriminant, ridge
from core.learning.analytic.choice import LeaveOneOutScoredExamples, ScoredExampleLimit
from core.learning.analytic.classes import SUMS, renumber_classes_in_sums, renumber_stored_features
from core.learning.analytic.linear import (
    LinearWeights,
    append_column_of_ones,
    draw_projection_matrix,
    project_to_random_features,
)
from core.learning.analytic.offsets import fit_score_offsets_by_class
from core.learning.analytic.rows import (
    FIELDS,
    LabelledFeatureRows,
    compute_row_order_by_key,
    digest_each_image,
    draw_rows_per_class,
)
from core.learning.analytic.sums import FeatureSums, add_feature_sums_of_tasks
from core.learning.class_map import ClassMap
from core.learning.methods.method import (
    AcceptedRecipes,
    Method,
    TrainingMemoryMultiples,
    TrainingStage,
)
from core.learning.methods.registration import register_method
from core.learning.networks import Network
from core.learning.recipe import StrictRecipeModel
from core.learning.training.context import TaskTrainingContext, TrainingBatch

WEIGHT, BIAS, PROJECTION = "weight", "bias", "matrix"
COSINE_TEMPERATURE = 1 / 16
"""Divisor of cosines: they lie between -1 and 1, where a softmax would hardly separate classes."""
ROUNDING = 4 * 2.0**-23
"""Bound of a score's rounding error, as a share of Σ |w h|: four times float32's spacing at 1.

On nine networks scores in float32 and in float64 differed by up to 3.8e-7 of that sum.
"""
LEFT_OUT = 2000
"""Maximum number of retained examples that get left-out scores.

The standard error of an accuracy of .9 is then .7 points.
"""
JUDGED = ScoredExampleLimit(least=1000, scores=1_000_000, most=LEFT_OUT)
"""Examples that evaluate the heads."""
CHOSEN_BY = ScoredExampleLimit(least=200, scores=400_000, most=1000)
"""Those of them that choose λ and ρ.

On MNIST and CIFAR-100, 1,000 examples chose heads that were at most .001 less accurate than those
chosen by 4,000.
"""
TASKS = "tasks"
"""Key of the totals: numbers of the tasks that they cover, int64."""
LEFT_OUT_SCORES = "left-out scores"
"""Key in the context's cache: the chosen head's scores float64 [n, C], and classes int64 [n]."""
SAMPLE = {"features": 100, "sums": 20}
"""`keep` → number of examples of each class and task that later jobs read."""

UNTRAINED = (
    "analytic reads the features of a network with random weights, which tell classes apart badly. "
    "Give the model a "
    'base, or let its first batch train the network: {"method": {"name": "analytic", "adapt": '
    '{"epochs": 10, "depth": 5}}}'
)


class FirstTaskBackboneTraining(StrictRecipeModel):
    """Training of the backbone in the first task: number of epochs, and depth from 2 to 5."""

    epochs: Annotated[int, Field(ge=1, le=10_000)]
    depth: Annotated[int, Field(ge=2, le=5)]


class AnalyticHyper(StrictRecipeModel):
    """Hyper-parameters of the method `analytic`.

    `head`: the classifier; "auto" chooses `lda` or `ridge`. `projection`: number of random
    features; 0: none; null: none where the backbone has 512 features or more, else 1,000.

    `strength`: λ of `ridge`, in units of the mean of G's diagonal; null: by left-out scores if
    balanced, else by generalised cross-validation. `balanced`: give every class the same weight in
    a ridge. `offsets`: if balanced, lower the scores of larger classes as far as left-out scores
    support it. `shrinkage`: ρ of `lda`; null: by left-out scores, without `balanced` by OAS.
    `prior` of `lda`: "uniform" predicts rare classes as readily as others. `keep`: "features" of
    every training image, or "sums" and the features of 20 images of each class. `adapt`: train the
    backbone in the first task; null: never.
    """

    head: Literal["auto", "ncm", "ridge", "lda"] = "auto"
    projection: Annotated[int, Field(ge=0, le=10_000)] | None = None
    strength: Annotated[float, Field(gt=0, le=1e9)] | None = None
    balanced: bool = True
    offsets: bool = True
    shrinkage: Annotated[float, Field(ge=0, le=1)] | None = None
    prior: discriminant.Prior = "uniform"
    keep: Literal["features", "sums"] = "features"
    adapt: FirstTaskBackboneTraining | None = None


@register_method
class AnalyticMethod(Method):
    """The method `analytic`: a closed-form classifier on frozen features.

    Classes are numbered over all heads. With a single head they are its rows.
    """

    name = "analytic"
    description = (
        "A classifier in closed form on frozen features: each batch costs one pass, no image is "
        "kept, and nothing that was learned is lost. It answers as well as the features tell "
        "classes apart: give it a pretrained base."
    )
    source = (
        "McDonnell et al. 2023, RanPAC, arXiv 2307.02251; Hayes & Kanan 2020, SLDA, arXiv "
        "1909.01520; Zhuang et al. 2022, ACIL, arXiv 2205.14922"
    )
    Hyper = AnalyticHyper
    former_defaults = {  # noqa: RUF012
        "head": "ridge",
        "projection": 1000,
        "balanced": False,
        "offsets": False,
        "keep": "sums",
    }
    accepts = AcceptedRecipes(depths=(1,), head_inits=("zero",))
    recipe_defaults = {"depth": 1}  # noqa: RUF012
    no_neutral = "it solves for its classifier and takes no steps"
    no_merge = "it solves for its classifier, and no weight moves after the first task"
    no_shards = "it takes no steps: each image passes through the network once"
    no_feature_cache = "it takes no steps: each image passes through the network once"
    footprint = TrainingMemoryMultiples(copies=7.0, columns="projection")
    immutable_hyperparameters = ("projection",)
    frozen_until_end_task = (STATISTICS, FEATURES, TOTALS)
    predicts_with = ("own", "projection")
    inference = "analytic"
    hyper: AnalyticHyper

    # Training: only the first task trains, and only with `adapt`.

    @property
    def keeps_backbone_frozen(self) -> bool:  # type: ignore[override]
        """True if no task trains the backbone; False if the first task adapts it."""
        return self.hyper.adapt is None

    def bound_score_rounding(self, network: Network, x: Tensor, task: int | None) -> Tensor:
        """Bound the float32 rounding of each image's scores, float32 [B], in proportion to Σ |w h|.

        That sum is the most that the terms of a score can add up to. They are large and of opposite
        signs where a ridge has a low temperature, or a discriminant divides by a small variance.
        """
        own_tensors = self.state["own"].tensors
        if WEIGHT not in own_tensors:
            return super().bound_score_rounding(network, x, task)
        h = self._compute_classifier_features(network, x, task).abs()
        return ROUNDING * functional.linear(
            h, own_tensors[WEIGHT].abs(), own_tensors[BIAS].abs()
        ).amax(1)

    def plan_training_stages(self, ctx: TaskTrainingContext) -> list[TrainingStage]:
        """Plan one training stage for the first task if `adapt` is set; otherwise train nothing."""
        adapt = self.hyper.adapt
        return (
            [TrainingStage("adapt", adapt.epochs, adapt.depth)]
            if ctx.first and adapt is not None
            else []
        )

    def predict_logits(self, network: Network, x: Tensor, task: int | None) -> Tensor:
        """Compute the closed-form classifier's scores of a head's classes.

        Before the first classifier, these are the network's own logits.
        """
        own_tensors = self.state["own"].tensors
        if WEIGHT not in own_tensors:
            return self.forward(network, x, task)
        start = network.find_first_class_number(task)
        # The classifier has the rows of all heads, one after the other.
        rows = slice(start, start + len(network.list_classes(task)))
        return functional.linear(
            self._compute_classifier_features(network, x, task),
            own_tensors[WEIGHT][rows],
            own_tensors[BIAS][rows],
        )

    def begin_task(self, ctx: TaskTrainingContext) -> None:
        """Draw a new model's random projection, and warn of features from random weights."""
        if ctx.first and not ctx.network.pretrained and self.hyper.adapt is None:
            ctx.warn(UNTRAINED)
        # Trained or not, this task's logits are the network's until `end_task` solves for a
        # classifier.
        self.state["own"].clear_section()
        columns = resolve_random_feature_count(self.hyper.projection, ctx.network.backbone.width)
        if columns and PROJECTION not in self.state["projection"].tensors:
            projection = draw_projection_matrix(
                columns, ctx.network.backbone.width, ctx.recipe.seed
            )
            self.state["projection"].tensors[PROJECTION] = projection.to(ctx.device)

    def end_task(self, ctx: TaskTrainingContext, batches: Iterable[TrainingBatch]) -> None:
        """Add the task's images to the feature sums, and solve for the classifier."""
        with ctx.use_exact_evaluation_mode(), torch.no_grad():
            self._store_task_sums_and_features(ctx)
            self._store_classifier(self._store_totals_and_solve_classifier(ctx))

    def renumber_and_drop_classes(self, classes: ClassMap) -> None:
        """Merge or drop classes in the stored feature sums and features, and redraw the sample."""
        tasks, statistics = self._list_tasks_with_stored_sums(), self.state[STATISTICS]
        statistics.tensors = renumber_classes_in_sums(statistics.tensors, tasks, classes)
        stored, self.state[FEATURES].tensors = self.state[FEATURES].tensors, {}
        for task in tasks:
            rows = renumber_stored_features(stored, task, classes)
            if rows is not None and len(rows):
                self._store_sampled_and_other_features(task, rows)
        self.state[TOTALS].clear_section()

    def recompute_after_class_patch(self, ctx: TaskTrainingContext) -> None:
        """Solve for the classifier again after a patch merged or dropped classes."""
        with ctx.use_exact_evaluation_mode(), torch.no_grad():
            self._store_classifier(self._store_totals_and_solve_classifier(ctx))

    def compute_left_out_scores(self, ctx: TaskTrainingContext) -> tuple[Tensor, Tensor] | None:
        """Compute leave-one-out scores of retained examples, with their classes; None for `ncm`."""
        return ctx.cache.get(LEFT_OUT_SCORES)

    def erase_task_examples(self, tasks: set[int]) -> None:
        """Delete the features of these tasks' images. Their sums stay: they contain no image.

        Totals with such features are deleted with them, and no job gets them.
        """
        stored = self.state[FEATURES].tensors
        for name in [name for name in stored if int(name.split(".")[0]) in tasks]:
            del stored[name]

    def _store_task_sums_and_features(self, ctx: TaskTrainingContext) -> None:
        """Store a task's feature sums and its images' features, in one pass in dataset order."""
        first = ctx.network.find_first_class_number(ctx.task_argument_of_forward)
        sums: FeatureSums | None = None
        batches: list[LabelledFeatureRows] = []
        for batch in ctx.in_order():
            phi = ctx.network.features(batch.x, batch.task).float()
            h = self._add_bias_column(self._project_features(phi))
            sums = sums or FeatureSums.make_empty_sums(h.shape[1], len(ctx.class_rows), h.device)
            sums.add_examples(h, torch.searchsorted(ctx.class_rows, batch.y))
            images = batch.raw(torch.arange(len(phi))).cpu()
            keys = (
                images.reshape(len(phi), -1)
                if ctx.has_keys
                else digest_each_image(images, ctx.recipe.seed)
            )
            batches.append(LabelledFeatureRows(phi.cpu(), batch.y.cpu() + first, keys))
        assert sums is not None, "a task has images"
        stored = {**sums.to_tensors(), "rows": ctx.class_rows + first}
        tensors = {f"{ctx.task}.{name}": tensor for name, tensor in stored.items()}
        self.state[STATISTICS].tensors.update(tensors)
        self._store_sampled_and_other_features(
            ctx.task, LabelledFeatureRows.concatenate_rows(batches)
        )

    def _store_sampled_and_other_features(self, task: int, rows: LabelledFeatureRows) -> None:
        """Store the features that later jobs read, and the remaining ones separately."""
        is_drawn = draw_rows_per_class(rows, SAMPLE[self.hyper.keep])
        stored = self.state[FEATURES].tensors
        drawn = rows.select_rows(is_drawn).to_tensors()
        stored.update({f"{task}.{name}": tensor for name, tensor in drawn.items()})
        if self.hyper.keep == "features" and not bool(is_drawn.all()):
            remaining = rows.select_rows(~is_drawn).to_tensors()
            # An edit restores the dataset's order from it: sums in another order have other bits.
            remaining[ORDER] = torch.cat([is_drawn.nonzero(), (~is_drawn).nonzero()]).squeeze(1)
            stored.update({f"{task}.{REST}.{name}": tensor for name, tensor in remaining.items()})

    def _draw_from_retained_examples(self, classes: int) -> LabelledFeatureRows | None:
        """Draw retained examples of all tasks, equally many of each class where possible.

        Returns None if none are stored. The number of classes never falls, so today's draw contains
        every later draw from the same tasks. The totals therefore store the draw in place of all
        examples.
        """
        tensors, totals = self.state[FEATURES].tensors, self.state[TOTALS].tensors
        tasks = sorted(
            {int(name.split(".")[0]) for name in tensors}
            - set(self._list_tasks_covered_by_totals())
        )
        parts = (
            [LabelledFeatureRows(*(totals[name].cpu() for name in FIELDS))]
            if FIELDS[0] in totals
            else []
        )
        parts += [
            LabelledFeatureRows(*(tensors[f"{task}.{name}"].cpu() for name in FIELDS))
            for task in tasks
        ]
        if not parts:
            return None
        rows = LabelledFeatureRows.concatenate_rows(parts)
        return rows.select_rows(draw_rows_per_class(rows, max(1, LEFT_OUT // classes)))

    def _list_tasks_covered_by_totals(self) -> list[int]:
        """Return the numbers of the tasks that the stored totals include."""
        covered = self.state[TOTALS].tensors.get(TASKS)
        return [] if covered is None else covered.tolist()

    def _store_totals_and_examples(
        self, sums: FeatureSums, rows: LabelledFeatureRows | None
    ) -> None:
        """Store the feature sums over all tasks, and the examples that later jobs may draw."""
        covered = [*self._list_tasks_covered_by_totals(), *self._list_tasks_with_stored_sums()]
        stored = self.state[TOTALS].tensors
        # Replaced, not added to: the new totals contain the old ones.
        stored.clear()
        stored.update(sums.to_tensors())
        # A job that finds its tasks here does not load their sums, so updates cost the same in long
        # streams.
        stored[TASKS] = torch.tensor(sorted(set(covered)))
        if rows is not None:
            stored.update(rows.to_tensors())

    # Features and classifier.

    def _compute_classifier_features(self, network: Network, x: Tensor, task: int | None) -> Tensor:
        """Compute the features [B, K] on which the classifier's scores depend linearly."""
        h = self._project_features(network.features(x, task).float())
        return functional.normalize(h) if self.hyper.head == "ncm" else h

    def _project_features(self, phi: Tensor) -> Tensor:
        """Project features [B, D] to random features [B, K]; unchanged without a projection."""
        drawn = self.state["projection"].tensors.get(PROJECTION)
        return phi if drawn is None else project_to_random_features(phi, drawn)

    def _add_bias_column(self, h: Tensor) -> Tensor:
        """Append a column of ones (the bias) to features, unless they are random features."""
        return h if self._has_random_projection else append_column_of_ones(h)

    @property
    def _has_random_projection(self) -> bool:
        return PROJECTION in self.state["projection"].tensors

    def _list_tasks_with_stored_sums(self) -> list[int]:
        return sorted({int(name.split(".")[0]) for name in self.state["statistics"].tensors})

    def _iterate_totals_and_task_sums(self) -> Iterator[tuple[dict[str, Tensor], Sequence[int]]]:
        """Yield the totals, then each further task's feature sums, with their classes."""
        tensors, totals = self.state["statistics"].tensors, self.state[TOTALS].tensors
        if totals:
            yield totals, range(len(totals["counts"]))
        for task in sorted(
            set(self._list_tasks_with_stored_sums()) - set(self._list_tasks_covered_by_totals())
        ):
            stored = {name: tensors[f"{task}.{name}"] for name in SUMS}
            yield stored, stored["rows"].tolist()

    def _store_classifier(self, linear: LinearWeights) -> None:
        own_tensors = self.state["own"].tensors
        # Solved in float64, stored in float32: predictions are in float32.
        own_tensors[WEIGHT], own_tensors[BIAS] = linear.weight.float(), linear.bias.float()

    def _store_totals_and_solve_classifier(self, ctx: TaskTrainingContext) -> LinearWeights:
        classes = sum(
            len(ctx.network.list_classes(task)) for task in ctx.network.list_tasks_with_own_head()
        )
        sums = add_feature_sums_of_tasks(self._iterate_totals_and_task_sums(), classes)
        rows = self._draw_from_retained_examples(classes)
        # Stored before the solution: the next job starts from them, whatever the head.
        self._store_totals_and_examples(sums, rows)
        if self.hyper.head == "ncm":
            means = (
                functional.normalize(self._drop_bias_column_from_sums(sums).class_means)
                / COSINE_TEMPERATURE
            )
            return LinearWeights(means, means.new_zeros(classes))
        examples = self._select_examples_to_leave_out_in_turn(ctx, sums, rows)
        solvers = {"lda": self._solve_discriminant, "ridge": self._solve_ridge}
        names = list(solvers) if self.hyper.head == "auto" else [self.hyper.head]
        solved = {name: solvers[name](ctx, sums, examples) for name in names}
        labels = examples.labels.cpu()
        scores = {name: each.left_out.cpu() for name, each in solved.items()}
        head = (
            self._choose_and_record_better_head(ctx, scores, labels) if len(names) > 1 else names[0]
        )
        ctx.cache[LEFT_OUT_SCORES] = scores[head], labels
        return solved[head].linear

    def _choose_and_record_better_head(
        self, ctx: TaskTrainingContext, scores: dict[str, Tensor], labels: Tensor
    ) -> str:
        """Choose the head with the better left-out scores, and record it in the manifest."""
        own_json = self.state["own"].json
        before = own_json.get("auto", {}).get("head")
        chosen = choice.choose_best_head_or_keep_current(scores, labels, before)
        own_json["auto"] = {"head": chosen.head, "images": len(labels)}
        if len(labels):
            own_json["auto"] |= {"accuracy": chosen.accuracy, "standard_error": chosen.error}
            listed = ", ".join(f"{name} {value:.1%}" for name, value in chosen.accuracy.items())
            ctx.log(
                f"head {chosen.head}: {listed} right in the mean over classes, measured on "
                f"{len(labels)} training "
                "images, each by a solution without it"
            )
        return chosen.head

    def _select_examples_to_leave_out_in_turn(
        self, ctx: TaskTrainingContext, sums: FeatureSums, rows: LabelledFeatureRows | None
    ) -> LeaveOneOutScoredExamples:
        """Select the examples that compare heads, without any that is its class's only one."""
        if rows is None:
            none = sums.counts[:0]
            return LeaveOneOutScoredExamples(
                sums.cross.new_zeros(0, len(sums.cross)), none, none.bool()
            )
        # Without its only example a class has no mean, so no left-out score exists.
        rows = rows.select_rows(sums.counts.cpu()[rows.classes] > 1)
        # The order of digests is random but fixed, so that the first ones are a reproducible
        # sample.
        order, classes = compute_row_order_by_key(rows.keys), len(sums.counts)
        judged = order[: JUDGED.compute_example_limit(classes)].sort().values
        choosing = torch.isin(judged, order[: CHOSEN_BY.compute_example_limit(classes)])
        rows = rows.select_rows(judged)
        h = self._add_bias_column(self._project_features(rows.features.to(sums.gram.device)))
        heads = [
            len(ctx.network.list_classes(task)) for task in ctx.network.list_tasks_with_own_head()
        ]
        head_of = torch.repeat_interleave(torch.arange(len(heads)), torch.tensor(heads)).to(
            h.device
        )
        labels = rows.classes.to(h.device)
        # An image competes with the classes of its own head alone.
        excluded = head_of[labels][:, None] != head_of if len(heads) > 1 else None
        return LeaveOneOutScoredExamples(h.double(), labels, choosing.to(h.device), excluded)

    def _drop_bias_column_from_sums(self, sums: FeatureSums) -> FeatureSums:
        """Drop the bias column of ones from feature sums, if `_add_bias_column` added one."""
        return sums if self._has_random_projection else sums.drop_last_feature()

    def _solve_discriminant(
        self, ctx: TaskTrainingContext, sums: FeatureSums, examples: LeaveOneOutScoredExamples
    ) -> _SolvedClassifier:
        plain = self._drop_bias_column_from_sums(sums)
        h, share = examples.h[:, : len(plain.gram)], self.hyper.shrinkage
        left_out = discriminant.DiscriminantLeaveOneOut(plain, h, examples.labels)
        if share is None and self.hyper.balanced and len(h):
            share = left_out.select_examples(examples.choosing).choose_shrinkage()
        elif share is None:
            share = discriminant.compute_oas_shrinkage(
                discriminant.compute_shared_covariance(plain), plain.example_count
            )
        linear = discriminant.solve_linear_discriminant_analysis(plain, self.hyper.prior, share)
        scores = left_out.compute_scores(share)
        if self.hyper.prior == "empirical":
            # These scores have a uniform prior.
            scores = scores + (plain.counts / plain.example_count).log()
            return _SolvedClassifier(linear, examples.mask_scores_of_other_heads(scores))
        return self._add_score_offsets_by_class(
            linear, examples.mask_scores_of_other_heads(scores), examples.labels, plain.counts
        )

    def _solve_ridge(
        self, ctx: TaskTrainingContext, sums: FeatureSums, examples: LeaveOneOutScoredExamples
    ) -> _SolvedClassifier:
        weighted = balance.weigh_classes_equally_in_sums(sums) if self.hyper.balanced else sums
        h, labels = examples.h, examples.labels
        left_out = balance.RidgeLeaveOneOut(sums, h, labels) if self.hyper.balanced else None
        strength = self.hyper.strength
        if strength is not None:
            # The hyper-parameter is in units of the mean of G's diagonal.
            strength *= float(weighted.gram.diagonal().mean())
            weight = ridge.solve_ridge_regression(weighted, strength)
        elif left_out is not None and len(labels):
            strength = left_out.select_examples(examples.choosing).choose_strength(weighted)
            weight = ridge.solve_ridge_regression(weighted, strength)
        else:
            strength, weight = ridge.choose_ridge_strength_and_solve(weighted)
        if left_out is not None:
            scores = examples.mask_scores_of_other_heads(left_out.compute_scores(strength))
        else:
            scores = examples.mask_scores_of_other_heads(
                ridge.compute_leave_one_out_scores(sums, strength, weight, h, labels)
            )
        self.state["own"].json["ridge"] = {"strength": strength}
        ctx.log_metric("ridge_strength", strength, {})
        weight = weight.T
        if self._has_random_projection:
            linear = LinearWeights(weight.contiguous(), weight.new_zeros(len(weight)))
        else:
            # The column of ones is the last: its weight is the bias.
            linear = LinearWeights(weight[:, :-1].contiguous(), weight[:, -1].contiguous())
        return self._add_score_offsets_by_class(linear, scores, labels, sums.counts)

    def _add_score_offsets_by_class(
        self, linear: LinearWeights, scores: Tensor, labels: Tensor, counts: Tensor
    ) -> _SolvedClassifier:
        """Add an offset per class to classifier and left-out scores, if the recipe requests it."""
        if not (self.hyper.offsets and self.hyper.balanced):
            return _SolvedClassifier(linear, scores)
        offsets = fit_score_offsets_by_class(scores, labels, counts)
        return _SolvedClassifier(
            LinearWeights(linear.weight, linear.bias + offsets.to(linear.bias.dtype)),
            scores + offsets,
        )


@dataclass(frozen=True)
class _SolvedClassifier:
    """A classifier solved in closed form, with left-out scores of the examples, float64 [n, C]."""

    linear: LinearWeights
    left_out: Tensor
