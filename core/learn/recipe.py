"""How a task is learned: method × optimizer × depth × head init, and the numbers around them.

A recipe comes as a JSON patch over the defaults (RFC 7396), optionally on top of a preset. `resolve` gives
the complete recipe; resolving a resolved recipe changes nothing. Everything is checked here, once: unknown
fields, ranges, and combinations that the chosen method does not accept.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from core.learn.augment import NAMES as AUGMENTS

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Strict(BaseModel):
    """Frozen; unknown fields, coerced types and infinities are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class OptimizerRecipe(Strict):
    """`lr` is the peak rate; `head_lr` null means the same for the head. `clip` bounds the gradient's norm."""

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: Positive = 0.03
    head_lr: Positive | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9  # sgd only; adam and adamw use betas 0.9, 0.999
    weight_decay: NotNegative = 0.0
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup_steps: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    clip: Positive | None = None
    carry_state: bool = False
    olor: None = None

    def rate_of(self, parameter: str) -> float:
        """The peak rate of a parameter of the network, by its name."""
        return self.lr if parameter.startswith("backbone.") else self.head_lr or self.lr


class HeadRecipe(Strict):
    """How rows of new classes start."""

    init: Literal["zero", "default"] = "zero"


class Recipe(Strict):
    """A complete recipe. `method` is {"name": …, its hyper-parameters …}."""

    preset: str | None = None
    method: dict[str, Any] = {"name": "der++"}
    optimizer: OptimizerRecipe = OptimizerRecipe()
    depth: Annotated[int, Field(ge=1, le=5)] = 5
    head: HeadRecipe = HeadRecipe()
    epochs: Annotated[int, Field(ge=1, le=10_000)] = 10
    batch_size: Annotated[int, Field(ge=1, le=65_536)] = 32
    sampler: Literal["shuffled", "stratified"] = "shuffled"
    augment: str = Field(default="auto", json_schema_extra={"enum": list(AUGMENTS)})
    validation: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    train_ce: Literal["auto", "masked", "global"] = "auto"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0


PRESETS: dict[str, dict[str, Any]] = {
    # The head alone learns; the backbone stays in eval mode as a whole.
    "linear-probe": {"method": {"name": "finetune"}, "depth": 1},
}


class RecipeError(ValueError):
    """A recipe that cannot be used. `field` is a dotted path."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


def merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """RFC 7396, with two rules of ours.

    A `method` given as a string is its name; a patch that names another method than the base replaces the
    base's method with all its hyper-parameters.
    """
    before, after = _named(base), _named(patch)
    old, new = before.get("method"), after.get("method")
    if isinstance(old, Mapping) and isinstance(new, Mapping) and _other(old, new):
        del before["method"]
    return _merge_json(before, after)


def resolve(patch: Mapping[str, Any], scenario: str | None = None) -> Recipe:
    """The complete recipe for a patch: defaults, then the preset, then the patch.

    A null in the patch means that it does not say: the preset's value or the default counts.
    Raises RecipeError (or pydantic's ValidationError for types and ranges) with the field that is wrong.
    """
    from core.learn.methods import get  # methods need this module's types

    base: dict[str, Any] = {"method": {"name": "der++"}}
    patch = merge({}, patch)
    preset = patch.get("preset")
    if preset is not None:
        if not isinstance(preset, str) or preset not in PRESETS:
            raise RecipeError("preset", f"unknown preset {preset!r}: one of {', '.join(PRESETS)}")
        base = merge(base, PRESETS[preset])
    recipe = Recipe.model_validate(merge(base, patch))
    if recipe.augment not in AUGMENTS:
        raise RecipeError("augment", f"{recipe.augment!r} is not one of {', '.join(AUGMENTS)}")
    name = recipe.method.get("name")
    try:
        method = get(str(name))
    except KeyError as error:
        raise RecipeError("method.name", str(error.args[0])) from None
    hyper = method.Hyper.model_validate({k: v for k, v in recipe.method.items() if k != "name"})
    accepts = method.accepts
    if recipe.optimizer.name not in accepts.optimizers:
        raise RecipeError("optimizer.name", f"{name} accepts {', '.join(accepts.optimizers)}")
    if recipe.depth not in accepts.depths:
        raise RecipeError("depth", f"{name} accepts {', '.join(map(str, accepts.depths))}")
    if recipe.head.init not in accepts.head_inits:
        raise RecipeError("head.init", f"{name} accepts {', '.join(accepts.head_inits)}")
    if scenario is not None and scenario not in method.scenarios:
        raise RecipeError("method.name", f"{name} does not work in the {scenario} scenario")
    return recipe.model_copy(update={"method": {"name": name, **hyper.model_dump(by_alias=True)}})


def _other(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether `new` names another method than `old`."""
    return bool(new.get("name", old.get("name")) != old.get("name"))


def _named(recipe: Mapping[str, Any]) -> dict[str, Any]:
    method = recipe.get("method")
    return {**recipe, "method": {"name": method}} if isinstance(method, str) else dict(recipe)


def _merge_json(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    out = copy.deepcopy(dict(base))
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        elif isinstance(value, Mapping):
            held = out.get(key)
            out[key] = _merge_json(held if isinstance(held, Mapping) else {}, value)
        else:
            out[key] = copy.deepcopy(value)
    return out
