"""`/ui/models/{model}/tasks/{n}`: content of a batch, accuracy on it, and decisions about it."""

from dataclasses import dataclass
from functools import partial

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from api.dependencies import Read, Service, Write
from api.pages.model import apply_model_change_and_redirect
from api.pages.parts import forms
from api.pages.parts.render import get_root_path, render_page
from api.pages.parts.svg import HEIGHT, WIDTH, compute_sparkline_points
from api.routes.tasks import Number
from api.schemas.common import ModelPath
from core.admission.admission import AdmissionLimits, NewJobLimits
from core.contract.responses.task import TaskOut
from core.contract.responses.task_image import Split
from core.database.session import Database
from core.errors import Invalid, PerennialError, Unavailable
from core.models import models
from core.requests.actor import Actor
from core.storage import Blobs
from core.tasks import task_decisions, task_images, tasks
from core.versions import metrics
from core.versions.metrics import MatrixWindow

router = APIRouter(include_in_schema=False)

CLASSES, TILES = 12, 8
"""Maximum number of classes with samples on a page, and of images of each."""
SUSPECTS = 24
"""Maximum number of images with a suspicious label on a page."""
_PARTS: tuple[Split, ...] = ("train", "held_out")


@dataclass(frozen=True)
class TaskSampleImageNumbers:
    """Images of each class that a task's page shows; `why`: the reason if it shows none."""

    split: Split
    rows: dict[str, list[int]]
    why: str | None = None


@router.get("/ui/models/{model}/tasks/{n}")
async def show_task_page(
    request: Request, model: ModelPath, n: Number, actor: Read, service: Service
) -> Response:
    """Show the page of a task."""
    db = service.db
    model_response = await to_thread.run_sync(
        lambda: models.read_model(db, service.catalogue(), actor, model)
    )
    task = await to_thread.run_sync(tasks.read_task, db, actor, model_response["id"], n)
    history = await to_thread.run_sync(
        _load_accuracy_history_of_task, db, actor, model_response["id"], n
    )
    read_samples = partial(
        _choose_sample_images_of_task, db, service.blobs, actor, model_response["id"], task
    )
    samples = await service.picture_work.run_work_in_turn(actor.owner_id, read_samples)
    accuracy_line = compute_sparkline_points([accuracy for _, accuracy in history])
    context = {
        "model": model_response,
        "task": task,
        "samples": samples,
        "history": history,
        "line": accuracy_line,
    }
    context |= {
        "pictures": samples.split == "train" and not samples.why,
        "shown_suspects": SUSPECTS,
    }
    context["found"] = {
        "findings": [],
        "shift": None,
        "suspects": [],
        **task["report"].get("data", {}),
    }
    return render_page(request, "task.html", {**context, "width": WIDTH, "height": HEIGHT})


# Before the route with `{verb}`, which would match `data`, too.
@router.post("/ui/models/{model}/tasks/{n}/data")
async def handle_delete_task_data_form(
    request: Request, model: ModelPath, n: Number, actor: Write, service: Service
) -> Response:
    """Delete the images of a task after the box was ticked."""
    inputs = await forms.read_values_of_own_page_form(request)
    if inputs.get("sure") != "yes":
        raise Invalid("The images are deleted only with the box ticked that says so.")
    await to_thread.run_sync(
        tasks.delete_task_data, service.db, service.store, service.blobs, actor, model, n
    )
    return RedirectResponse(f"{get_root_path(request.scope)}/ui/models/{model}/tasks/{n}", 303)


@router.post("/ui/models/{model}/tasks/{n}/{verb}")
async def handle_task_decision_form(
    request: Request,
    model: ModelPath,
    n: Number,
    verb: str,
    actor: Write,
    service: Service,
) -> Response:
    """Continue without a task, discard it, or learn it again."""
    inputs = await forms.read_values_of_own_page_form(request)
    reason, recipe = forms.read_form_reason(inputs), forms.parse_relearning_recipe_input(inputs)
    db, settings = service.db, service.settings

    def apply_requested_task_decision() -> str | None:
        if verb == "continue":
            return task_decisions.skip_held_task_and_continue_lineage(db, actor, model, n, reason)[
                1
            ]
        if verb == "discard":
            return task_decisions.discard_task(db, actor, model, n, reason)[1]
        if verb != "relearn":
            raise Invalid(
                f"A task cannot be told to {verb[:40]}: continue, discard and relearn are possible."
            )
        job_response, fresh = task_decisions.relearn_task(
            service.load_use_case_resources(),
            actor,
            model,
            n,
            recipe,
            NewJobLimits(settings.max_open_jobs, AdmissionLimits.from_settings(settings)),
        )
        return job_response["id"] if fresh else None

    return await apply_model_change_and_redirect(
        request, model, apply_requested_task_decision, service.bell
    )


def _load_accuracy_history_of_task(
    db: Database, actor: Actor, model: str, n: int
) -> list[tuple[int, float]]:
    """Return (version, accuracy) of a task for each measured, published version, in ascending
    order.
    """
    try:
        model_metrics = metrics.read_model_accuracy_metrics(
            db, actor, model, version="latest", window=MatrixWindow(tasks=(n, n))
        )
    except PerennialError:  # there is no version yet
        return []
    cells = zip(model_metrics["rows"], model_metrics["accuracy_matrix"], strict=True)
    return [
        (row["version"], values[0])
        for row, values in cells
        if values and values[0] is not None and row["status"] != "held"
    ]


def _choose_sample_images_of_task(
    db: Database, blobs: Blobs, actor: Actor, model: str, task: TaskOut
) -> TaskSampleImageNumbers:
    """Load sample images of a task, from its training part while retained, else from the held-out
    part.
    """
    why = ""
    for split in _PARTS:
        try:
            part = task_images.find_task_split_dataset(db, actor, model, task["number"], split)
            with task_images.translate_deleted_image_errors(db, actor, model, part):
                return TaskSampleImageNumbers(
                    split, _choose_sample_images_of_each_class(blobs, part)
                )
        # An outage says nothing about the images, and the other part would fail, too.
        except Unavailable:
            raise
        except PerennialError as error:
            why = error.detail
    return TaskSampleImageNumbers("held_out", {}, why)


def _choose_sample_images_of_each_class(
    blobs: Blobs, part: task_images.TaskSplitDatasetReference
) -> dict[str, list[int]]:
    rows = {}
    for label in part.labels[:CLASSES]:
        images = task_images.list_task_split_images(
            blobs, part, label=label, limit=TILES, cursor=None
        )["items"]
        if images:
            rows[label] = [one["index"] for one in images]
    return rows
