"""Sentences about a lineage: why a version is held, which tasks one lacks, what to send."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from core.contract.error import JobError
from core.contract.gate import GateCheck, Verdict
from core.database.tables import Model, Task, Version
from core.lineage.standing import TaskStanding
from perennial.steps import ApiRequestForAdvice

_SHOWN = 5
"""Most classes that a sentence names."""
_LOSSES = ("class_lost", "forgotten", "drifted", "confused")
"""Checks that see the loss of something known, the most telling first."""
SETTLED_BY = "The model's `attention` has the requests that settle it."


def format_date(at: float) -> str:
    """Format a time as a date, such as 2026-11-29."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def join_words_with_conjunction(
    words: Sequence[str], max_shown: int = _SHOWN, last: str = "and"
) -> str:
    """Join words as `a`, `a and b` or `a, b and 7 more`; `last`: and, or."""
    shown_words = list(words[:max_shown])
    if len(words) > max_shown:
        shown_words.append(f"{len(words) - max_shown} more")
    return (
        shown_words[0]
        if len(shown_words) == 1
        else f"{', '.join(shown_words[:-1])} {last} {shown_words[-1]}"
    )


def describe_task_in_words(task: Task) -> str:
    """Describe a task in words: `task 2 (“week-32”, classes coat and hat)`."""
    name = f"“{task.name}”, " if task.name else ""
    several = "es" * (len(task.classes) > 1)
    classes = (
        f"class{several} {join_words_with_conjunction(sorted(task.classes))}"
        if task.classes
        else "no classes"
    )
    return f"task {task.number} ({name}{classes})"


def can_relearn_task(task: Task) -> bool:
    """Return True if a task's stored data allows learning it again."""
    decoded = task.train_sha256 is not None and task.train_deleted_at is None
    return task.data_deleted_at is None and (decoded or task.archive_key is not None)


def describe_image_retention(model: Model, task: Task) -> str:
    """Describe how long a task's training images are kept, or when they were deleted, as a
    clause.
    """
    if task.data_deleted_at is not None:
        return f"its images were deleted on {format_date(task.data_deleted_at)}"
    if task.train_deleted_at is not None:
        return f"its training images went on {format_date(task.train_deleted_at)}"
    if model.keep_training_data or task.stops or task.train_until is None:
        return "its training images are kept"
    return f"its training images are kept until {format_date(task.train_until)}"


def find_training_image_deletion_time(model: Model, task: Task) -> float | None:
    """Return the time at which a task's training images will be deleted, in seconds since 1970, or
    None.
    """
    undecided = model.keep_training_data or task.stops or not can_relearn_task(task)
    return None if undecided else task.train_until


def describe_requests_for_missing_task(model: Model, task: Task) -> str:
    """Describe the API requests that learn or discard a task which the lineage lacks, in a
    sentence.
    """
    discard = _build_task_api_request(model, task.number, "discard")
    if can_relearn_task(task):
        relearn_request = _build_task_api_request(model, task.number, "relearn")
        return (
            f"Learn it again with {relearn_request} ({describe_image_retention(model, task)}), or discard it "
            f"with {discard}."
        )
    return (
        f"It cannot be learned again, since {describe_image_retention(model, task)}: send the batch "
        f"again as a new task if its classes are wanted, and discard this one with {discard}."
    )


def _build_task_api_request(model: Model, task: int, verb: str) -> ApiRequestForAdvice:
    return ApiRequestForAdvice("POST", f"/v1/models/{model.name}/tasks/{task}/{verb}")


def describe_gate_rule_for_missing_task(model: Model) -> str:
    """Describe the gate's rule for a version that lacks a rolled-back task, as a clause."""
    if model.allow_lost_classes:
        return "the model allows versions without it (`allow_lost_classes`)"
    if model.scenario == "data":
        return "the gate holds a version that lacks a class which no other task shows"
    return "the gate holds a version that lacks it"


def describe_missing_task(
    model: Model, task: Task, standing: TaskStanding, subject: str = "The new version"
) -> str:
    """Describe in a sentence that a version lacks a task, why, and what to do."""
    does = "will not contain" if subject == "The new version" else "does not contain"
    sentence = f"{subject} {does} {describe_task_in_words(task)}"
    if standing in (TaskStanding.QUEUED, TaskStanding.RUNNING):
        return f"{sentence}, which is being learned again."
    if standing is TaskStanding.SKIPPED:
        return f"{sentence}, which was skipped. {describe_requests_for_missing_task(model, task)}"
    return (
        f"{sentence}, which was rolled back: {describe_gate_rule_for_missing_task(model)}. "
        f"{describe_requests_for_missing_task(model, task)}"
    )


def describe_task_lost_by_alias_move(model: Model, task: Task, version: int) -> str:
    """Describe in a sentence a task that production lost by a move to an earlier version."""
    requests = describe_requests_for_missing_task(model, task)
    return f"Version {version} was not taught {describe_task_in_words(task)}. {requests}"


