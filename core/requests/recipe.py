"""Recipes and architectures, checked against the catalogue before anything is stored.

A recipe is a JSON patch (RFC 7396): the model's, then the override of one batch. Resolved, it is complete:
defaults, then the preset, then the patches. What the catalogue's schemas or the method's applicability
exclude is refused with every wrong field named.
"""

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema
from jsonschema.validators import extend

from core.errors import Invalid, InvalidRecipe
from core.nearest import paths_of, unknown_field
from core.plain import found as found_text
from core.plain import kind, must_be, must_be_one_of, one_of, shown
from core.requests.weaknesses import weaknesses

Json = dict[str, Any]
MAX_RECIPE_BYTES = 64 << 10
"""Of a patch as it is sent, in UTF-8; what is stored of it is less."""
MAX_ERRORS = 20
_ANYTIME_NEEDS = "must be above 0 with anytime, which deploys the best validated state: 0.05, for example"

# In JSON Schema 10.0 is an integer; the learning code takes it literally.
_Validator = extend(
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _checker, value: isinstance(value, int) and not isinstance(value, bool)
    ),
)


@dataclass(frozen=True)
class Resolved:
    """A complete recipe, and what a person should know about it."""

    recipe: Json
    warnings: list[str]


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396: `patch` over `target`; null removes."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    out: Json = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge_patch(out.get(key), value)
    return out


def merge_recipe(target: Mapping[str, Any], patch: Mapping[str, Any]) -> Json:
    """`merge_patch`, where a method may be a string (its name), and another method starts afresh.

    The hyper-parameters of one method mean nothing to another, so a patch that names another method
    replaces the whole block.
    """
    before, after = _named(dict(target)), _named(dict(patch))
    old, new = before.get("method"), after.get("method")
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        named = new.get("name", old.get("name"))
        if old.get("name") != named:
            before.pop("method")
    merged: Json = merge_patch(before, after)
    return merged


