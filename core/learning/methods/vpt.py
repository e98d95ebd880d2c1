"""Visual prompt tuning: a frozen vision transformer learns through a few extra tokens.

Jia et al. 2022, arXiv 2203.12119. Prompts and heads are trained, the backbone never is, so depth is
always 1. With `per_task` each task has its own prompts and head, so the predictions of earlier
tasks cannot change. Version 0 has no prompts and is measured without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from core.learning.data.dataset import DataError
from core.learning.methods.method import AcceptedRecipes, Method
from core.learning.methods.registration import register_method
from core.learning.networks import Network
from core.learning.networks.prompts import PromptedNetwork
from core.learning.recipe import StrictRecipeModel


class VptHyper(StrictRecipeModel):
    """Hyper-parameters of the method `vpt` (visual prompt tuning), all fixed with a model's first
    task.

    `prompts`: tokens per block, 0 is a linear probe. `deep`: before every block, else before the
    first only. `per_task`: a prompt set for each task (task scenario).
    """

    prompts: Annotated[int, Field(ge=0, le=1000)] = 10
    deep: bool = True
    per_task: bool = False


@register_method
class VptMethod(Method):
    """The method `vpt` (visual prompt tuning): trains only prompt tokens and heads."""

    name = "vpt"
    description = (
        "Visual prompt tuning: trains prompt tokens and heads of a vision transformer, "
        "not its weights."
    )
    source = "Jia et al. 2022, Visual Prompt Tuning, arXiv 2203.12119"
    scenario_warnings: ClassVar[Mapping[str, str]] = {
        "class": "prompts and head follow the new classes only, and the old ones are forgotten"
    }
    Hyper = VptHyper
    accepts = AcceptedRecipes(
        olor=False, depths=(1,), architectures=("vit",), task_only=("per_task",)
    )
    no_neutral = "without prompts it is a linear probe, not plain fine-tuning"
    no_feature_cache = "its prompts move, and features with them"
    family = PromptedNetwork.family
    no_shards = ""
    immutable_hyperparameters = ("prompts", "deep", "per_task")
    hyper: VptHyper

    def build_network(self, network: Network) -> Network:
        """Build the network with prompt tokens.

        Raises DataError when the model has prompts of another number or kind.
        """
        hyper = self.hyper
        if not isinstance(network, PromptedNetwork):
            return PromptedNetwork(
                network, hyper.prompts, hyper.deep, () if hyper.per_task else None
            )
        requested = (hyper.prompts, hyper.deep, hyper.per_task)
        # Prompts of another shape would be new ones, and predictions of earlier tasks need theirs.
        if (network.tokens, network.deep, network.per_task) != requested:
            raise DataError(
                f"the model has {network.tokens} prompts (deep: {network.deep}, per task: "
                f"{network.per_task}), fixed with its first task: the recipe must ask for the same"
            )
        return network
