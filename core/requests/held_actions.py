"""The requests that settle a held version, that which lets the batch be learned without the loss first.

What mends a version depends on the checks that it failed. Learned again in the same way it fails them again, unless the
line has moved; by another recipe it may pass. To put it in production all the same mends nothing, and comes last.
"""

from collections.abc import Collection, Mapping

from core.db.tables import Job, Model, Task, Version
from core.line import words
from core.line.line import PRODUCTION
from core.protocol.answers.attention import ActionBody, ActionOut
from core.protocol.patch import RecipePatch
from core.steps import LEFT_OPEN

PLAIN = ("finetune", "ewc", "l2-sp", "lwf", "mas", "si")
"""Methods that keep no images and leave the network as it is: another of them can go on from their versions."""
WITH_IMAGES = ("er", "er-ace", "der", "der++", "gem", "a-gem")
"""Methods that learn from kept images too."""
GENTLE: RecipePatch = {"method": {"name": "lwf"}, "depth": 1}
"""Learn the head alone, held to what the version before answers."""
HEAD_ALONE: RecipePatch = {"depth": 1}
MORE = 5
"""Times as many epochs for a version that learned too little."""
_MOST_EPOCHS = 10_000
_WEAK = {"min_new_task", "min_acc", "learned_nothing", "min_coverage"}
"""Checks of a version that learned too little; the others are of one that lost something."""
_OF_DATA = {"data_report", "resources", "seed"}
"""What a recipe says that cannot be why a version forgot."""


def list_held_actions(
    model: Model, task: Task, version: Version, job: Job, learned: Collection[int], others: Mapping[int, Task]
) -> list[ActionOut]:
    """Return all requests that settle a held version, the one that mends it first.

    Args:
        job: the newest one of the task.
        learned: those of the tasks which the version lacks that the line head has been taught since.
        others: tasks of the model that wait for a person, by number.
    """
    rest = [
        make_discard(model, task),
        make_action(
            f"Go on without task {task.number}", task_path(model, task, "continue"), {"reason": LEFT_OPEN}
        ),
        make_action(
            f"Put version {version.number} in production all the same",
            f"/v1/models/{model.id}/aliases/{PRODUCTION}",
            {"version": version.number, "reason": LEFT_OPEN},
            method="PUT",
        ),
    ]
    mended = _mend(model, task, version, job, learned, others)
    if not words.can_relearn(task):
        return [*mended, *rest]
    is_again = any(action["path"].endswith(f"/{job.id}/retry") for action in mended)
    return [*mended, *([] if is_again else [make_retry(task, job)]), *rest]


def _mend(
    model: Model, task: Task, version: Version, job: Job, learned: Collection[int], others: Mapping[int, Task]
) -> list[ActionOut]:
    failed = {check["name"] for check in version.gate["checks"] if not check["passed"]}
    lacked = [number for number in words.lost_tasks(version.gate) if number not in learned]
    if lacked and not model.allow_lost_classes:
        first = others.get(lacked[0])
        if first is None:
            return []
        if words.can_relearn(first):
            return [make_action(f"Learn task {first.number} again", task_path(model, first, "relearn"), {})]
        return [make_discard(model, first)]
    if not words.can_relearn(task):
        return []
    if failed <= {"lost_tasks", "parent_rolled_back"}:
        return [make_retry(task, job)]
    if set(job.recipe_override) - _OF_DATA:
        title = f"Learn task {task.number} again by the model’s own recipe"
        return [make_action(title, f"/v1/jobs/{job.id}/retry", {"recipe": {}})]
    method = job.recipe["method"]["name"]
    epochs, depth = job.recipe.get("epochs"), job.recipe.get("depth")
    if method not in (*PLAIN, *WITH_IMAGES) or epochs is None or depth is None:  # or from before a field
        return []
    if failed <= _WEAK:
        patch: RecipePatch = {"epochs": min(MORE * epochs, _MOST_EPOCHS)}
        title = f"Learn task {task.number} again in {MORE} times as many epochs"
    elif depth == 1:
        return []
    else:
        patch = GENTLE if method in PLAIN else HEAD_ALONE
        title = f"Learn task {task.number} again in the head alone, which changes less"
    return [make_action(title, f"/v1/jobs/{job.id}/retry", {"recipe": {**job.recipe_override, **patch}})]


def make_retry(task: Task, job: Job) -> ActionOut:
    """Return the request that learns a task again."""
    title = f"Learn task {task.number} again, perhaps with another recipe"
    return make_action(title, f"/v1/jobs/{job.id}/retry", {})


def make_discard(model: Model, task: Task) -> ActionOut:
    """Return the request that gives a task up."""
    return make_action(
        f"Discard task {task.number}", task_path(model, task, "discard"), {"reason": LEFT_OPEN}
    )


def task_path(model: Model, task: Task, verb: str) -> str:
    """Return the path of a request about a task."""
    return f"/v1/models/{model.id}/tasks/{task.number}/{verb}"


def make_action(title: str, path: str, body: ActionBody | None, *, method: str = "POST") -> ActionOut:
    """Return a request with its title."""
    return {"title": title, "method": method, "path": path, "body": body}
