"""How a task is learned: method × optimizer × depth × head init, and the numbers around them.

A recipe comes as a JSON patch over the defaults (RFC 7396), optionally on top of a preset. `resolve` gives
the complete recipe; resolving a resolved recipe changes nothing. Everything is checked here, once: unknown
fields, ranges, and combinations that the chosen method does not accept.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from core.learn.augment import NAMES as AUGMENTS

if TYPE_CHECKING:
    from core.learn.methods.base import Method

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Strength = Annotated[float, Field(ge=0, le=1e36)]
"""Of a penalty on weights: what float32 holds, also when doubled."""
Share = Annotated[float, Field(ge=0, le=1)]
StartingPoint = Literal["update_start", "pretrained"]
"""The version that the task starts from, or version 0."""


class Strict(BaseModel):
    """Frozen; unknown fields, coerced types and infinities are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def is_head(parameter: str) -> bool:
    """Whether a parameter of a network, by its name, is a head's; all others make the features."""
    return parameter.startswith(("head.", "heads."))


class OlorRecipe(Strict):
    """After each step, a share of the way back to the weights that the run started from.

    The backbone's first layer goes back by `iota1` of its distance, the last by `iota2`, those between by a power
    law with exponent `gamma`; all by less where the rate is below its peak. `granularity`: layers are blocks, or
    single tensors as in the authors' code. `anchor`: the version that the task starts from, or version 0.
    `anchor_old_head_rows`: rows of the head that were there before go back by `iota1` too.
    """

    iota1: Share = 0.01
    iota2: Share = 0.0
    gamma: NotNegative = 2.0
    granularity: Literal["block", "tensor"] = "block"
    anchor: StartingPoint = "update_start"
    anchor_old_head_rows: bool = False


class OptimizerRecipe(Strict):
    """`lr` is the peak rate; `head_lr` null means the same for the head. `clip` bounds the gradient's norm.

    `momentum` and `dampening` are SGD's (Adam's betas are 0.9, 0.999): v ← momentum · v + (1 - dampening) · gradient
    from v = 0 on. Without momentum there is no dampening either.
    """

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: Positive = 0.03
    head_lr: Positive | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    dampening: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: NotNegative = 0.0
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup_steps: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    clip: Positive | None = None
    carry_state: bool = False
    olor: OlorRecipe | None = None

    def rate_of(self, parameter: str) -> float:
        """The peak rate of a parameter of the network, by its name."""
        return (self.head_lr or self.lr) if is_head(parameter) else self.lr


class HeadRecipe(Strict):
    """How rows of new classes start."""

    init: Literal["zero", "default"] = "zero"


class Recipe(Strict):
    """A complete recipe. `method` is {"name": …, its hyper-parameters …}.

    What is left open is the method's advice, and `depth` the greatest that it accepts. `validation` is the share of the training
    part that is held back to choose the state to deploy, after each epoch; with `anytime` often from the first
    step on, with the Anytime Deployment Performance measured beside it.
    """

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
    anytime: bool = False
    train_ce: Literal["auto", "masked", "global"] = "auto"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0


_OLOR = {"iota1": 0.01, "iota2": 0.0, "gamma": 2.0}
PRESETS: dict[str, dict[str, Any]] = {
    # The head alone learns; the backbone stays in eval mode as a whole.
    "linear-probe": {"method": {"name": "finetune"}, "depth": 1},
    # OLOR with the rates at which its authors fine-tune ConvNeXt and ViT.
    "olor-sgd": {"optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9, "olor": _OLOR}},
    "olor-adam": {"optimizer": {"name": "adam", "lr": 0.0001, "olor": _OLOR}},
    # FAST: a zero head sends nothing back in its first step, and its own, larger rate lets it catch up. With Adam,
    # whose second step is as long as any other, take lr 0.0001, head_lr 0.001 and warmup_steps 10 or more.
    "fast": {
        "method": {"name": "finetune"},
        "optimizer": {"name": "sgd", "lr": 0.001, "head_lr": 0.01, "momentum": 0.9, "schedule": "constant"},
        "head": {"init": "zero"},
        "sampler": "stratified",
        "validation": 0.05,
        "anytime": True,
    },
}
_ANYTIME_NEEDS = "must be above 0 with anytime, which deploys the best validated state: 0.05, for example"


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
    """The complete recipe for a patch: defaults, then what its method advises, then the preset, then the patch.

    A null in the patch means that it does not say: the preset's value or the default counts.
    Raises RecipeError (or pydantic's ValidationError for types and ranges) with the field that is wrong.
    """
    base: dict[str, Any] = {"method": {"name": "der++"}}
    patch = merge({}, patch)
    preset = patch.get("preset")
    if preset is not None:
        if not isinstance(preset, str) or preset not in PRESETS:
            raise RecipeError("preset", f"unknown preset {preset!r}: one of {', '.join(PRESETS)}")
        base = merge(base, PRESETS[preset])
    wanted = merge(base, patch)
    method = _method(wanted["method"])
    recipe = Recipe.model_validate(_merge_json(method.advice, wanted))
    if recipe.anytime and not recipe.validation:
        raise RecipeError("validation", _ANYTIME_NEEDS)
    if recipe.augment not in AUGMENTS:
        raise RecipeError("augment", f"{recipe.augment!r} is not one of {', '.join(AUGMENTS)}")
    name = method.name
    hyper = method.Hyper.model_validate({k: v for k, v in recipe.method.items() if k != "name"})
    accepts = method.accepts
    if "depth" not in recipe.model_fields_set:
        recipe = recipe.model_copy(update={"depth": max(accepts.depths)})
    if recipe.optimizer.name not in accepts.optimizers:
        raise RecipeError("optimizer.name", f"{name} accepts {', '.join(accepts.optimizers)}")
    if recipe.depth not in accepts.depths:
        raise RecipeError("depth", f"{name} accepts {', '.join(map(str, accepts.depths))}")
    if recipe.head.init not in accepts.head_inits:
        raise RecipeError("head.init", f"{name} accepts {', '.join(accepts.head_inits)}")
    if recipe.optimizer.olor is not None and not accepts.olor:
        raise RecipeError("optimizer.olor", f"{name} does not accept OLOR")
    if scenario is not None and scenario not in method.scenarios:
        raise RecipeError("method.name", f"{name} does not work in the {scenario} scenario")
    for field in accepts.task_only:
        if scenario not in (None, "task") and getattr(hyper, field):
            raise RecipeError(f"method.{field}", "only in the task scenario, where predictions name the task")
    for field, value in accepts.refused.get(scenario or "", {}).items():
        if getattr(hyper, field) == value:
            raise RecipeError(f"method.{field}", f"{value!r} does not work in the {scenario} scenario")
    return recipe.model_copy(update={"method": {"name": name, **hyper.model_dump(by_alias=True)}})


def remarks(recipe: Recipe, scenario: str, first: bool) -> list[str]:
    """What a recipe cannot do for a task of this scenario; `first`: nothing was learned before it."""
    if recipe.preset != "fast" or first or scenario == "task":
        return []
    here = "only the rows of new classes start at zero (new-rows-zero)"
    if scenario == "data":
        here = "the head goes on from what it learned before"
    return [
        f"preset fast needs a head that is zero as a whole, as in a first task or with a head per task: {here}"
    ]


def _method(asked: object) -> type[Method]:
    from core.learn.methods import get  # methods need this module's types

    name = asked.get("name") if isinstance(asked, Mapping) else asked
    try:
        return get(str(name))
    except KeyError as error:
        raise RecipeError("method.name", str(error.args[0])) from None


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
