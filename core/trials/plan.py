"""Plan of a batch's trials: the recipes of a request, or recipes that fit the model.

Candidates must be comparable on images that none of them learns from. A model with `selection`
keeps such images. Otherwise only closed-form heads can be compared, by exact left-out answers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from core.contract.catalogue import RecipeCatalogue
from core.contract.jobs.trial import Choose, Source
from core.contract.patch import RecipePatch
from core.contract.reports.report import TrialPlan
from core.database.tables import Model
from core.errors import Invalid, InvalidRecipe, JobTooLarge
from core.recipe.resolve import ResolvedRecipe, resolve_recipe
from core.recipe.stored_patch import build_stored_recipe_override
from core.trials.candidates import TrialSuggestion, list_trial_suggestions

AUTO: Literal["auto"] = "auto"
LEAST, MOST = 2, 8
"""Number of recipes that a request may list."""
MOST_AUTO = 5
"""Candidates that are found for a batch."""
LISTED = "It was listed in the request."


@dataclass(frozen=True)
class TrialsRequest:
    """A user's request to learn a batch with several recipes as trials.

    Attributes:
        recipes: recipe overrides, or "auto" for some that fit.
        choose: decision between them.
        max_seconds: seconds of the job after which no further one begins; None: no limit.
    """

    recipes: Literal["auto"] | Sequence[RecipePatch]
    choose: Choose = "best"
    max_seconds: float | None = None


@dataclass(frozen=True)
class PlannedTrial:
    """A planned trial: recipe override, complete recipe with its warnings, and the reason for
    it.
    """

    override: RecipePatch
    resolved_recipe: ResolvedRecipe
    reason: str


@dataclass(frozen=True)
class TrialBatchProperties:
    """The properties of a batch that decide which trials are planned for it.

    Attributes:
        is_first: True if the model was taught nothing yet, and no batch waits.
        images: number of training images.
        has_selection: True if it, or an earlier batch, has images for comparing candidates.
    """

    is_first: bool
    images: int
    has_selection: bool


Check = Callable[[ResolvedRecipe], list[str]]
"""Checks that a model can learn its next task with a recipe, and returns warnings."""


def plan_trials(
    catalogue: RecipeCatalogue,
    model: Model,
    trials_request: TrialsRequest,
    batch: TrialBatchProperties,
    check: Check,
) -> list[PlannedTrial]:
    """Plan the trials of a batch: check listed recipes, or choose some that fit.

    Args:
        check: see `Check`; raises InvalidRecipe, JobTooLarge.

    Raises:
        Invalid: too few or too many recipes, two that are equal, or recipes that nothing compares.
        InvalidRecipe: a recipe cannot be used.
    """
    if model.problem is not None:
        raise _make_trials_error(f"Models of the problem {model.problem} have no trials.")
    source: Source = "selection" if model.selection else "left-out"
    if source == "selection" and not batch.has_selection:
        raise _make_trials_error(
            "No image can compare recipes: no class of this batch has 8 images or more, and no "
            "earlier batch has selection images. Send a larger batch, or one recipe."
        )
    if isinstance(trials_request.recipes, str):
        return _plan_suggested_trials(catalogue, model, batch, check)
    planned = _plan_listed_trials(catalogue, model, trials_request.recipes, check)
    for number, trial in enumerate(planned, start=1):
        if source == "left-out" and not computes_left_out_predictions(
            trial.resolved_recipe.recipe["method"], batch.is_first
        ):
            raise _make_trials_error(
                f"Recipe {number} ({trial.resolved_recipe.recipe['method']['name']}) cannot be compared: "
                f"this model keeps no selection images, and only the method analytic has exact "
                f'left-out answers, with the head "auto", "lda" or "ridge" and without training '
                f"the network on this batch. List only such recipes, or create the model with "
                f'"selection": true.'
            )
    return planned


def computes_left_out_predictions(method: Mapping[str, Any], is_first: bool) -> bool:
    """Return True if a method computes exact leave-one-out predictions of its training images.

    Args:
        method: the method of a complete recipe.
        is_first: True for a first batch, on which the network may be trained.
    """
    trains = is_first and method.get("adapt") is not None
    return method["name"] == "analytic" and method.get("head") != "ncm" and not trains


def planned_trials_to_json(planned: Sequence[PlannedTrial]) -> list[TrialPlan]:
    """Describe planned trials for a response: number, recipe override and reason."""
    return [
        {"trial": number, "recipe": trial.override, "reason": trial.reason}
        for number, trial in enumerate(planned, start=1)
    ]


def _plan_listed_trials(
    catalogue: RecipeCatalogue, model: Model, recipes: Sequence[RecipePatch], check: Check
) -> list[PlannedTrial]:
    if not LEAST <= len(recipes) <= MOST:
        raise _make_trials_error(
            f"{len(recipes)} recipes are listed. Trials compare {LEAST} to {MOST}."
        )
    planned: list[PlannedTrial] = []
    for number, patch in enumerate(recipes, start=1):
        try:
            trial = _build_planned_trial(catalogue, model, TrialSuggestion(patch, LISTED))
            warnings = check(trial.resolved_recipe)
        except InvalidRecipe as error:
            detail = f"Recipe {number} of the list: {error.detail}"
            raise InvalidRecipe(detail, fields=error.fields) from error
        # Complete recipes are compared, since different overrides may give the same one.
        for other, earlier_trial in enumerate(planned, start=1):
            if earlier_trial.resolved_recipe.recipe == trial.resolved_recipe.recipe:
                raise _make_trials_error(f"Recipes {other} and {number} of the list are equal.")
        resolved = ResolvedRecipe(
            trial.resolved_recipe.recipe, [*trial.resolved_recipe.warnings, *warnings]
        )
        planned.append(replace(trial, resolved_recipe=resolved))
    return planned


def _build_planned_trial(
    catalogue: RecipeCatalogue, model: Model, suggestion: TrialSuggestion
) -> PlannedTrial:
    if "resources" in suggestion.patch:
        raise InvalidRecipe(
            "resources cannot differ between trials, which one job learns: set them in the "
            "model's recipe."
        )
    override = build_stored_recipe_override(catalogue, suggestion.patch)
    resolved = resolve_recipe(
        catalogue,
        model.scenario,
        model.recipe,
        override,
        architecture=model.architecture,
        problem=model.problem,
    )
    return PlannedTrial(override, resolved, suggestion.reason)


def _plan_suggested_trials(
    catalogue: RecipeCatalogue, model: Model, batch: TrialBatchProperties, check: Check
) -> list[PlannedTrial]:
    planned: list[PlannedTrial] = []
    for suggestion in list_trial_suggestions(model, batch.is_first, batch.images):
        try:
            trial = _build_planned_trial(catalogue, model, suggestion)
            # A method that takes over too little would leave what was learned unprotected.
            loses = bool(check(trial.resolved_recipe))
        # It does not fit the model or its limits, so that another one is tried.
        except (InvalidRecipe, JobTooLarge):
            continue
        method = trial.resolved_recipe.recipe["method"]
        is_comparable = model.selection or computes_left_out_predictions(method, batch.is_first)
        is_known = any(
            trial.resolved_recipe.recipe == planned_trial.resolved_recipe.recipe
            for planned_trial in planned
        )
        if is_comparable and not loses and not is_known:
            planned.append(trial)
        if len(planned) == MOST_AUTO:
            break
    if len(planned) < LEAST:
        more = "" if model.selection else ', or create the model with "selection": true'
        raise _make_trials_error(
            f"Fewer than {LEAST} recipes fit this model and can be compared. List the recipes that "
            f"trials shall compare{more}."
        )
    return planned


def _make_trials_error(detail: str) -> Invalid:
    return Invalid(detail, fields=[{"field": "trials", "message": detail}])
