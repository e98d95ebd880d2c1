"""Online elastic weight consolidation: one running Fisher information around the latest weights.

F ← gamma · F + F_task and penalty (lambda / 2) Σ F (θ - θ*)², θ* the weights after the latest task
(Schwarz et al. 2018, Huszár 2018). gamma applies once, when a task ends, and not again in the
penalty. With Kronecker factors in place of the diagonal it is the online structured Laplace
approximation (Ritter et al. 2018).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from core.learning.class_map import ClassMap
from core.learning.curvature.curvature import LayerCurvatures
from core.learning.curvature.estimate import CurvatureEstimator
from core.learning.curvature.fisher import compute_log_probability_gradients
from core.learning.curvature.layers import (
    list_layers_owning_parameters,
    require_layer_with_measurable_curvature,
)
from core.learning.methods.method import AcceptedRecipes, TrainingMemoryMultiples
from core.learning.methods.penalties.ewc import EwcHyper, EwcMethod
from core.learning.methods.penalties.factored import FactoredImportance
from core.learning.methods.penalties.quadratic import clone_parameter_values, iterate_example_chunks
from core.learning.methods.registration import register_method
from core.learning.recipe import Share
from core.learning.training.context import TaskTrainingContext, TrainingBatch


class EwcOnlineHyper(EwcHyper):
    """Hyper-parameters of the method `ewc-online`, in addition to those of EWC.

    `gamma`: share of the earlier tasks' importance that remains when a task ends. With gamma 1
    importance grows with every task; 0.95 suits streams of more than 20 tasks. `curvature`: one
    number per weight, or Kronecker factors per layer, which also model how weights act together, in
    about eight times the memory ("kfac" is OSLA).
    """

    gamma: Share = 1.0
    curvature: Literal["diagonal", "kfac", "tkfac"] = "diagonal"


@register_method
class EwcOnlineMethod(EwcMethod):
    """The method `ewc-online`: one Gaussian penalty around the last task's solution.

    It is diagonal, or Kronecker-factored by layer.
    """

    name = "ewc-online"
    accepts = AcceptedRecipes(unfit={"timm": {"curvature": ("kfac", "tkfac")}})
    footprint = TrainingMemoryMultiples(
        copies=10.0,
        copies_with={"curvature": {"kfac": 20.0, "tkfac": 20.0}},
        examples=45.0,
        images=64,
    )
    description = (
        "Elastic weight consolidation with one running Fisher and the latest anchor. Keeps no "
        "data. With SGD, weights that are held too steeply for lr take smaller steps."
    )
    source = (
        "Schwarz et al. 2018, arXiv 1805.06370; Huszár 2018, arXiv 1712.03847; Ritter et al. 2018, "
        "arXiv 1805.07810"
    )
    Hyper = EwcOnlineHyper
    neutral = EwcOnlineHyper.model_validate({"lambda": 0.0})
    hyper: EwcOnlineHyper

    def begin_task(self, ctx: TaskTrainingContext) -> None:
        """Pad the stored importance to a network that grew, when a task begins.

        Curvature of another kind is dropped with a warning.
        """
        section = self.state[self.section]
        stored_kind = section.json.get("kind", "diagonal")
        if section and stored_kind != self.hyper.curvature:
            ctx.warn(
                f"the curvature kept so far is {stored_kind}, not {self.hyper.curvature}: earlier "
                "tasks are unprotected"
            )
            # Importance of another form cannot be added to.
            section.clear_section()
        if not self._uses_kronecker_factors:
            super().begin_task(ctx)
        elif section:
            names = section.json["layers"]
            # Once per task: a head that grew has more outputs than the stored factors.
            FactoredImportance.get_cached_importance(ctx, section).grow_blocks_to_outputs(
                {
                    n: require_layer_with_measurable_curvature(ctx.network, n).output_count
                    for n in names
                }
            )

    def add_penalty_gradients(self, ctx: TaskTrainingContext) -> None:
        """Add the penalty's gradient lambda F (θ - θ*), or lambda H (θ - θ*) with Kronecker
        factors.
        """
        if not self._uses_kronecker_factors:
            super().add_penalty_gradients(ctx)
        elif self.penalty_strength > 0:
            pull = FactoredImportance.get_cached_importance(
                ctx, self.state[self.section]
            ).compute_penalty_gradient(ctx.compute_weight_displacement(ctx.trainable))
            for name, r in pull.items():
                grad = ctx.trainable[name].grad
                # A parameter without a gradient is not stepped.
                if grad is not None:
                    grad.add_(r, alpha=self.penalty_strength)

    def compute_penalty(self, ctx: TaskTrainingContext) -> float:
        """Compute the penalty lambda / 2 Σ F (θ - θ*)², or lambda / 2 (θ - θ*)ᵀ H (θ - θ*) with
        factors.
        """
        if not self._uses_kronecker_factors:
            return super().compute_penalty(ctx)
        importance = FactoredImportance.get_cached_importance(ctx, self.state[self.section])
        return self.penalty_strength * importance.compute_penalty_value(
            ctx.compute_weight_displacement(ctx.trainable)
        )

    def end_task(self, ctx: TaskTrainingContext, batches: Iterable[TrainingBatch]) -> None:
        """Measure the task's importance at its end, and add it to the stored one, discounted by
        gamma.
        """
        if self._uses_kronecker_factors:
            FactoredImportance.get_cached_importance(
                ctx, self.state[self.section]
            ).merge_task_curvature(
                self._measure_kronecker_factors(ctx, batches),
                self.hyper.gamma,
                self.hyper.curvature,
            )
            return
        tensors = self.stored_tensors
        fresh = self._measure_diagonal_fisher(ctx, batches)
        # All stored parameters: those that this task did not train gain no importance, but decay.
        for name in self.list_parameters_with_importance():
            tensors[self.get_importance_key(name)] = (
                tensors[self.get_importance_key(name)] * self.hyper.gamma
            )
        for name, value in fresh.items():
            previous = tensors.get(self.get_importance_key(name))
            tensors[self.get_importance_key(name)] = value if previous is None else previous + value
        for name in self.list_parameters_with_importance():
            # All anchors move: the penalty is around the latest weights alone.
            tensors[f"anchor.{name}"] = clone_parameter_values(ctx, name)

    def renumber_and_drop_classes(self, classes: ClassMap) -> None:
        """Average the stored importance of merged classes' head rows; Kronecker factors of the head
        are dropped.
        """
        super().renumber_and_drop_classes(classes)
        section = self.state[self.section]
        if section and self._uses_kronecker_factors:
            # A factor of the outputs is a matrix of classes by classes, whose mean over several
            # says nothing of their sum.
            FactoredImportance(section).drop_layer("head")

    # Factors by layer. Their anchor is the start of the task, where the latest task ended.

    @property
    def _uses_kronecker_factors(self) -> bool:
        return self.hyper.curvature != "diagonal"

    def _measure_kronecker_factors(
        self, ctx: TaskTrainingContext, batches: Iterable[TrainingBatch]
    ) -> LayerCurvatures:
        """Measure the Kronecker factors of the Fisher information on a task."""
        kind, limit, generator = self._choose_fisher_sampling(ctx)
        network = ctx.network
        layers = dict.fromkeys(
            list_layers_owning_parameters(network, ctx.trainable), self.hyper.curvature
        )
        with ctx.use_exact_evaluation_mode():
            estimator = CurvatureEstimator(
                network,
                lambda x: self.forward(network, x, ctx.task_argument_of_forward),
                layers,
            )
            for x, y in iterate_example_chunks(batches, limit):
                estimator.add_examples(
                    x,
                    lambda logits, y=y: compute_log_probability_gradients(
                        logits, y, kind, generator
                    ),  # type: ignore[misc]
                )
        return LayerCurvatures(estimator.build_curvature_blocks())
