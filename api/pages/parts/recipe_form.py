"""The part of a form that sets how a batch is learned: a method or preset, and deviations
from it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from api.pages.parts.schema_form import (
    InvalidFormValues,
    SchemaFormField,
    build_form_fields,
    compute_patch_of_form_values,
    convert_patch_to_form_values,
    iterate_form_input_names,
)
from core.admission import recipe_preview
from core.contract.catalogue import RecipeCatalogue
from core.contract.document import JsonObject
from core.contract.patch import RecipePatch
from core.contract.responses.model import ModelOut
from core.database.session import Database
from core.errors import InvalidRecipe
from core.recipe.merge import merge_recipe
from core.requests.actor import Actor

CHOICE = "choice"
"""Name of the input that selects the defaults: `method:NAME`, `preset:NAME`, or empty."""
_CHOSEN_ELSEWHERE = ("method", "preset")


@dataclass(frozen=True)
class RecipeChoiceOption:
    """A method or preset to choose in a form. `why_not`: why the model's scenario rules it out."""

    value: str
    name: str
    description: str
    why_not: str | None = None


@dataclass
class RecipeForm:
    """A form for training settings (a recipe): chosen method, inputs, and errors.

    Attributes:
        choice: the selected method or preset, as in `CHOICE`.
        inputs: values of the form by name.
        patch: deviations from the model's recipe, as they are sent.
        errors: name of an input → what is wrong with it; the name `recipe` stands for all.
    """

    choice: str
    methods: list[RecipeChoiceOption]
    presets: list[RecipeChoiceOption]
    method: str
    method_fields: tuple[SchemaFormField, ...]
    fields: tuple[SchemaFormField, ...]
    inputs: dict[str, str]
    patch: RecipePatch = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def patch_json(self) -> str:
        """The changes that the form makes to the model's recipe, as JSON in plain ASCII for a
        header.
        """
        return json.dumps(self.patch)

    @property
    def input_names(self) -> set[str]:
        """Names of the form's inputs, other than the choice of method or preset."""
        return set(iterate_form_input_names((*self.method_fields, *self.fields)))

    @property
    def is_filled_in(self) -> bool:
        """True if any form input other than the choice of method or preset has a value."""
        return any(self.inputs.get(path) for path in self.input_names)

    @property
    def unknown_input_names(self) -> list[str]:
        """Names of submitted values for which the form has no input."""
        names = {CHOICE, *self.input_names}
        return [path for path in self.inputs if path not in names]

    def add_service_errors(self, error: InvalidRecipe) -> None:
        """Add the service's validation errors of a recipe to the form inputs that they concern."""
        names = {CHOICE, *self.input_names}
        for one in error.fields:
            path = one["field"].removeprefix("recipe.")
            self.errors[
                CHOICE if path == "method.name" else path if path in names else "recipe"
            ] = one["message"]
        if not error.fields:
            self.errors["recipe"] = error.detail


