"""Checks that a recipe can learn a model's next task from the version it will start from.

The task starts from the version that the last unfinished job will leave, or else from the lineage
head; a job being cancelled leaves no version. The network family of the start is fixed, and so are
the hyper-parameters that shaped its network. Version 0 is plain, and every family can start from
it. Another method of the same family takes over the memory that it can use; a warning names the
rest. The learning code checks the family again, since the head may move before the job runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Select, SQLColumnExpression, select
from sqlalchemy.orm import Session

from core.contract.base import ADOPTED
from core.contract.catalogue import RecipeCatalogue
from core.contract.responses.recipe import RecipeOut
from core.database.kinds import JobKind
from core.database.states import UNFINISHED, JobState
from core.database.tables import Job, Model, Version, VersionPart
from core.errors import InvalidRecipe
from core.recipe.combination_warnings import SUMS

PLAIN = "plain"
"""Family of networks that no method has changed."""
_MEMORY = {
    "buffer": "the replay buffer",
    "curvature": "the curvature",
    "exemplars": "the exemplars",
    "own": "its other memory",
}
"""Types of a method's state, and their names for people."""


@dataclass(frozen=True)
class NextTaskStartingPoint:
    """Starting point of the next task: method block, network family and types of memory.

    The method's name is `ADOPTED` for a classifier that came with its model. `name` and `instead`
    are texts for people; `instead` says how the model could start from something else, or is None.
    """

    name: str
    instead: str | None
    method: Mapping[str, object]
    family: str
    memory: frozenset[str]


@dataclass(frozen=True)
class HeadVersionAndLastOpenJob:
    """The version and the last open job that decide what a model's next task starts from.

    Attributes:
        head: see `core.lineage.lineage.find_version_next_task_starts_from`.
        job: the last job whose version the task will follow, see `build_last_open_job_query`; None
        without one.
    """

    head: Version | None
    job: Job | None


def build_last_open_job_query(model_id: str | SQLColumnExpression[str]) -> Select[str]:
    """Return the query for a model's last unfinished job that will make a version."""
    # Jobs without a place learn no task, and one that is being cancelled leaves no version.
    states = sorted(UNFINISHED - {JobState.CANCELLING})
    # A job that measures a classifier has a place too, and leaves no version.
    leaves = Job.place.is_not(None), Job.kind != str(JobKind.MEASURE)
    mine = Job.model_id == model_id, *leaves, Job.state.in_(states)
    # Jobs that learn a task again run before all others, so they come last here.
    newest = select(Job.id).where(*mine).order_by(Job.again, Job.task_number.desc()).limit(1)
    # To models alone, since a query that reads the job has jobs of its own.
    return newest.correlate(Model)


def check_next_task_recipe_and_list_warnings(
    session: Session,
    catalogue: RecipeCatalogue,
    model: Model,
    head: Version | None,
    recipe: RecipeOut,
) -> list[str]:
    """Return warnings about learning the model's next task with a resolved recipe.

    Args:
        head: see `core.lineage.lineage.find_version_next_task_starts_from`.

    Raises:
        InvalidRecipe: see `require_fitting_recipe_and_list_warnings`.
    """
    last = select(Job).where(Job.id == build_last_open_job_query(model.id).scalar_subquery())
    before = HeadVersionAndLastOpenJob(head, session.scalars(last).one_or_none())
    return require_fitting_recipe_and_list_warnings(session, catalogue, model, before, recipe)


def require_fitting_recipe_and_list_warnings(
    session: Session,
    catalogue: RecipeCatalogue,
    model: Model,
    before: HeadVersionAndLastOpenJob,
    recipe: RecipeOut,
) -> list[str]:
    """Return warnings about learning with a resolved recipe after the preceding version or job of
    the model.

    Raises:
        InvalidRecipe: the method makes another kind of network than the task starts from, or
            changes a hyper-parameter that shapes the network.
    """
    start = _find_next_task_starting_point(session, catalogue, before, recipe["method"]["name"])
    return (
        []
        if start is None
        else check_recipe_from_start_and_list_warnings(catalogue, start, recipe, model.scenario)
    )


