"""Problems that a recipe can learn: its method, its optimizer and its augmentation must fit."""

from collections.abc import Iterator

from core.contract.catalogue import RecipeCatalogue
from core.contract.problem import CLASSIFICATION
from core.contract.responses.recipe import RecipeOut
from core.errors import Invalid
from core.recipe.schema import FieldError
from core.text.plain import describe_allowed_names


def resolve_requested_problem(catalogue: RecipeCatalogue, problem: str | None) -> str | None:
    """Check a requested problem and return it as stored: None for classification.

    Raises:
        Invalid: there is no such problem.
    """
    if problem is None or problem == CLASSIFICATION:
        return None
    if problem not in catalogue["problems"]:
        choice = describe_allowed_names(problem, sorted(catalogue["problems"]))
        raise Invalid(
            f"There is no problem {problem!r}; {choice}.",
            fields=[{"field": "problem", "message": f"unknown problem; {choice}"}],
        )
    return problem


def find_errors_of_recipe_unfit_for_problem(
    catalogue: RecipeCatalogue, problem: str | None, recipe: RecipeOut
) -> Iterator[FieldError]:
    """Yield an error for each recipe field that does not fit the model's problem."""
    if problem is None:
        return
    entry = catalogue["problems"].get(problem)
    if entry is None:
        yield (
            "problem",
            f"unknown problem; {describe_allowed_names(problem, sorted(catalogue['problems']))}",
        )
        return
    method = recipe["method"]["name"]
    if reason := entry["methods"].get(method):
        fitting = [name for name, refusal in sorted(entry["methods"].items()) if not refusal]
        yield (
            "recipe.method.name",
            f"{method} does not learn {problem}: {reason}; take {', '.join(fitting)}",
        )
    optimizer = recipe.get("optimizer", {}).get("name")
    if reason := entry["optimizers"].get(str(optimizer)):
        yield "recipe.optimizer.name", f"{optimizer} does not learn {problem}: {reason}"
    augment, allowed = recipe.get("augment"), entry["augmentations"]
    if allowed is not None and augment not in ("auto", *allowed):
        yield (
            "recipe.augment",
            f"{augment} changes what a label of {problem} says; take {', '.join(allowed)}",
        )