def explain_unpromoted_one_class_version(version: Version) -> str:
    """Explain why a version with only one class is not promoted to production, and what to send."""
    return (
        f"Version {version.number} knows one class, so it calls every image by it. It is published "
        "and not in production. Send a batch with another class: the next version is judged and "
        "promoted as usual."
    )


def describe_held_version_now_published(version: int) -> str:
    """Explain in a sentence that a held version was judged again and published."""
    return f"Version {version} was held, passes its gate now and is published."


def explain_held_version(version: int, gate: Verdict) -> str:
    """Explain why a version is held, such as `Version 3 is held by its gate: forgetting is 0.42
    …`
    """
    return f"Version {version} is held by its gate: {explain_failed_gate_checks(gate)}."


def explain_failed_gate_checks(gate: Verdict) -> str:
    """Explain which gate checks a version failed, as clauses.

    For example `forgetting is 0.42, at most 0.1 is asked for`. Several checks see one loss in
    different ways. Only the most telling of them is a reason here, and the others are named:
    `list_failed_gate_check_sentences` has them all.
    """
    failed = [check for check in gate["checks"] if not check["passed"]]
    losses = sorted(
        (check for check in failed if check["name"] in _LOSSES),
        key=lambda check: _LOSSES.index(check["name"]),
    )
    repeated = losses[1:]
    reasons = [_explain_failed_check(check) for check in failed if check not in repeated]
    if repeated:
        names = join_words_with_conjunction([check["name"] for check in repeated])
        check_fails = "checks {} fail" if len(repeated) > 1 else "check {} fails"
        reasons.append(f"the {check_fails.format(names)} too")
    return "; ".join(reasons)


def list_failed_gate_check_sentences(gate: Verdict) -> list[str]:
    """List each failed check of a gate verdict as a sentence."""
    clauses = [_explain_failed_check(check) for check in gate["checks"] if not check["passed"]]
    return [f"{clause[0].upper()}{clause[1:]}." for clause in clauses]


def _explain_failed_check(check: GateCheck) -> str:
    name, limit, value = check["name"], check["limit"], check["value"]
    if "detail" in check:
        # The detail is a whole sentence, and becomes a clause of another one here.
        return check["detail"][0].lower() + check["detail"][1:].removesuffix(".")
    if name == "lost_tasks":
        classes = check["classes"]
        consequence = (
            f", so that it cannot name {join_words_with_conjunction(classes, 20)}"
            if classes
            else ""
        )
        numbers = join_words_with_conjunction([str(number) for number in check["tasks"]], 20)
        return f"it was not taught task{'s' * (len(check['tasks']) > 1)} {numbers}{consequence}"
    if name == "parent_rolled_back":
        head = "another one" if limit is None else f"version {limit}"
        return (
            f"it was learned from version {value}, and production was moved so that the lineage "
            f"continues from {head}"
        )
    if name == "max_negative_flips" and value is not None and limit is not None:
        return (
            f"of {check['images']} images it gets {check['negative']} wrong that version "
            f"{check['against']}, in production then, gets right ({value:.3g}), at most "
            f"{limit:.3g} is asked for"
        )
    # An undefined figure passes, so None stands for one that is not finite here.
    figure = "no finite number" if value is None else f"{value:.3g}"
    quantity = {
        "max_forgetting": "forgetting of earlier tasks",
        "min_new_task": "accuracy on the new task",
        "min_acc": "mean accuracy over all tasks",
        "min_coverage": "the share of held-out images that is answered surely",
        "max_predicted_loss_rise": "the predicted rise of earlier tasks' loss",
    }.get(name, str(name))
    bound = "at most" if name.startswith("max_") else "at least"
    return f"{quantity} is {figure}, {bound} {limit:.3g} is asked for"


def explain_stopped_lineage(
    model: Model, task: Task, version: Version, learned: Collection[int] = ()
) -> str:
    """Explain that a held version stops its lineage, and the requests that let later batches go on.

    Args:
        learned: tasks that the version lacks and the head has learned since.
    """
    task_action = (
        f"learns {describe_task_in_words(task)} again, discards the task"
        if can_relearn_task(task)
        else f"discards {describe_task_in_words(task)}"
    )
    requests = describe_requests_to_pass_held_version(model, version, learned)
    return (
        f"Later batches of {model.name} wait until a person promotes version {version.number} with "
        f"a reason, {task_action}, or continues without it.{requests}"
    )


def list_tasks_missing_from_held_version(gate: Verdict) -> list[int]:
    """List the tasks for whose absence a version is held by its gate."""
    return [n for check in gate["checks"] if check["name"] == "lost_tasks" for n in check["tasks"]]


