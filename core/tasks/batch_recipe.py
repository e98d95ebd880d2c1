"""The recipe of a batch that is sent, or the trials of several, and the seconds that they take."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from core.contract.catalogue import RecipeCatalogue
from core.contract.jobs.trial import LEAST_FOR_SELECTION
from core.database.tables import Model
from core.errors import InvalidRecipe
from core.recipe.resolve import ResolvedRecipe, resolve_recipe
from core.tasks.batch_plan import BatchRecipePlan, ModelHistoryForBatch
from core.tasks.expected_duration import estimate_job_seconds
from core.tasks.submitted_batch import SpooledBatch
from core.trials.plan import Check, PlannedTrial, plan_trials
from core.trials.plan import TrialBatchProperties as TrialBatchProperties
from core.trials.rows import has_model_selection_images


def resolve_batch_recipe(
    session: Session,
    catalogue: RecipeCatalogue,
    past: ModelHistoryForBatch,
    batch: SpooledBatch,
    check: Check,
) -> tuple[ResolvedRecipe, list[PlannedTrial]]:
    """Return the complete recipe of a batch with all warnings, and the trials if several recipes
    are compared.

    With trials, it is the recipe of the first of them.

    Args:
        check: checks that the model can learn the batch with a recipe.

    Raises:
        Invalid, InvalidRecipe, JobTooLarge: see `core.trials.plan.plan_trials`.
    """
    trials = _plan_trials(session, catalogue, past, batch, check)
    if trials:
        return _get_first_trial_recipe_with_all_warnings(trials), trials
    model = past.model
    resolved = resolve_recipe(
        catalogue,
        model.scenario,
        model.recipe,
        batch.override,
        architecture=model.architecture,
        problem=model.problem,
    )
    return ResolvedRecipe(resolved.recipe, [*resolved.warnings, *check(resolved)]), []


def estimate_batch_job_seconds(
    session: Session,
    catalogue: RecipeCatalogue,
    model: Model,
    plan: BatchRecipePlan,
    images: tuple[int, int],
) -> float | None:
    """Estimate the seconds of a batch's job over all its trials; None: unknown.

    Args:
        images: number of images to learn, and of held-out images that the job predicts.
    """
    recipes = [trial.resolved_recipe.recipe for trial in plan.trials] or [
        plan.resolved_recipe.recipe
    ]
    total = 0.0
    for recipe in recipes:
        seconds = estimate_job_seconds(session, catalogue, model, recipe, *images)
        if seconds is None:
            return None
        total += seconds
    return total


def _plan_trials(
    session: Session,
    catalogue: RecipeCatalogue,
    past: ModelHistoryForBatch,
    batch: SpooledBatch,
    check: Check,
) -> list[PlannedTrial]:
    if batch.trials is None:
        return []
    if batch.recipe is not None:
        raise InvalidRecipe("Send one recipe, or trials of several, not both.")
    directory, model = batch.directory, past.model
    is_large = max(directory.classes.values(), default=0) >= LEAST_FOR_SELECTION
    trial_batch = TrialBatchProperties(
        is_first=model.next_task == 1,
        images=directory.n_train,
        has_selection=is_large or has_model_selection_images(session, model.id),
    )
    return plan_trials(catalogue, model, batch.trials, trial_batch, check)


def _get_first_trial_recipe_with_all_warnings(trials: Sequence[PlannedTrial]) -> ResolvedRecipe:
    """Return the recipe of a batch's first trial, with the warnings about all trials."""
    warnings = [
        f"Trial {number}: {text}"
        for number, trial in enumerate(trials, start=1)
        for text in trial.resolved_recipe.warnings
    ]
    return ResolvedRecipe(trials[0].resolved_recipe.recipe, warnings)
