"""The part of a form that says how a batch is learned: a choice of method or preset, and what differs from it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from api.pages.schema_form import Field, Unfit, fields_of, filled_in, patch_of, paths_in
from core.db.session import Database
from core.errors import InvalidRecipe
from core.protocol.answers.model import ModelOut
from core.protocol.catalogue import Catalogue
from core.protocol.document import JsonObject
from core.protocol.patch import RecipePatch
from core.recipe.merge import merge_recipe
from core.requests import recipes
from core.requests.actor import Actor

CHOICE = "choice"
"""Name of the input that says what the others differ from: `method:NAME`, `preset:NAME`, or nothing."""
_CHOSEN_ELSEWHERE = ("method", "preset")


@dataclass(frozen=True)
class Option:
    """A method or preset. `why_not`: why the model's scenario has no use of it."""

    value: str
    name: str
    description: str
    why_not: str | None = None


@dataclass
class RecipeForm:
    """What a page shows of a recipe.

    Attributes:
        given: what somebody filled in, by name.
        patch: what differs from the model's recipe, as it is sent.
        errors: name of an input → what is wrong with it; the name `recipe` stands for all.
    """

    choice: str
    methods: list[Option]
    presets: list[Option]
    method: str
    method_fields: tuple[Field, ...]
    fields: tuple[Field, ...]
    given: dict[str, str]
    patch: RecipePatch = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def json(self) -> str:
        """The patch as it is sent; plain ASCII, so that it fits a header."""
        return json.dumps(self.patch)

    @property
    def paths(self) -> set[str]:
        """The names of the inputs besides the choice."""
        return set(paths_in((*self.method_fields, *self.fields)))

    @property
    def filled_in(self) -> bool:
        """Whether an input besides the choice is."""
        return any(self.given.get(path) for path in self.paths)

    @property
    def unknown(self) -> list[str]:
        """What was filled in by a name that no input has."""
        known = {CHOICE, *self.paths}
        return [path for path in self.given if path not in known]

    def refused(self, error: InvalidRecipe) -> None:
        """Put an error of the service beside the inputs that it is about."""
        names = {CHOICE, *self.paths}
        for one in error.fields:
            path = one["field"].removeprefix("recipe.")
            self.errors[CHOICE if path == "method.name" else path if path in names else "recipe"] = one[
                "message"
            ]
        if not error.fields:
            self.errors["recipe"] = error.detail


def recipe_form(
    db: Database, catalogue: Catalogue, actor: Actor, model: ModelOut, given: Mapping[str, str]
) -> RecipeForm:
    """The form for a model as somebody filled it in, its patch, and what the service says of it."""
    choice = given.get(CHOICE, "")
    base = _chosen(catalogue, choice)
    own: Mapping[str, Any] = model["recipe"]
    try:
        own = recipes.planned(db, catalogue, actor, model["id"], base or {}).recipe
    except InvalidRecipe:
        own = merge_recipe(own, base or {})
    method = cast(Mapping[str, Any], own["method"])
    name = str(method["name"])
    entry = catalogue["methods"].get(name)
    hyper = {} if entry is None else {**entry["defaults"], **method}
    methods = [
        Option(f"method:{each}", each, of["description"], _why_not(of["scenarios"], model["scenario"]))
        for each, of in sorted(catalogue["methods"].items())
    ]
    presets = [
        Option(f"preset:{each}", each, json.dumps(of)) for each, of in sorted(catalogue["presets"].items())
    ]
    form = RecipeForm(
        choice if base is not None else "",
        methods,
        presets,
        name,
        () if entry is None else fields_of(entry["schema"], hyper, "method."),
        fields_of(catalogue["recipe"]["schema"], own, without=_CHOSEN_ELSEWHERE),
        dict(given),
    )
    if base is None:
        form.errors[CHOICE] = f"there is no {choice[:60]!r}"
        return form
    try:
        _plan(form, db, catalogue, actor, model["id"], base)
    except InvalidRecipe as error:
        form.refused(error)
    return form


def names(catalogue: Catalogue) -> tuple[str, ...]:
    """Every name that an input of such a form may have."""
    found = {CHOICE, *paths_in(fields_of(catalogue["recipe"]["schema"], {}, without=_CHOSEN_ELSEWHERE))}
    for entry in catalogue["methods"].values():
        found |= set(paths_in(fields_of(entry["schema"], {}, "method.")))
    return tuple(sorted(found))


def given_of(text: str) -> dict[str, str]:
    """What to fill in, by name, so that the form says the recipe of a patch in JSON. Raises ValueError: it is none."""
    try:
        patch = json.loads(text)
    except RecursionError:
        raise ValueError("the JSON is too deep") from None
    if not isinstance(patch, dict):
        raise ValueError("the JSON is no object")
    method, choice = patch.pop("method", {}), patch.pop("preset", None)
    hyper = dict(method) if isinstance(method, dict) else {"name": method}
    if "name" in hyper:
        chosen = {CHOICE: f"method:{hyper.pop('name')}"}
    else:
        chosen = {CHOICE: f"preset:{choice}"} if choice is not None else {}
    return chosen | filled_in(hyper, "method.") | filled_in(patch)


def _plan(
    form: RecipeForm, db: Database, catalogue: Catalogue, actor: Actor, model: str, base: JsonObject
) -> None:
    """Fill in the patch, and what the service says of it. Raises InvalidRecipe."""
    try:
        patch, hyper = patch_of(form.fields, form.given), patch_of(form.method_fields, form.given)
    except Unfit as error:
        form.errors.update(error.errors)
        return
    method = {**cast(JsonObject, base.get("method", {})), **hyper}
    form.patch = dict[str, object](_short({**base, **patch, **({"method": method} if method else {})}))
    form.warnings = recipes.planned(db, catalogue, actor, model, form.patch).warnings


def _chosen(catalogue: Catalogue, choice: str) -> JsonObject | None:
    """The patch that a choice stands for; None: there is no such choice."""
    kind, _, name = choice.partition(":")
    if not choice:
        return {}
    if kind == "method" and name in catalogue["methods"]:
        return {"method": {"name": name}}
    return {"preset": name} if kind == "preset" and name in catalogue["presets"] else None


def _short(patch: JsonObject) -> JsonObject:
    """A method without hyper-parameters by its name alone."""
    method = patch.get("method")
    return (
        {**patch, "method": method["name"]} if isinstance(method, dict) and set(method) == {"name"} else patch
    )


def _why_not(scenarios: list[str], scenario: str) -> str | None:
    return None if scenario in scenarios else f"not in the {scenario} scenario"
