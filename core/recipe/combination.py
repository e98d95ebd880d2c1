"""Combinations that a method accepts: scenario, architecture, optimizer, depth, head and OLOR.

The rule that `anytime` needs a validation share is checked here, too.
"""

from collections.abc import Iterator, Mapping

from core.contract.catalogue import RecipeCatalogue
from core.contract.responses.architecture import ArchitectureChoice
from core.contract.responses.catalogue import Accepts, ArchitectureEntry, MethodEntry
from core.contract.responses.recipe import RecipeOut
from core.recipe.schema import FieldError
from core.text.plain import format_value_as_json

_ANYTIME_NEEDS = (
    "must be above 0 with anytime, which deploys the best validated state: 0.05, for example"
)
_MERGE_NEEDS = (
    'needs one of weight and within, and the other null: {"weight": 0.5, "within": '
    "null} is half of the way"
)
_WITHIN_NEEDS = (
    "must be above 0 with merge.within, which measures accuracy on that part: 0.1, for example"
)
_GPUS_NEED = (
    'above 1 needs "device": "cuda", since other devices have no GPUs to count; send 1 without it'
)
_NO_SHARED_HEAD = (
    "does not work in the task scenario: every task has a head of its own, which no other task "
    "biases; send null"
)
_CARRIED = "must be false with rebalance, whose steps follow the optimizer's last state"


def find_recipe_combination_errors(
    catalogue: RecipeCatalogue,
    scenario: str,
    recipe: RecipeOut,
    architecture: ArchitectureChoice | None,
) -> Iterator[FieldError]:
    """Yield an error for each pair of recipe settings that cannot be combined.

    Args:
        architecture: name of the model's complete architecture; None skips the checks that need
            one.
    """
    name = recipe["method"]["name"]
    accepts = catalogue["methods"][name].get("accepts", {})
    yield from _find_unsupported_scenario_errors(catalogue["methods"][name], name, scenario)
    if architecture is not None:
        yield from _find_method_unfit_for_architecture_errors(
            catalogue["architectures"], accepts, recipe, architecture["name"]
        )
    yield from _find_scenario_hyper_parameter_errors(accepts, scenario, recipe["method"])
    checks = (
        (
            "recipe.optimizer.name",
            recipe.get("optimizer", {}).get("name"),
            accepts.get("optimizers"),
        ),
        ("recipe.depth", recipe.get("depth"), accepts.get("depths")),
        ("recipe.head.init", recipe.get("head", {}).get("init"), accepts.get("head_inits")),
    )
    for field, value, allowed in checks:
        # A method that lists no allowed values accepts all of them.
        if allowed is not None and value not in allowed:
            yield field, f"{name} accepts {', '.join(map(str, allowed))}"
    if recipe.get("anytime") and not recipe.get("validation"):
        yield "recipe.validation", _ANYTIME_NEEDS
    if recipe.get("optimizer", {}).get("olor") is not None and not accepts.get("olor", False):
        yield "recipe.optimizer.olor", f"{name} does not accept OLOR"
    if (shards := recipe.get("shards", 1)) > 1 and (
        reason := catalogue["methods"][name].get("no_shards")
    ):
        yield (
            "recipe.shards",
            f"{shards} slices of a batch do not work with {name}: {reason}; send 1",
        )
    resources = recipe.get("resources", {})
    if resources.get("gpus", 1) > 1 and resources.get("device") != "cuda":
        yield "recipe.resources.gpus", _GPUS_NEED
    yield from _find_recipe_merge_setting_errors(catalogue["methods"][name], name, recipe)
    yield from _find_rebalance_errors(catalogue["methods"][name], name, scenario, recipe)


def _find_recipe_merge_setting_errors(
    method: MethodEntry, name: str, recipe: RecipeOut
) -> Iterator[FieldError]:
    """Yield the errors of the recipe's `merge` settings, if it has them."""
    merge = recipe.get("merge")
    if merge is None:
        return
    if reason := method.get("no_merge"):
        yield "recipe.merge", f"does not work with {name}: {reason}; send null"
    if (merge.get("weight") is None) == (merge.get("within") is None):
        yield "recipe.merge", _MERGE_NEEDS
    if merge.get("within") is not None and not recipe.get("validation"):
        yield "recipe.validation", _WITHIN_NEEDS


def _find_rebalance_errors(
    method: MethodEntry, name: str, scenario: str, recipe: RecipeOut
) -> Iterator[FieldError]:
    """Yield the errors of the recipe's `rebalance` settings, if it has them."""
    if recipe.get("rebalance") is None:
        return
    if reason := method.get("no_rebalance"):
        yield (
            "recipe.rebalance",
            f"does not work with {name}: {reason}; send null, or take another method",
        )
    if scenario == "task":
        yield "recipe.rebalance", _NO_SHARED_HEAD
    if recipe.get("optimizer", {}).get("carry_state"):
        yield "recipe.optimizer.carry_state", _CARRIED


def _find_unsupported_scenario_errors(
    method: MethodEntry, name: str, scenario: str
) -> Iterator[FieldError]:
    if scenario not in method["scenarios"]:
        scenarios = " and ".join(method["scenarios"])
        yield (
            "recipe.method.name",
            f"{name} does not work in the {scenario} scenario, only in {scenarios}: take another "
            f"method",
        )


def _find_method_unfit_for_architecture_errors(
    architectures: Mapping[str, ArchitectureEntry],
    accepts: Accepts,
    recipe: RecipeOut,
    architecture: str,
) -> Iterator[FieldError]:
    name: str = recipe["method"]["name"]
    family = architectures[architecture]["family"] if architecture in architectures else ""
    unfit = accepts.get("unfit", {}).get(family)
    # An empty entry excludes the whole family, others exclude values of hyper-parameters.
    if unfit is not None and not unfit:
        yield (
            "recipe.method.name",
            f"{name} measures each layer by its kind and does not know all of those of "
            f"{architecture}; "
            "take another method, or an architecture of torchvision",
        )
    for hyper, values in (unfit or {}).items():
        if recipe["method"].get(hyper) in values:
            yield f"recipe.method.{hyper}", f"{', '.join(values)} do not work on {architecture}"
    families = accepts.get("architectures")
    if families is None:
        return
    fitting = [a for a in sorted(architectures) if architectures[a].get("family") in families]
    if architecture not in fitting:
        yield "recipe.method.name", f"{name} works on {', '.join(fitting)}, not on {architecture}"


def _find_scenario_hyper_parameter_errors(
    accepts: Accepts, scenario: str, method: Mapping[str, object]
) -> Iterator[FieldError]:
    """Yield an error for each method hyper-parameter that does not work in the model's scenario."""
    for hyper in accepts.get("task_only", []):
        if scenario != "task" and method.get(hyper):
            yield (
                f"recipe.method.{hyper}",
                "only in the task scenario, where predictions name the task",
            )
    for hyper, value in accepts.get("refused", {}).get(scenario, {}).items():
        if method.get(hyper) == value:
            text = f"{format_value_as_json(value, quoted=True)} does not work in the {scenario} scenario"
            yield f"recipe.method.{hyper}", text