def build_recipe_form(
    db: Database,
    catalogue: RecipeCatalogue,
    actor: Actor,
    model: ModelOut,
    inputs: Mapping[str, str],
) -> RecipeForm:
    """Build a model's recipe form from submitted values, with the service's warnings."""
    choice = inputs.get(CHOICE, "")
    base = _find_recipe_patch_of_choice(catalogue, choice)
    current: Mapping[str, Any] = model["recipe"]
    try:
        current = recipe_preview.preview_next_task_recipe(
            db, catalogue, actor, model["id"], base or {}
        ).recipe
    # A choice that does not fit the model still gets its form, with the error beside it.
    except InvalidRecipe:
        current = merge_recipe(current, base or {})
    method = cast(Mapping[str, Any], current["method"])
    name = str(method["name"])
    entry = catalogue["methods"].get(name)
    hyper = {} if entry is None else {**entry["defaults"], **method}
    methods = [
        RecipeChoiceOption(
            f"method:{each}",
            each,
            catalogue_entry["description"],
            _explain_scenario_mismatch(catalogue_entry["scenarios"], model["scenario"]),
        )
        for each, catalogue_entry in sorted(catalogue["methods"].items())
    ]
    presets = [
        RecipeChoiceOption(f"preset:{each}", each, json.dumps(catalogue_entry))
        for each, catalogue_entry in sorted(catalogue["presets"].items())
    ]
    form = RecipeForm(
        choice if base is not None else "",
        methods,
        presets,
        name,
        () if entry is None else build_form_fields(entry["schema"], hyper, "method."),
        build_form_fields(catalogue["recipe"]["schema"], current, without=_CHOSEN_ELSEWHERE),
        dict(inputs),
    )
    if base is None:
        form.errors[CHOICE] = f"there is no {choice[:60]!r}"
        return form
    try:
        _set_form_patch_and_warnings(form, db, catalogue, actor, model["id"], base)
    except InvalidRecipe as error:
        form.add_service_errors(error)
    return form


def list_recipe_form_input_names(catalogue: RecipeCatalogue) -> tuple[str, ...]:
    """Return the names of all inputs that a recipe form may have."""
    input_names = {
        CHOICE,
        *iterate_form_input_names(
            build_form_fields(catalogue["recipe"]["schema"], {}, without=_CHOSEN_ELSEWHERE)
        ),
    }
    for entry in catalogue["methods"].values():
        input_names |= set(
            iterate_form_input_names(build_form_fields(entry["schema"], {}, "method."))
        )
    return tuple(sorted(input_names))


def convert_recipe_patch_to_form_values(text: str) -> dict[str, str]:
    """Return the form values that express a recipe patch, given as JSON text.

    Raises:
        ValueError: the text is not a JSON object.
    """
    try:
        patch = json.loads(text)
    # Deeply nested JSON exhausts the stack before it is parsed.
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
    return (
        chosen
        | convert_patch_to_form_values(hyper, "method.")
        | convert_patch_to_form_values(patch)
    )


def _set_form_patch_and_warnings(
    form: RecipeForm,
    db: Database,
    catalogue: RecipeCatalogue,
    actor: Actor,
    model: str,
    base: JsonObject,
) -> None:
    """Compute the recipe patch that a form describes, and the warnings about it. Raises
    InvalidRecipe.
    """
    try:
        patch, hyper = (
            compute_patch_of_form_values(form.fields, form.inputs),
            compute_patch_of_form_values(form.method_fields, form.inputs),
        )
    except InvalidFormValues as error:
        form.errors.update(error.errors)
        return
    method = {**cast(JsonObject, base.get("method", {})), **hyper}
    form.patch = dict[str, object](
        _shorten_parameterless_method_to_name(
            {**base, **patch, **({"method": method} if method else {})}
        )
    )
    form.warnings = recipe_preview.preview_next_task_recipe(
        db, catalogue, actor, model, form.patch
    ).warnings


def _find_recipe_patch_of_choice(catalogue: RecipeCatalogue, choice: str) -> JsonObject | None:
    """Return the recipe patch of a chosen method or preset; None if there is no such choice."""
    kind, _, name = choice.partition(":")
    if not choice:
        return {}
    if kind == "method" and name in catalogue["methods"]:
        return {"method": {"name": name}}
    return {"preset": name} if kind == "preset" and name in catalogue["presets"] else None


def _shorten_parameterless_method_to_name(patch: JsonObject) -> JsonObject:
    """Shorten the method in a recipe patch to its name if it has no hyper-parameters."""
    method = patch.get("method")
    return (
        {**patch, "method": method["name"]}
        if isinstance(method, dict) and set(method) == {"name"}
        else patch
    )


def _explain_scenario_mismatch(scenarios: list[str], scenario: str) -> str | None:
    return None if scenario in scenarios else f"not in the {scenario} scenario"
