"""Completion of recipe patches: defaults, then the method's advice, the preset, and the patches.

A null in a patch sets nothing: the value of the layer below applies. Resolving a complete recipe
changes nothing. Errors in the catalogue's schemas or in the method's combinations name every wrong
field.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from core.contract.catalogue import RecipeCatalogue
from core.contract.document import JsonObject
from core.contract.responses.architecture import ArchitectureChoice
from core.contract.responses.catalogue import MethodEntry
from core.contract.responses.recipe import RecipeOut
from core.errors import InvalidRecipe
from core.recipe.combination import find_recipe_combination_errors
from core.recipe.combination_warnings import list_ineffective_field_warnings, list_recipe_warnings
from core.recipe.merge import merge_recipe
from core.recipe.model_defaults import FROM_RANDOM
from core.recipe.problem import find_errors_of_recipe_unfit_for_problem
from core.recipe.schema import (
    FieldError,
    describe_recipe_errors,
    find_json_schema_errors,
    list_first_field_errors,
)
from core.text.nearest import list_schema_property_paths
from core.text.plain import describe_allowed_names


@dataclass(frozen=True)
class ResolvedRecipe:
    """A complete recipe and the warnings about it."""

    recipe: RecipeOut
    warnings: list[str]


def resolve_recipe(
    catalogue: RecipeCatalogue,
    scenario: str,
    *patches: Mapping[str, Any],
    architecture: ArchitectureChoice | None = None,
    stored: bool = False,
    problem: str | None = None,
) -> ResolvedRecipe:
    """Resolve recipe patches to a complete, checked recipe; later patches override earlier ones.

    Args:
        catalogue: see `core.recipe.catalogue`.
        scenario: `data`, `task` or `class`.
        architecture: the model's architecture; None skips the checks that need one.
        stored: the recipe was complete when it was stored. Fields added since then get the value
            that keeps its former behaviour, not the scenario's current default.
        problem: the model's; None is classification.

    Raises:
        InvalidRecipe: an unknown name, a bad value, or a combination that the method excludes.
    """
    patch: JsonObject = {}
    for override in patches:
        patch = merge_recipe(patch, override)
    recipe, name, hyper = _complete_recipe_patch(catalogue, None if stored else scenario, patch)
    known_fields = [f"recipe.{path}" for path in list_recipe_paths(catalogue, name)]
    errors = [
        *find_json_schema_errors(catalogue["recipe"]["schema"], recipe, "recipe", known_fields),
        *find_json_schema_errors(
            catalogue["methods"][name]["schema"], hyper, "recipe.method", known_fields
        ),
    ]
    errors = [
        (field, message + _format_methods_with_hyper_parameter(catalogue, name, field))
        for field, message in errors
    ]
    # The schemas above check the shape: without errors, the cast holds.
    complete = cast(RecipeOut, recipe)
    # These checks rely on valid values, so they run only if there is no other error.
    errors = errors or [
        *find_recipe_combination_errors(catalogue, scenario, complete, architecture),
        *find_errors_of_recipe_unfit_for_problem(catalogue, problem, complete),
    ]
    if errors:
        raise _build_invalid_recipe_error(errors)
    # A stored recipe has every field, as if somebody had asked for all of them.
    ineffective = [] if stored else list_ineffective_field_warnings(catalogue, patch, complete)
    return ResolvedRecipe(
        complete, [*list_recipe_warnings(catalogue, scenario, complete), *ineffective]
    )


def complete_stored_recipe(
    catalogue: RecipeCatalogue, scenario: str, patch: Mapping[str, Any]
) -> RecipeOut:
    """Complete a stored recipe patch with its defaults for display, without checking it again.

    A patch that this code version cannot complete (for example because its method was removed) is
    returned unchanged.
    """
    try:
        return cast(
            RecipeOut, _complete_recipe_patch(catalogue, scenario, merge_recipe({}, patch))[0]
        )
    except InvalidRecipe:
        return cast(RecipeOut, dict(patch))


def list_recipe_paths(catalogue: RecipeCatalogue, method: str | None = None) -> list[str]:
    """List the dotted paths of all recipe fields, with the hyper-parameters of one method.

    Args:
        method: None means the default method.
    """
    name = method or catalogue["recipe"]["defaults"]["method"]["name"]
    hyper = list_schema_property_paths(catalogue["methods"][name]["schema"])
    return [
        "method.name",
        *(f"method.{path}" for path in hyper),
        *list_schema_property_paths(catalogue["recipe"]["schema"]),
    ]


def _complete_recipe_patch(
    catalogue: RecipeCatalogue, scenario: str | None, patch: Mapping[str, Any]
) -> tuple[JsonObject, str, JsonObject]:
    """Complete a recipe patch with defaults; return recipe, method name and hyper-parameters.

    Defaults are filled in. Names of presets and fields are checked, values are not.

    Args:
        scenario: None for a stored recipe: scenario defaults are left out and former defaults
            apply.
    """
    defaults = catalogue["recipe"]["defaults"]
    base: JsonObject = {"method": {"name": defaults["method"]["name"]}}
    preset = patch.get("preset")
    if preset is not None:
        presets = catalogue["presets"]
        if not isinstance(preset, str) or preset not in presets:
            raise _build_invalid_recipe_error(
                [
                    (
                        "recipe.preset",
                        f"unknown preset; {describe_allowed_names(preset, sorted(presets))}",
                    )
                ]
            )
        base = merge_recipe(base, presets[preset])
    requested = merge_recipe(base, patch)
    name, hyper = _complete_method_fields(
        catalogue, scenario, requested.pop("method", None), preset
    )
    requested = merge_recipe(
        _select_recipe_values_advised_by_method(catalogue["methods"][name], requested), requested
    )
    recipe = _fill_open_recipe_fields(cast(JsonObject, defaults), requested)
    recipe["method"] = {"name": name, **hyper}
    depths = catalogue["methods"][name].get("accepts", {}).get("depths")
    # The default depth may be one that the method does not accept.
    if "depth" not in requested and depths:
        recipe["depth"] = max(depths)
    optimizer = recipe.get("optimizer")
    if isinstance(optimizer, dict) and isinstance(block_values := optimizer.get("olor"), dict):
        optimizer["olor"] = {**cast(JsonObject, catalogue["recipe"]["olor"]), **block_values}
    for block in ("merge", "rebalance"):
        if isinstance(block_values := recipe.get(block), dict):
            recipe[block] = {**cast(JsonObject, catalogue["recipe"].get(block, {})), **block_values}
    return recipe, name, hyper


def _select_recipe_values_advised_by_method(
    entry: MethodEntry, recipe: Mapping[str, Any]
) -> JsonObject:
    """Select a method's advised values for the fields that a recipe leaves open.

    The advised rate for random weights holds for SGD only, so other optimizers do not get it.
    """
    advice = merge_recipe({}, entry.get("advice", {}))
    optimizer = merge_recipe(advice, recipe).get("optimizer") or {}
    if recipe.get("preset") != FROM_RANDOM or not isinstance(optimizer, Mapping):
        return advice
    if optimizer.get("name", "sgd") != "sgd":
        return advice
    sgd_options = entry.get("from_random", {}).get("optimizer")
    return merge_recipe(advice, {"optimizer": sgd_options}) if sgd_options else advice


def _complete_method_fields(
    catalogue: RecipeCatalogue, scenario: str | None, method: Any, preset: object
) -> tuple[str, JsonObject]:
    if not isinstance(method, Mapping):
        raise _build_invalid_recipe_error(
            [("recipe.method", "must be a method's name or an object with its name")]
        )
    name = method.get("name")
    methods = catalogue["methods"]
    if not isinstance(name, str) or name not in methods:
        raise _build_invalid_recipe_error(
            [
                (
                    "recipe.method.name",
                    f"unknown method; {describe_allowed_names(name, sorted(methods))}",
                )
            ]
        )
    requested = {k: v for k, v in method.items() if k != "name"}
    entry = methods[name]
    if scenario is None:
        defaults = entry.get("former_defaults", {})
    else:
        defaults = entry.get("scenario_defaults", {}).get(scenario, {})
    if preset == FROM_RANDOM:
        defaults = merge_recipe(
            defaults, cast(JsonObject, entry.get("from_random", {}).get("method", {}))
        )
    # A copy, since all requests of the process share the catalogue.
    return name, copy.deepcopy({**entry["defaults"], **defaults, **requested})


def _fill_open_recipe_fields(defaults: JsonObject, recipe: JsonObject) -> JsonObject:
    """Fill recipe fields left open with defaults, one level into objects (optimizer, head)."""
    out: JsonObject = {}
    for key, value in defaults.items():
        requested = recipe.get(key)
        if isinstance(value, Mapping) and (requested is None or isinstance(requested, Mapping)):
            # Copies, since the defaults belong to the catalogue, which all requests share.
            out[key] = {**copy.deepcopy(dict(value)), **(requested or {})}
        else:
            out[key] = copy.deepcopy(value) if requested is None else requested
    for key, value in recipe.items():
        out.setdefault(key, value)
    return out


def _format_methods_with_hyper_parameter(catalogue: RecipeCatalogue, name: str, field: str) -> str:
    """Name the methods that have a hyper-parameter which the chosen method lacks, as text, or
    "".
    """
    block, _, hyper = field.rpartition(".")
    methods = catalogue["methods"]
    if block != "recipe.method" or hyper in list_schema_property_paths(methods[name]["schema"]):
        return ""
    methods_with_it = [
        m for m in sorted(methods) if hyper in list_schema_property_paths(methods[m]["schema"])
    ]
    return f"; {hyper} belongs to {', '.join(methods_with_it)}" if methods_with_it else ""


def _build_invalid_recipe_error(errors: list[FieldError]) -> InvalidRecipe:
    return InvalidRecipe(
        describe_recipe_errors(errors, "The recipe cannot be used"),
        fields=list_first_field_errors(errors),
    )