def stored(patch: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> Json:
    """What a model keeps: `patch` over its recipe `before`, without nulls, which say nothing and may have any name.

    Raises:
        InvalidRecipe: the patch is larger than a recipe may be.
    """
    _check_size(patch)
    return merge_recipe(merge_recipe({}, before or {}), patch)


def stored_override(catalogue: Json, patch: Mapping[str, Any]) -> Json:
    """What a job keeps of the patch over its model's recipe: also nulls, which reset, of names that there are.

    Raises:
        InvalidRecipe: the patch is larger than a recipe may be.
    """
    _check_size(patch)
    paths = (
        [path for method in catalogue["methods"] for path in known_paths(catalogue, method)] if patch else []
    )
    return _without_unknown_nulls(patch, {name for path in paths for name in path.split(".")})


def _without_unknown_nulls(patch: Mapping[str, Any], known: set[str]) -> Json:
    return {
        key: _without_unknown_nulls(value, known) if isinstance(value, Mapping) else value
        for key, value in patch.items()
        if value is not None or key in known
    }


def _check_size(patch: Mapping[str, Any]) -> None:
    size = len(json.dumps(patch, ensure_ascii=False).encode())
    if size > MAX_RECIPE_BYTES:
        raise InvalidRecipe(
            f"A recipe may have {MAX_RECIPE_BYTES} bytes; this one has {size}.",
            fields=[{"field": "recipe", "message": f"at most {MAX_RECIPE_BYTES} bytes"}],
        )


def resolve(
    catalogue: Json, scenario: str, *patches: Mapping[str, Any], architecture: Json | None = None
) -> Resolved:
    """The complete recipe for these patches, later ones over earlier ones.

    Args:
        catalogue: see `core.catalogue`.
        scenario: `data`, `task` or `class`.
        architecture: the model's; None leaves open whether the method works on it.

    Raises:
        InvalidRecipe: an unknown name, a bad value, or a combination that the method excludes.
    """
    patch: Json = {}
    for each in patches:
        patch = merge_recipe(patch, each)
    recipe, name, hyper = _complete(catalogue, patch)
    known = [f"recipe.{path}" for path in known_paths(catalogue, name)]
    errors = [
        *_errors(catalogue["recipe"]["schema"], recipe, "recipe", known),
        *_errors(catalogue["methods"][name]["schema"], hyper, "recipe.method", known),
    ]
    errors = [(field, message + _other_methods(catalogue, name, field)) for field, message in errors]
    if errors:
        raise _wrong(errors)
    _applicable(catalogue, name, scenario, recipe, architecture)
    return Resolved(recipe, weaknesses(catalogue, scenario, recipe))


def completed(catalogue: Json, patch: Mapping[str, Any]) -> Json:
    """A stored patch as people see it: with its defaults, but not checked again.

    A patch that this code version cannot complete (its method is gone) is shown as it is.
    """
    try:
        return _complete(catalogue, merge_recipe({}, patch))[0]
    except InvalidRecipe:
        return dict(patch)


def architecture(catalogue: Json, scenario: str, asked: str | Mapping[str, Any], image: Json) -> Json:
    """The complete architecture `{"name": …, its hyper-parameters …}`.

    Raises:
        Invalid: an unknown one, bad hyper-parameters, or one that does not fit scenario or image.
    """
    wanted = {"name": asked} if isinstance(asked, str) else dict(asked)
    name = wanted.pop("name", None)
    known = catalogue["architectures"]
    if not isinstance(name, str) or name not in known:
        raise _invalid(
            [("architecture.name", f"unknown architecture; {one_of(name, sorted(known))}")],
            "Unknown architecture",
        )
    entry = known[name]
    hyper = {**entry.get("defaults", {}), **wanted}
    known_here = [f"architecture.{path}" for path in ("name", *paths_of(entry["schema"]))]
    errors = list(_errors(entry["schema"], hyper, "architecture", known_here))
    if scenario not in entry.get("scenarios", [scenario]):
        errors.append(("architecture.name", f"{name} does not work in the {scenario} scenario"))
    smallest = entry.get("min_size") or 1
    if image["size"] < smallest:
        errors.append(("image.size", f"{name} needs images of at least {smallest} pixels"))
    if errors:
        raise _invalid(errors, "Unusable architecture")
    return {"name": name, **hyper}


def _complete(catalogue: Json, patch: Mapping[str, Any]) -> tuple[Json, str, Json]:
    """The complete recipe, its method's name and hyper-parameters; names are checked, values are not."""
    defaults = _named(catalogue["recipe"]["defaults"])
    base: Json = {"method": {"name": _default_method(defaults)}}
    preset = patch.get("preset")
    if preset is not None:
        presets = catalogue["presets"]
        if not isinstance(preset, str) or preset not in presets:
            raise _wrong([("recipe.preset", f"unknown preset; {one_of(preset, sorted(presets))}")])
        base = merge_recipe(base, presets[preset])
    wanted = merge_recipe(base, patch)
    name, hyper = _method(catalogue, wanted.pop("method", None))
    wanted = merge_recipe(catalogue["methods"][name].get("advice", {}), wanted)
    recipe = _filled(defaults, wanted)
    recipe["method"] = {"name": name, **hyper}
    depths = catalogue["methods"][name].get("accepts", {}).get("depths")
    if "depth" not in wanted and depths:
        recipe["depth"] = max(depths)
    optimizer = recipe.get("optimizer")
    if isinstance(optimizer, dict) and isinstance(optimizer.get("olor"), Mapping):
        optimizer["olor"] = {**catalogue["recipe"]["olor"], **optimizer["olor"]}
    return recipe, name, hyper


def _default_method(defaults: Json) -> str:
    name: str = defaults.get("method", {}).get("name", "der++")
    return name


def _named(recipe: Json) -> Json:
    method = recipe.get("method")
    return {**recipe, "method": {"name": method}} if isinstance(method, str) else recipe


def _method(catalogue: Json, method: Any) -> tuple[str, Json]:
    if not isinstance(method, Mapping):
        raise _wrong([("recipe.method", "must be a method's name or an object with its name")])
    name = method.get("name")
    methods = catalogue["methods"]
    if not isinstance(name, str) or name not in methods:
        raise _wrong([("recipe.method.name", f"unknown method; {one_of(name, sorted(methods))}")])
    given = {k: v for k, v in method.items() if k != "name"}
    return name, {**copy.deepcopy(methods[name]["defaults"]), **given}


def _filled(defaults: Json, wanted: Json) -> Json:
    """`wanted` with what it leaves open, one level into objects (optimizer, head)."""
    out: Json = {}
    for key, value in defaults.items():
        given = wanted.get(key)
        if isinstance(value, Mapping) and (given is None or isinstance(given, Mapping)):
            out[key] = {**copy.deepcopy(dict(value)), **(given or {})}
        else:
            out[key] = copy.deepcopy(value) if given is None else given
    for key, value in wanted.items():
        out.setdefault(key, value)
    return out


def _applicable(catalogue: Json, name: str, scenario: str, recipe: Json, architecture: Json | None) -> None:
    entry = catalogue["methods"][name]
    accepts = entry.get("accepts", {})
    errors = []
    if scenario not in entry["scenarios"]:
        where = " and ".join(entry["scenarios"])
        what = f"{name} does not work in the {scenario} scenario, only in {where}: take another method"
        errors.append(("recipe.method.name", what))
    families = accepts.get("architectures")
    if architecture is not None and families is not None:
        known = catalogue["architectures"]
        fitting = [a for a in sorted(known) if known[a].get("family") in families]
        if architecture["name"] not in fitting:
            what = f"{name} works on {', '.join(fitting)}, not on {architecture['name']}"
            errors.append(("recipe.method.name", what))
    for hyper in accepts.get("task_only", []):
        if scenario != "task" and recipe["method"].get(hyper):
            where = "only in the task scenario, where predictions name the task"
            errors.append((f"recipe.method.{hyper}", where))
    for hyper, value in accepts.get("refused", {}).get(scenario, {}).items():
        if recipe["method"].get(hyper) == value:
            errors.append(
                (
                    f"recipe.method.{hyper}",
                    f"{shown(value, quoted=True)} does not work in the {scenario} scenario",
                )
            )
    checks = (
        ("recipe.optimizer.name", recipe.get("optimizer", {}).get("name"), accepts.get("optimizers")),
        ("recipe.depth", recipe.get("depth"), accepts.get("depths")),
        ("recipe.head.init", recipe.get("head", {}).get("init"), accepts.get("head_inits")),
    )
    for field, value, allowed in checks:
        if allowed is not None and value not in allowed:
            errors.append((field, f"{name} accepts {', '.join(map(str, allowed))}"))
    if recipe.get("anytime") and not recipe.get("validation"):
        errors.append(("recipe.validation", _ANYTIME_NEEDS))
    if recipe.get("optimizer", {}).get("olor") is not None and not accepts.get("olor", False):
        errors.append(("recipe.optimizer.olor", f"{name} does not accept OLOR"))
    if errors:
        raise _wrong(errors)


def known_paths(catalogue: Json, method: str | None = None) -> list[str]:
    """The dotted paths of all that a recipe can say, with the hyper-parameters of one method (None: the default)."""
    name = method or _default_method(catalogue["recipe"]["defaults"])
    hyper = paths_of(catalogue["methods"][name]["schema"])
    return [
        "method.name",
        *(f"method.{path}" for path in hyper),
        *paths_of(catalogue["recipe"]["schema"]),
    ]


def _other_methods(catalogue: Json, name: str, field: str) -> str:
    """Which methods have a hyper-parameter that this one lacks; empty for any other field."""
    block, _, hyper = field.rpartition(".")
    methods = catalogue["methods"]
    if block != "recipe.method" or hyper in methods[name]["schema"].get("properties", {}):
        return ""
    having = [m for m in sorted(methods) if hyper in methods[m]["schema"].get("properties", {})]
    return f"; {hyper} belongs to {', '.join(having)}" if having else ""


def _errors(schema: Json, value: Any, root: str, known: Sequence[str]) -> Iterable[tuple[str, str]]:
    """What is wrong with a value, by field; `known`: the paths among which a field that does not exist is looked for."""
    validator = _Validator(schema)
    for found in sorted(validator.iter_errors(value), key=lambda e: [str(p) for p in e.absolute_path]):
        for error in _alternative(found):
            path = ".".join([root, *(str(p) for p in error.absolute_path)])
            if error.validator == "additionalProperties" and isinstance(error.instance, Mapping):
                allowed = sorted(error.schema.get("properties", {}))
                for unknown in sorted(set(error.instance) - set(allowed))[:MAX_ERRORS]:
                    yield f"{path}.{unknown}", unknown_field(unknown, known, path, allowed)
            else:
                yield path, _message(error)


def _message(error: jsonschema.ValidationError) -> str:
    if error.validator == "enum":
        return must_be_one_of(error.instance, error.validator_value)
    types = [str(e.validator_value) for e in error.context or [] if e.validator == "type"]
    if error.validator == "anyOf" and types:
        return f"must be {kind(types)}{found_text(error.instance)}"
    said = must_be(str(error.validator), error.validator_value)
    return f"{said}{found_text(error.instance)}" if said else _short(error.message)


def _alternative(error: jsonschema.ValidationError) -> list[jsonschema.ValidationError]:
    """What is wrong with a value that may also be null, where it has the right type; else the error itself."""
    inner = [e for e in error.context or [] if e.validator != "type" or e.relative_path]
    return inner if error.validator == "anyOf" and inner else [error]


def _short(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:297]}…"


def _wrong(errors: list[tuple[str, str]]) -> InvalidRecipe:
    fields = [{"field": f, "message": m} for f, m in errors[:MAX_ERRORS]]
    return InvalidRecipe(_sentence(errors, "The recipe cannot be used"), fields=fields)


def _invalid(errors: list[tuple[str, str]], what: str) -> Invalid:
    fields = [{"field": f, "message": m} for f, m in errors[:MAX_ERRORS]]
    return Invalid(_sentence(errors, what), fields=fields)


def _sentence(errors: list[tuple[str, str]], what: str) -> str:
    field, message = errors[0]
    more = f" ({len(errors) - 1} more in errors)" if len(errors) > 1 else ""
    return f"{what}: {field}: {message}{more}{'' if (more or message).endswith('?') else '.'}"
