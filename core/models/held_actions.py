"""Requests that settle a held version, first the one that learns the batch without the loss.

Which request repairs a version depends on the checks that it failed. Learned again in the same way
it fails them again, unless the lineage has moved; by another recipe it may pass. To put it in
production anyway repairs nothing, and comes last.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from core.contract.patch import RecipePatch
from core.contract.responses.attention import ActionBody, ActionOut
from core.database.tables import Job, Model, Task, Version
from core.lineage import wording
from core.lineage.label_doubts import find_mostly_doubted_labels_finding
from core.lineage.lineage import PRODUCTION
from perennial.steps import LEFT_OPEN

PLAIN = ("finetune", "ewc", "ewc-online", "l2-sp", "lwf", "mas", "si")
"""Methods that retain no images and leave the network unchanged, so that another one can
continue."""
WITH_IMAGES = ("er", "er-ace", "der", "der++", "gem", "a-gem")
"""Methods that also learn from retained images."""
GENTLE: RecipePatch = {"method": {"name": "lwf"}, "depth": 1}
"""Recipe that trains the head alone, held close to the previous version's predictions."""
SLOW: RecipePatch = {"method": {"name": "slca"}}
"""Recipe that trains the backbone slowly and aligns the head; not in the task scenario."""
MORE = 5
"""Factor on the epochs for a version that learned too little."""
_MOST_EPOCHS = 10_000
_WEAK = {"min_new_task", "min_acc", "learned_nothing", "min_coverage"}
"""Checks failed by a version that learned too little; the others show that it lost something."""
_OF_DATA = {"data_report", "resources", "seed"}
"""Fields of a recipe that cannot be the reason why a version forgot."""


class HeldVersionFacts(NamedTuple):
    """A held version with the facts that decide which requests can settle it.

    Attributes:
        job: the newest job of the task.
        learned: tasks that the version lacks and the head has been taught since.
        other_tasks: other tasks of the model that wait for a person, by number.
    """

    model: Model
    task: Task
    version: Version
    job: Job
    learned: Collection[int]
    other_tasks: Mapping[int, Task]


def list_held_version_requests(held_version_facts: HeldVersionFacts) -> list[ActionOut]:
    """Return all requests by which a person can settle a held version, first the one that repairs
    it.
    """
    model, task, version, job = held_version_facts[:4]
    other_actions = [
        build_discard_task_request(model, task),
        build_suggested_request(
            f"Go on without task {task.number}",
            build_task_request_path(model, task, "continue"),
            {"reason": LEFT_OPEN},
        ),
        build_suggested_request(
            f"Put version {version.number} in production all the same",
            f"/v1/models/{model.id}/aliases/{PRODUCTION}",
            {"version": version.number, "reason": LEFT_OPEN},
            method="PUT",
        ),
    ]
    if find_mostly_doubted_labels_finding(task.report) is not None:  # no recipe mends wrong labels
        relearn_requests = (
            [build_relearn_task_request(task, job)] if wording.can_relearn_task(task) else []
        )
        return [other_actions[0], *relearn_requests, *other_actions[1:]]
    mended = _list_requests_repairing_held_version(held_version_facts)
    if not wording.can_relearn_task(task):
        return [*mended, *other_actions]
    # The same job must not be offered for a retry twice.
    is_again = any(action["path"].endswith(f"/{job.id}/retry") for action in mended)
    return [*mended, *([] if is_again else [build_relearn_task_request(task, job)]), *other_actions]


def _list_requests_repairing_held_version(held_version_facts: HeldVersionFacts) -> list[ActionOut]:
    model, task, version, job = held_version_facts[:4]
    failed = {check["name"] for check in version.gate["checks"] if not check["passed"]}
    lacked = [
        number
        for number in wording.list_tasks_missing_from_held_version(version.gate)
        if number not in held_version_facts.learned
    ]
    # While the lineage lacks these tasks, no recipe makes a version that passes the gate.
    if lacked and not model.allow_lost_classes:
        first = held_version_facts.other_tasks.get(lacked[0])
        if first is None:
            return []
        if wording.can_relearn_task(first):
            return [
                build_suggested_request(
                    f"Learn task {first.number} again",
                    build_task_request_path(model, first, "relearn"),
                    {},
                )
            ]
        return [build_discard_task_request(model, first)]
    if not wording.can_relearn_task(task):
        return []
    if failed <= {"lost_tasks", "parent_rolled_back"}:
        return [build_relearn_task_request(task, job)]
    # The override is the first suspect: the model's own recipe comes before any other advice.
    if set(job.recipe_override) - _OF_DATA:
        title = f"Learn task {task.number} again by the model’s own recipe"
        return [build_suggested_request(title, f"/v1/jobs/{job.id}/retry", {"recipe": {}})]
    method = job.recipe["method"]["name"]
    epochs, depth = job.recipe.get("epochs"), job.recipe.get("depth")
    # an older recipe may lack these fields
    if method not in (*PLAIN, *WITH_IMAGES) or epochs is None or depth is None:
        return []
    if failed <= _WEAK:
        patch: RecipePatch = {"epochs": min(MORE * epochs, _MOST_EPOCHS)}
        title = f"Learn task {task.number} again in {MORE} times as many epochs"
    elif method in PLAIN and depth > 1:
        patch = GENTLE
        title = f"Learn task {task.number} again in the head alone, which changes less"
    elif method in WITH_IMAGES and model.scenario != "task":
        patch = SLOW
        title = f"Learn task {task.number} again by slca, which changes less"
    else:
        return []
    return [
        build_suggested_request(
            title, f"/v1/jobs/{job.id}/retry", {"recipe": {**job.recipe_override, **patch}}
        )
    ]


def build_relearn_task_request(task: Task, job: Job) -> ActionOut:
    """Return the suggested request that learns a task again."""
    title = f"Learn task {task.number} again, perhaps with another recipe"
    return build_suggested_request(title, f"/v1/jobs/{job.id}/retry", {})


def build_discard_task_request(model: Model, task: Task) -> ActionOut:
    """Return the suggested request that discards a task."""
    return build_suggested_request(
        f"Discard task {task.number}",
        build_task_request_path(model, task, "discard"),
        {"reason": LEFT_OPEN},
    )


def build_task_request_path(model: Model, task: Task, verb: str) -> str:
    """Return the URL path of a request about a task."""
    return f"/v1/models/{model.id}/tasks/{task.number}/{verb}"


def build_suggested_request(
    title: str, path: str, body: ActionBody | None, *, method: str = "POST"
) -> ActionOut:
    """Return a suggested request as responses show it, with its title."""
    return {"title": title, "method": method, "path": path, "body": body}
