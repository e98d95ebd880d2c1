"""Preview of a recipe for a model's next task, and suggestions of other recipes."""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from core.admission.applicability import check_next_task_recipe_and_list_warnings
from core.contract.catalogue import RecipeCatalogue
from core.contract.patch import RecipePatch
from core.database.session import Database
from core.database.tables import Model
from core.errors import InvalidRecipe
from core.lineage import lineage
from core.lineage.batch_outlook import describe_next_task_outlook
from core.recipe.resolve import ResolvedRecipe, resolve_recipe
from core.recipe.stored_patch import build_stored_recipe_override
from core.requests.actor import Actor, find_model

_WORTH_A_TRY: tuple[tuple[str, RecipePatch], ...] = (
    ("analytic: in closed form, keeps sums and no image", {"method": "analytic"}),
    (
        "dark experience replay with a head that is balanced afterwards",
        {"method": "der++", "rebalance": {}},
    ),
    ("dark experience replay (der++)", {"method": "der++"}),
    ("its own recipe with a head that is balanced afterwards", {"rebalance": {}}),
    ("its own recipe, half of the way back to the version before", {"merge": {"weight": 0.5}}),
)
"""Descriptions and patches of recipes that forget less than most.

See docs/reference/methods/README.md for measurements.
"""


def preview_next_task_recipe(
    db: Database, catalogue: RecipeCatalogue, actor: Actor, model: str, override: Mapping[str, Any]
) -> ResolvedRecipe:
    """Return the complete recipe with which a model's next task would be learned, and warnings.

    Raises:
        NotFound: the caller sees no such model.
        InvalidRecipe: the recipe cannot be used.
    """
    patch = build_stored_recipe_override(catalogue, override)
    with db.read() as session:
        return _resolve_next_task_recipe(
            session, catalogue, find_model(session, actor, model), patch
        )


def suggest_retry_recipes(
    db: Database, catalogue: RecipeCatalogue, actor: Actor, model: str
) -> list[tuple[str, str]]:
    """Return recipes to suggest for learning a task again, as (description, patch in JSON).

    The first is the model's own recipe, `{}`. Recipes that the model cannot use, or that equal
    another one, are left out.
    """
    with db.read() as session:
        row = find_model(session, actor, model)
        own_recipe = resolve_recipe(
            catalogue,
            row.scenario,
            row.recipe,
            architecture=row.architecture,
            problem=row.problem,
        ).recipe
        suggested, distinct_recipes = [("the model's own recipe", "{}")], [own_recipe]
        for words, patch in _WORTH_A_TRY:
            try:
                resolved = _resolve_next_task_recipe(session, catalogue, row, patch)
            except InvalidRecipe:
                continue
            if resolved.recipe not in distinct_recipes:
                distinct_recipes.append(resolved.recipe)
                suggested.append((words, json.dumps(patch)))
        return suggested


def _resolve_next_task_recipe(
    session: Session, catalogue: RecipeCatalogue, model: Model, patch: RecipePatch
) -> ResolvedRecipe:
    """Complete the recipe for a model's next task, with all warnings."""
    resolved = resolve_recipe(
        catalogue,
        model.scenario,
        model.recipe,
        patch,
        architecture=model.architecture,
        problem=model.problem,
    )
    head = lineage.find_version_next_task_starts_from(session, model)
    ahead = describe_next_task_outlook(session, model, head)
    applied = check_next_task_recipe_and_list_warnings(
        session, catalogue, model, head, resolved.recipe
    )
    return ResolvedRecipe(
        resolved.recipe, [*resolved.warnings, *applied, *ahead.missing, *ahead.notes]
    )
