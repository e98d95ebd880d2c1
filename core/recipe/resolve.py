"""From patches to the complete recipe: defaults, then what the method advises, then the preset, then the patches.

A null in a patch says nothing: what lies below it counts. Resolving a complete recipe changes nothing. What the
catalogue's schemas or the method's combinations exclude is refused with every wrong field named.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from core.errors import InvalidRecipe
from core.nearest import paths_of
from core.plain import one_of
from core.protocol.answers.architecture import ArchitectureChoice
from core.protocol.answers.catalogue import MethodEntry
from core.protocol.answers.recipe import RecipeOut
from core.protocol.catalogue import Catalogue
from core.protocol.document import JsonObject
from core.recipe.combination import refused
from core.recipe.merge import merge_recipe
from core.recipe.schema import FieldError, as_fields, errors_of, sentence
from core.recipe.start import FROM_RANDOM
from core.recipe.weaknesses import weaknesses, without_effect


@dataclass(frozen=True)
class Resolved:
    """A complete recipe, and what a person should know about it."""

    recipe: RecipeOut
    warnings: list[str]


def resolve(
    catalogue: Catalogue,
    scenario: str,
    *patches: Mapping[str, Any],
    architecture: ArchitectureChoice | None = None,
    stored: bool = False,
) -> Resolved:
    """The complete recipe for these patches, later ones over earlier ones.

    Args:
        catalogue: see `core.catalogue`.
        scenario: `data`, `task` or `class`.
        architecture: the model's; None leaves open whether the method works on it.
        stored: the recipe was complete when it was stored. What it lacks was added since, and gets the value
            that means what was before, whatever the scenario's default is now.

    Raises:
        InvalidRecipe: an unknown name, a bad value, or a combination that the method excludes.
    """
    patch: JsonObject = {}
    for each in patches:
        patch = merge_recipe(patch, each)
    recipe, name, hyper = _complete(catalogue, None if stored else scenario, patch)
    known = [f"recipe.{path}" for path in known_paths(catalogue, name)]
    errors = [
        *errors_of(catalogue["recipe"]["schema"], recipe, "recipe", known),
        *errors_of(catalogue["methods"][name]["schema"], hyper, "recipe.method", known),
    ]
    errors = [(field, message + _other_methods(catalogue, name, field)) for field, message in errors]
    complete = cast(RecipeOut, recipe)  # where no schema finds an error
    errors = errors or list(refused(catalogue, scenario, complete, architecture))
    if errors:
        raise _wrong(errors)
    idle = [] if stored else without_effect(catalogue, patch, complete)
    return Resolved(complete, [*weaknesses(catalogue, scenario, complete), *idle])


def completed(catalogue: Catalogue, scenario: str, patch: Mapping[str, Any]) -> RecipeOut:
    """A stored patch as people see it: with its defaults, but not checked again.

    A patch that this code version cannot complete (its method is gone) is shown as it is.
    """
    try:
        return cast(RecipeOut, _complete(catalogue, scenario, merge_recipe({}, patch))[0])
    except InvalidRecipe:
        return cast(RecipeOut, dict(patch))


def known_paths(catalogue: Catalogue, method: str | None = None) -> list[str]:
    """The dotted paths of all that a recipe can say, with the hyper-parameters of one method (None: the default)."""
    name = method or catalogue["recipe"]["defaults"]["method"]["name"]
    hyper = paths_of(catalogue["methods"][name]["schema"])
    return [
        "method.name",
        *(f"method.{path}" for path in hyper),
        *paths_of(catalogue["recipe"]["schema"]),
    ]


def _complete(
    catalogue: Catalogue, scenario: str | None, patch: Mapping[str, Any]
) -> tuple[JsonObject, str, JsonObject]:
    """The complete recipe, its method's name and hyper-parameters; names are checked, values are not.

    scenario: None for a stored recipe, in which the defaults of a scenario are left out and former ones count.
    """
    defaults = catalogue["recipe"]["defaults"]
    base: JsonObject = {"method": {"name": defaults["method"]["name"]}}
    preset = patch.get("preset")
    if preset is not None:
        presets = catalogue["presets"]
        if not isinstance(preset, str) or preset not in presets:
            raise _wrong([("recipe.preset", f"unknown preset; {one_of(preset, sorted(presets))}")])
        base = merge_recipe(base, presets[preset])
    wanted = merge_recipe(base, patch)
    name, hyper = _method(catalogue, scenario, wanted.pop("method", None), preset)
    wanted = merge_recipe(_advice(catalogue["methods"][name], wanted), wanted)
    recipe = _filled(cast(JsonObject, defaults), wanted)
    recipe["method"] = {"name": name, **hyper}
    depths = catalogue["methods"][name].get("accepts", {}).get("depths")
    if "depth" not in wanted and depths:
        recipe["depth"] = max(depths)
    optimizer = recipe.get("optimizer")
    if isinstance(optimizer, dict) and isinstance(given := optimizer.get("olor"), dict):
        optimizer["olor"] = {**cast(JsonObject, catalogue["recipe"]["olor"]), **given}
    for block in ("merge", "rebalance"):
        if isinstance(given := recipe.get(block), dict):
            recipe[block] = {**cast(JsonObject, catalogue["recipe"].get(block, {})), **given}
    return recipe, name, hyper


def _advice(entry: MethodEntry, wanted: Mapping[str, Any]) -> JsonObject:
    """Return the method's advice for what a recipe leaves open; its rate for random weights is one of SGD."""
    advice = merge_recipe({}, entry.get("advice", {}))
    optimizer = merge_recipe(advice, wanted).get("optimizer") or {}
    if wanted.get("preset") != FROM_RANDOM or not isinstance(optimizer, Mapping):
        return advice
    if optimizer.get("name", "sgd") != "sgd":
        return advice
    own = entry.get("from_random", {}).get("optimizer")
    return merge_recipe(advice, {"optimizer": own}) if own else advice