def describe_requests_to_pass_held_version(
    model: Model, version: Version, learned: Collection[int]
) -> str:
    """Describe the requests that let a version pass which is held for lacking tasks; empty if it is
    not.

    Learning its own task again would not bring the lacking tasks back.
    """
    lacking = list_tasks_missing_from_held_version(version.gate)
    # The check lists lacking tasks even if the model allows that.
    if not lacking or model.allow_lost_classes:
        return ""
    numbers = [number for number in lacking if number not in learned]
    if not numbers:
        tasks = join_words_with_conjunction([str(number) for number in lacking], 20)
        return (
            f" Task{'s' * (len(lacking) > 1)} {tasks} {'were' if len(lacking) > 1 else 'was'} "
            f"learned again since: learn task {version.task_number} again, and the new version "
            f"knows all of them."
        )
    tasks = join_words_with_conjunction([str(number) for number in numbers], 20)
    relearn_request, discard = (
        _build_task_api_request(model, numbers[0], verb) for verb in ("relearn", "discard")
    )
    return (
        f" Learn task{'s' * (len(numbers) > 1)} {tasks} again first ({relearn_request}) and then this one, "
        f"or discard {'them' if len(numbers) > 1 else 'it'} ({discard}): version {version.number} "
        f"is then judged again."
    )


def explain_waiting_batch(task: Task, version: Version | None, is_relearning: bool) -> str:
    """Explain why a submitted batch waits.

    `version`: the held one; `is_relearning`: its task is being learned again.
    """
    settled_by = "It is being learned again." if is_relearning else SETTLED_BY
    if version is None:
        why = (
            "which was rejected." if task.standing == TaskStanding.REJECTED else "whose job failed."
        )
        return f"This batch waits for {describe_task_in_words(task)}, {why} {settled_by}"
    return (
        f"This batch waits for {describe_task_in_words(task)}. "
        f"{explain_held_version(version.number, version.gate)} {settled_by}"
    )


def explain_batch_waiting_for_base(job_id: str) -> str:
    """Explain that a batch waits for its model's base weights. job_id: the job that fetches
    them.
    """
    return f"This batch waits for the weights of its model's base, which job {job_id} brings."


def describe_fetch_retry_request(job_id: str) -> str:
    """Describe the request that downloads base weights again, as a clause."""
    return f"bring them again with POST /v1/jobs/{job_id}/retry"


def explain_missing_base_weights(job_id: str, error: JobError | None) -> str:
    """Explain why a batch keeps waiting for its model's base weights, and what to do.

    Args:
        job_id: the job that should have fetched the weights.
        error: reason why it failed; None: it was cancelled.
    """
    why = f"Job {job_id} was cancelled." if error is None else error["detail"]
    retry_request = describe_fetch_retry_request(job_id)
    # A failed fetch ends with this request already (`core.execution.kinds.fetch`).
    if retry_request not in why:
        why = f"{why} Mend that, and {retry_request}."
    return (
        f"The weights of the model's base could not be brought. {why} This batch is kept, and "
        "learned once they are there."
    )


def describe_lineage_past_held_version(model: Model, task: Task, is_known_to_head: bool) -> str:
    """Describe how the lineage continues past a held version, in a sentence.

    `is_known_to_head`: the head of the lineage was taught the task.
    """
    if is_known_to_head:
        return f"The lineage continues from version {model.head}, which knows {describe_task_in_words(task)}."
    requests = describe_requests_for_missing_task(model, task)
    return f"The lineage continues without {describe_task_in_words(task)}. {requests}"


def explain_pinned_production(model: Model, production: int) -> str:
    """Explain that production is pinned to a version, and the request that unpins it."""
    moves = (
        f"moves it to version {model.head}, the newest, and " if model.head != production else ""
    )
    return (
        f"Production stays on version {production}, where a person put it: later versions are "
        f"published and not promoted. POST /v1/models/{model.name}/aliases/production/follow "
        f"{moves}lets it follow later ones."
    )


def describe_published_held_version(version: Version, model: Model) -> str:
    """Describe in a sentence that a formerly held version is now published."""
    where = "it is in production" if model.production_follows else "production does not follow it"
    return f"Version {version.number} is published now, and {where}."


def describe_overruled_gate(version: Version, reason: str) -> str:
    """Describe in a sentence that a person put a held version in production against its gate."""
    return f"A person put version {version.number} in production against its gate: “{reason}”."


def describe_class_merge_request(model: str, label: str, similar: str) -> str:
    """Describe the request that merges two similar classes after both are learned.

    Args:
        model: name of the model.
        similar: the name that the class keeps.
    """
    merge = {"merge": {"from": [label, similar], "into": similar}}
    step = ApiRequestForAdvice("POST", f"/v1/models/{model}/edits", body={"operations": [merge]})
    return f" Once both are learned, merge them with {step}."