def check_recipe_from_start_and_list_warnings(
    catalogue: RecipeCatalogue, start: NextTaskStartingPoint, recipe: RecipeOut, scenario: str
) -> list[str]:
    """Return warnings about learning from a starting point with a resolved recipe.

    Raises:
        InvalidRecipe: see `require_fitting_recipe_and_list_warnings`.
    """
    method = recipe["method"]
    hyper: Mapping[str, object] = method
    entry = catalogue["methods"][method["name"]]
    family = entry.get("family", PLAIN)
    if family != start.family:
        fitting = [
            n
            for n, e in sorted(catalogue["methods"].items())
            if e.get("family") == start.family and scenario in e["scenarios"]
        ]
        raise _make_invalid_recipe_error(
            "recipe.method.name",
            f"{method['name']} trains a {family} network, but the next task starts from "
            f"{start.name}, a {start.family} network: a model keeps its family. Use one of "
            f"{', '.join(fitting) or 'none'}, {f'{start.instead}, ' if start.instead else ''}or "
            f"start a new model",
        )
    for name in entry.get("structure", []):
        # An older recipe may lack a hyper-parameter that was added later.
        if name in start.method and start.method[name] != hyper[name]:
            fixed_value = start.method[name]
            raise _make_invalid_recipe_error(
                f"recipe.method.{name}",
                f"is {fixed_value} in {start.name}, and shapes the network: leave it",
            )
    _require_closed_form_keeps_learned_classes(
        start, method["name"], entry.get("inference"), scenario
    )
    return _list_warnings_of_unused_memory(start, method["name"], frozenset(entry.get("takes", [])))


def _require_closed_form_keeps_learned_classes(
    start: NextTaskStartingPoint, after: str, inference: str | None, scenario: str
) -> None:
    """Check that a closed-form classifier would not lose classes that another method has learned.

    It knows only the classes of the batches that it summed itself.

    Raises:
        InvalidRecipe: the task would start from a version of another method, whose classes would be
            lost.
    """
    before = start.method.get("name")
    if inference == SUMS and before == ADOPTED:
        raise _make_invalid_recipe_error(
            "recipe.method.name",
            f"{after} answers from sums over every batch, and {start.name} was adopted without any: none "
            "of the classes so far would be known. Send no method, or lwf, which needs no image of "
            "them",
        )
    if inference == SUMS and before not in (None, after) and scenario != "data":
        raise _make_invalid_recipe_error(
            "recipe.method.name",
            f"{after} answers from sums over every batch, and {start.name} was learned by "
            f"{before}, which keeps none: none of the classes so far would be known. Take {before} "
            f"for this batch, {f'{start.instead}, ' if start.instead else ''}learn the batches of "
            f"{before} again by {after} after a "
            "rollback, or start a new model",
        )


def _find_next_task_starting_point(
    session: Session, catalogue: RecipeCatalogue, before: HeadVersionAndLastOpenJob, after: str
) -> NextTaskStartingPoint | None:
    """Return the version and method that the next task starts from; None for version 0, which has
    learned nothing.

    Args:
        after: name of the method that learns the task.
    """
    head, last = before.head, before.job
    if last is not None:
        method = last.recipe["method"]
        # The job may be older than this release, which may have removed its method.
        entry = catalogue["methods"].get(method["name"])
        memory = frozenset(
            entry.get("takes", []) if entry else ()
        )  # what it keeps is known only after it has run
        name, family = (
            f"the result of task {last.task_number}",
            entry.get("family", PLAIN) if entry else PLAIN,
        )
        return NextTaskStartingPoint(name, f"cancel job {last.id}", method, family, memory)
    if head is None or head.number == 0:
        return None
    network, recipe = head.manifest.network, head.manifest.recipe
    # Without a recipe, no job has made the version.
    made_by = {"name": ADOPTED}
    if recipe is not None:
        made_by = {} if recipe.method is None else recipe.method.to_json()
    types: set[str] = set()
    if made_by.get("name") != after:  # the same method takes over all of it
        stored_types = select(VersionPart.type).where(
            VersionPart.version_id == head.id, VersionPart.deleted_at.is_(None)
        )
        types = set(session.scalars(stored_types))
    memory = frozenset(types & _MEMORY.keys())
    return NextTaskStartingPoint(
        f"version {head.number}",
        None,
        made_by,
        PLAIN if network is None else network.family,
        memory,
    )


def _list_warnings_of_unused_memory(
    start: NextTaskStartingPoint, after: str, takes: frozenset[str]
) -> list[str]:
    """Return a warning if a change of method leaves stored memory unused, or lacks memory that it
    could use.

    The learning code follows the same rule.
    """
    before = start.method.get("name")
    usable, unusable = start.memory & takes, start.memory - takes
    if before in (None, ADOPTED, after) or not (unusable or (takes and not usable)):
        return []
    taken_text = (
        f"only {_join_memory_type_names(usable)} is taken over"
        if usable
        else "nothing is taken over"
    )
    unused_text = f", {_join_memory_type_names(unusable)} is not used" if unusable else ""
    return [
        f"The method changes from {before} to {after}: {taken_text}{unused_text}. "
        "Earlier tasks are unprotected where nothing is taken over."
    ]


def _join_memory_type_names(types: frozenset[str]) -> str:
    return " and ".join(_MEMORY[kind] for kind in sorted(types))


def _make_invalid_recipe_error(field: str, message: str) -> InvalidRecipe:
    return InvalidRecipe(
        f"The recipe cannot be used: {field}: {message}.",
        fields=[{"field": field, "message": message}],
    )