def _method(
    catalogue: Catalogue, scenario: str | None, method: Any, preset: object
) -> tuple[str, JsonObject]:
    if not isinstance(method, Mapping):
        raise _wrong([("recipe.method", "must be a method's name or an object with its name")])
    name = method.get("name")
    methods = catalogue["methods"]
    if not isinstance(name, str) or name not in methods:
        raise _wrong([("recipe.method.name", f"unknown method; {one_of(name, sorted(methods))}")])
    given = {k: v for k, v in method.items() if k != "name"}
    entry = methods[name]
    if scenario is None:
        other = entry.get("former_defaults", {})
    else:
        other = entry.get("scenario_defaults", {}).get(scenario, {})
    if preset == FROM_RANDOM:
        other = merge_recipe(other, cast(JsonObject, entry.get("from_random", {}).get("method", {})))
    return name, copy.deepcopy({**entry["defaults"], **other, **given})


def _filled(defaults: JsonObject, wanted: JsonObject) -> JsonObject:
    """`wanted` with what it leaves open, one level into objects (optimizer, head)."""
    out: JsonObject = {}
    for key, value in defaults.items():
        given = wanted.get(key)
        if isinstance(value, Mapping) and (given is None or isinstance(given, Mapping)):
            out[key] = {**copy.deepcopy(dict(value)), **(given or {})}
        else:
            out[key] = copy.deepcopy(value) if given is None else given
    for key, value in wanted.items():
        out.setdefault(key, value)
    return out


def _other_methods(catalogue: Catalogue, name: str, field: str) -> str:
    """Which methods have a hyper-parameter that this one lacks; empty for any other field."""
    block, _, hyper = field.rpartition(".")
    methods = catalogue["methods"]
    if block != "recipe.method" or hyper in paths_of(methods[name]["schema"]):
        return ""
    having = [m for m in sorted(methods) if hyper in paths_of(methods[m]["schema"])]
    return f"; {hyper} belongs to {', '.join(having)}" if having else ""


def _wrong(errors: list[FieldError]) -> InvalidRecipe:
    return InvalidRecipe(sentence(errors, "The recipe cannot be used"), fields=as_fields(errors))
