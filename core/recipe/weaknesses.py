"""What is known to work badly together: a method or a modifier in a scenario.

Such a recipe is accepted, since it may be just what somebody wants to measure, and answered with a warning
that says why. Methods name their own weaknesses; here are those of what composes with them. In the class
scenario the head is what forgets, so a modifier helps there only beside a method that protects it.
"""

from collections.abc import Mapping

from core.protocol.answers.recipe import RecipeOut
from core.protocol.catalogue import Catalogue
from core.recipe.start import CLIP

_FAST = {
    "class": "from the second task on only the rows of new classes start at zero (new-rows-zero)",
    "data": "from the second task on the head goes on from what it learned before",
}

_OF_TRAINING = ("anytime", "augment", "epochs", "optimizer", "sampler", "validation")
"""What a recipe says of training."""
SUMS = "analytic"
"""Inference of methods whose classifier is solved for from sums over all batches."""


def weaknesses(catalogue: Catalogue, scenario: str, recipe: RecipeOut) -> list[str]:
    """Warnings about a resolved recipe in a scenario, the method's own first."""
    methods = catalogue["methods"]
    name = recipe["method"]["name"]
    own = methods[name].get("weak", {}).get(scenario)
    found = [f"{name} is known to be weak in the {scenario} scenario: {own}"] if own else []
    olor = (recipe.get("optimizer") or {}).get("olor")
    idle = olor is not None and recipe.get("depth") == 1 and not olor.get("anchor_old_head_rows")
    if idle:
        found.append(
            "OLOR does nothing at depth 1 (the head alone): it holds the backbone; take a greater depth, or set "
            "anchor_old_head_rows to hold what the head knows"
        )
    if scenario == "class" and own:
        strong = [
            n
            for n, m in sorted(methods.items())
            if "class" in m["scenarios"] and not m.get("weak", {}).get("class")
        ]
        better = f"combine it with one of {', '.join(strong)}" if strong else "expect forgetting"
        if olor is not None and not idle:
            found.append(
                "OLOR is known to be weak in the class scenario without replay: it holds the backbone, and "
                f"what forgets is the head; {better}"
            )
        if recipe.get("depth") == 1 and methods[name].get("family", "plain") == "plain":
            found.append(
                "depth 1 (the head alone) is known to be weak in the class scenario without replay: old rows "
                f"of the head are pushed away by new classes; {better}"
            )
    if recipe.get("preset") == "fast" and scenario in _FAST:
        found.append(f"preset fast is made for a head that is zero as a whole: {_FAST[scenario]}")
    return found


def without_effect(catalogue: Catalogue, asked: Mapping[str, object], recipe: RecipeOut) -> list[str]:
    """A warning of what was asked for and changes nothing, because the method trains nothing.

    asked: the patches; a bound of gradients alone is no request, since models have it by default.
    """
    method = recipe["method"]
    if catalogue["methods"][method["name"]].get("inference") != SUMS or dict(method).get("adapt") is not None:
        return []
    bound_alone = asked.get("optimizer") == {"clip": CLIP}
    idle = [
        name
        for name in _OF_TRAINING
        if asked.get(name) is not None and not (name == "optimizer" and bound_alone)
    ]
    if not idle:
        return []
    return [
        f"{method['name']} trains nothing, so {' and '.join(idle)} "
        f"{'changes' if len(idle) == 1 else 'change'} nothing. "
        'To train the network, name a method that does, such as "method": "er"; or train it on the first '
        "batch alone: "
        '"method": {"name": "analytic", "adapt": {"epochs": 10, "depth": 5}}'
    ]
