"""Catalogue of everything a recipe can contain, for processes that never import torch.

It has names, scenarios and JSON Schemas. `python -m core.learning.catalogue OUT.json` writes the file,
which `core.recipe.catalogue` caches once per code version.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from core.contract.catalogue import RecipeCatalogue
from core.contract.problem import PrimaryMeasureDescription, ProblemTypeCatalogueEntry
from core.contract.responses.catalogue import (
    ArchitectureEntry,
    Footprint,
    MethodEntry,
    RecipeLanguage,
)
from core.contract.responses.recipe import MergeOut, OlorOut, RebalanceOut, RecipeOut
from core.learning.data.augment import NAMES as AUGMENTS
from core.learning.methods.method import Method
from core.learning.methods.registry import METHODS
from core.learning.networks import RegisteredArchitecture, get_architectures
from core.learning.networks.backbones.timm_names import RECOMMENDED, load_timm_weights_table
from core.learning.optimizers.build import DESCRIPTIONS
from core.learning.problems.problem import Problem
from core.learning.problems.registry import PROBLEMS
from core.learning.recipe import MergeRecipe, OlorRecipe, RebalanceRecipe, Recipe

_OLOR = {"iota1": 0.01, "iota2": 0.0, "gamma": 2.0}
PRESETS: dict[str, dict[str, Any]] = {
    # For models that start from random weights: see each method's `from_random`.
    "from-random": {},
    # Only the head is trained; the whole backbone stays in eval mode.
    "linear-probe": {"method": {"name": "finetune"}, "depth": 1},
    # OLOR with the rates at which its authors fine-tune ConvNeXt and ViT.
    "olor-sgd": {"optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9, "olor": _OLOR}},
    "olor-adam": {"optimizer": {"name": "adam", "lr": 0.0001, "olor": _OLOR}},
    # FAST: in the first step a zero head gives the backbone no gradient. The head's larger rate
    # lets it catch up. Adam's second step is as long as any other: take lr 0.0001, head_lr 0.001,
    # warmup_steps 10 or more.
    "fast": {
        "method": {"name": "finetune"},
        "optimizer": {
            "name": "sgd",
            "lr": 0.001,
            "head_lr": 0.01,
            "momentum": 0.9,
            "schedule": "constant",
        },
        "head": {"init": "zero"},
        "sampler": "stratified",
        "validation": 0.05,
        "anytime": True,
    },
}
"""Recipes by name, each a patch of the defaults."""


def build_recipe_catalogue() -> RecipeCatalogue:
    """Build the recipe catalogue (methods, architectures, problems, defaults) as JSON values."""
    return {
        "methods": {
            name: _build_method_catalogue_entry(method) for name, method in sorted(METHODS.items())
        },
        "architectures": {
            name: _build_architecture_catalogue_entry(name, info)
            for name, info in sorted(get_architectures().items())
        },
        "problems": {
            name: _build_problem_catalogue_entry(problem) for name, problem in PROBLEMS.items()
        },
        "pretrained": load_timm_weights_table()["weights"],
        "unusable": load_timm_weights_table()["refused"],
        "recommended": RECOMMENDED,
        "optimizers": DESCRIPTIONS,
        "augmentations": list(AUGMENTS),
        "presets": PRESETS,
        "recipe": _build_recipe_fields_catalogue_entry(),
    }


def _build_architecture_catalogue_entry(
    name: str, info: RegisteredArchitecture
) -> ArchitectureEntry:
    """Describe an architecture for the recipe catalogue."""
    entry: ArchitectureEntry = {
        "schema": info.hyper.model_json_schema(),
        "defaults": info.hyper().model_dump(mode="json", by_alias=True),
        "scenarios": list(info.scenarios),
        "description": info.description,
        "source": info.source,
        "family": info.family,
        "min_size": info.min_size,
    }
    if name == "timm":
        # The only architecture with too many variants to choose from by a schema.
        entry["recommended"] = RECOMMENDED
    return entry


def _build_recipe_fields_catalogue_entry() -> RecipeLanguage:
    """Describe the fields of a recipe and their defaults for the recipe catalogue."""
    return {
        "schema": Recipe.model_json_schema(),
        # With the method's own defaults filled in, since readers of the catalogue import no method.
        "defaults": cast(RecipeOut, _build_default_recipe()),
        # Defaults within `optimizer.olor`
        "olor": cast(OlorOut, OlorRecipe().model_dump(mode="json")),
        "merge": cast(MergeOut, dict.fromkeys(MergeRecipe.model_fields)),
        "rebalance": cast(RebalanceOut, RebalanceRecipe().model_dump(mode="json")),
    }


def _build_default_recipe() -> dict[str, Any]:
    """Build the complete default recipe of an empty recipe patch."""
    recipe = Recipe()
    method = METHODS[recipe.method["name"]]
    hyper = method.Hyper().model_dump(mode="json", by_alias=True)
    return {**recipe.model_dump(mode="json"), "method": {"name": method.name, **hyper}}


def _build_method_catalogue_entry(method: type[Method]) -> MethodEntry:
    """Describe a learning method for the recipe catalogue."""
    accepts = method.accepts
    neutral = (
        None if method.neutral is None else method.neutral.model_dump(mode="json", by_alias=True)
    )
    return {
        "schema": method.Hyper.model_json_schema(by_alias=True),
        "defaults": method.Hyper().model_dump(mode="json", by_alias=True),
        "scenario_defaults": {s: dict(values) for s, values in method.scenario_defaults.items()},
        "former_defaults": dict(method.former_defaults),
        "scenarios": list(method.scenarios),
        "weak": dict(method.scenario_warnings),
        "accepts": {
            "optimizers": list(accepts.optimizers),
            "depths": list(accepts.depths),
            "head_inits": list(accepts.head_inits),
            "olor": accepts.olor,
            "architectures": None if accepts.architectures is None else list(accepts.architectures),
            "task_only": list(accepts.task_only),
            "refused": {scenario: dict(values) for scenario, values in accepts.refused.items()},
            "unfit": {
                family: {hyper: list(values) for hyper, values in values_by_hyper.items()}
                for family, values_by_hyper in accepts.unfit.items()
            },
        },
        "footprint": cast(Footprint, asdict(method.footprint)),
        "family": method.family,
        "structure": list(method.immutable_hyperparameters),
        "advice": dict(method.recipe_defaults),
        "from_random": dict(method.from_random),
        "takes": list(method.inherited_state),
        "predicts_with": list(method.predicts_with),
        "inference": method.inference,
        "source": method.source,
        "description": method.description,
        "neutral": neutral,
        "no_neutral": method.no_neutral or None,
        "no_feature_cache": method.no_feature_cache or None,
        "no_merge": method.no_merge or None,
        "no_shards": method.no_shards or None,
        "no_rebalance": None if method.remembers else method.no_rebalance,
    }


def _build_problem_catalogue_entry(problem: Problem[Any]) -> ProblemTypeCatalogueEntry:
    """Describe a problem (kind of prediction) for the recipe catalogue."""
    allowed = problem.augmentations
    return {
        "description": problem.description,
        "source": problem.source,
        "measure": cast(PrimaryMeasureDescription, asdict(problem.primary_measure)),
        "has_classes": problem.has_classes,
        "response_schema": problem.response_schema(),
        "onnx_outputs": list(problem.onnx_outputs),
        "augmentations": None if allowed is None else list(allowed),
        "methods": {
            name: problem.explain_unsupported_method(method) or None
            for name, method in sorted(METHODS.items())
        },
        "optimizers": {
            name: problem.explain_unsupported_optimizer(name) or None for name in DESCRIPTIONS
        },
    }


def main(out: str) -> None:
    """Write the recipe catalogue to a file, as a command."""
    Path(out).write_text(
        # Sorted, so that the same code writes the same bytes.
        json.dumps(build_recipe_catalogue(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    )


if __name__ == "__main__":
    main(sys.argv[1])
