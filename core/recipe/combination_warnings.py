"""Warnings about combinations that are known to work badly: a method or a modifier in a scenario.

Such a recipe is accepted, since a user may want to measure it, and the response has a warning with
the reason. Methods declare their own weaknesses; those of modifiers that are combined with them are
here. In the class scenario it is the head that forgets, so a modifier helps there only beside a
method that protects the head.
"""

from collections.abc import Mapping

from core.contract.catalogue import RecipeCatalogue
from core.contract.responses.recipe import RecipeOut
from core.recipe.model_defaults import CLIP

_FAST = {
    "class": "from the second task on only the rows of new classes start at zero (new-rows-zero)",
    "data": "from the second task on the head goes on from what it learned before",
}

_OF_TRAINING = ("anytime", "augment", "epochs", "optimizer", "sampler", "validation")
"""Fields of a recipe that concern training."""
SUMS = "analytic"
"""Inference type of methods that solve for the classifier from sums over all batches."""


def list_recipe_warnings(catalogue: RecipeCatalogue, scenario: str, recipe: RecipeOut) -> list[str]:
    """List warnings about a resolved recipe in a scenario, the method's own first."""
    methods = catalogue["methods"]
    name = recipe["method"]["name"]
    weakness = methods[name].get("weak", {}).get(scenario)
    warnings = (
        [f"{name} is known to be weak in the {scenario} scenario: {weakness}"] if weakness else []
    )
    olor = (recipe.get("optimizer") or {}).get("olor")
    idle = olor is not None and recipe.get("depth") == 1 and not olor.get("anchor_old_head_rows")
    if idle:
        warnings.append(
            "OLOR does nothing at depth 1 (the head alone): it holds the backbone; take a greater "
            "depth, or set anchor_old_head_rows to hold what the head knows"
        )
    if scenario == "class" and weakness:
        strong = [
            n
            for n, m in sorted(methods.items())
            if "class" in m["scenarios"] and not m.get("weak", {}).get("class")
        ]
        better = f"combine it with one of {', '.join(strong)}" if strong else "expect forgetting"
        if olor is not None and not idle:
            warnings.append(
                "OLOR is known to be weak in the class scenario without replay: it holds the "
                "backbone, and "
                f"what forgets is the head; {better}"
            )
        if recipe.get("depth") == 1 and methods[name].get("family", "plain") == "plain":
            warnings.append(
                "depth 1 (the head alone) is known to be weak in the class scenario without "
                "replay: old rows "
                f"of the head are pushed away by new classes; {better}"
            )
    if recipe.get("preset") == "fast" and scenario in _FAST:
        warnings.append(
            f"preset fast is made for a head that is zero as a whole: {_FAST[scenario]}"
        )
    return warnings


def list_ineffective_field_warnings(
    catalogue: RecipeCatalogue, requested_recipe: Mapping[str, object], recipe: RecipeOut
) -> list[str]:
    """Warn of requested recipe fields that have no effect on a method without training.

    Args:
        requested_recipe: the merged patches. A gradient bound alone is ignored, since models have it by
            default.
    """
    method = recipe["method"]
    if (
        catalogue["methods"][method["name"]].get("inference") != SUMS
        or dict(method).get("adapt") is not None
    ):
        return []
    bound_alone = requested_recipe.get("optimizer") == {"clip": CLIP}
    ineffective = [
        name
        for name in _OF_TRAINING
        if requested_recipe.get(name) is not None and not (name == "optimizer" and bound_alone)
    ]
    if not ineffective:
        return []
    return [
        f"{method['name']} trains nothing, so {' and '.join(ineffective)} "
        f"{'changes' if len(ineffective) == 1 else 'change'} nothing. "
        'To train the network, name a method that does, such as "method": "er"; or train it on the '
        "first "
        "batch alone: "
        '"method": {"name": "analytic", "adapt": {"epochs": 10, "depth": 5}}'
    ]
