"""The first model of an installation: three ways to it on `/ui`, and its first result.

`/ui/first` creates a model and has it learn: the sample pictures of the package, or an archive that
the browser sends. `/ui/models/{model}/first` shows how far that is, and what came of it, in words
that need no knowledge of this service.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from api.authentication import session
from api.dependencies import CatalogueOf, Db, Read, Service, ServiceDependencies, Write
from api.pages.models import render_model_list_with_error
from api.pages.parts import forms
from api.pages.parts.live import read_newest_event_cursor
from api.pages.parts.render import get_root_path, render_page
from api.pages.submit import detect_batch_archive_kind
from api.schemas.common import ModelPath
from api.uploads.batch_request import BatchRequestOptions, BatchSubmissionRequest
from api.uploads.body import ReceivedUpload, open_temporary_spool_file, receive_body_into_spool
from api.uploads.request_checks import UploadRouteRules
from api.uploads.upload import UploadReception
from core.admission.admission import AdmissionLimits
from core.bases import pretrained
from core.contract.responses.model import ModelOut
from core.contract.responses.model_change import NewModel
from core.contract.responses.task import TaskOut
from core.errors import Invalid, NameTaken, PerennialError
from core.ids import is_allowed_model_or_alias_name
from core.ingest.limits import ArchiveLimits
from core.jobs import jobs
from core.models import model_deletion, models
from core.models.new_model import NewModelAdmissionLimits as ModelLimits
from core.packaged import sample_pictures
from core.requests.actor import Actor
from core.settings import Settings
from core.tasks import tasks

router = APIRouter(include_in_schema=False)

PATH = "/ui/first"
TERMS = UploadRouteRules(f"POST {PATH}", fields=("name",))
SHOWN = 20
"""Batches that the page of the first result shows."""
DEFAULT_NAME = "photos"


@router.post(f"{PATH}/samples")
async def handle_sample_model_form(request: Request, actor: Write, service: Service) -> Response:
    """Create a model that learns the sample pictures, and show its progress."""
    await forms.read_values_of_own_page_form(request)
    new_model: NewModel = {
        "name": sample_pictures.MODEL,
        "scenario": "class",
        "base": sample_pictures.BASE,
        "image": {"size": sample_pictures.SIZE, "channels": 3},
    }
    try:
        model = await to_thread.run_sync(
            _create_model_and_notify_workers, service, actor, new_model
        )
    except NameTaken:  # clicked twice
        return RedirectResponse(_build_first_model_path(request, sample_pictures.MODEL), 303)
    upload = UploadReception(request, actor, TERMS, service.db, service.settings, None)
    async with _delete_model_on_error(service, actor, model["id"]):
        with upload.hold_upload_slot():
            for name in sample_pictures.BATCHES:
                path = sample_pictures.locate_packaged_sample_archive(name)
                async with _copy_file_to_spool(path, service.settings) as file:
                    await _submit_uploaded_batch(
                        _build_batch_submission_request(service, upload, model["id"], name), file
                    )
    return RedirectResponse(_build_first_model_path(request, model["id"]), 303)


@router.post(PATH)
async def handle_first_model_archive_form(
    request: Request, actor: Write, service: Service
) -> Response:
    """Create a model that learns an archive sent by a form, and show its progress."""
    session.require_own_request_origin(request.scope)
    settings = service.settings
    upload = UploadReception(request, actor, TERMS, service.db, settings, None)
    try:
        head = upload.check_request_head(ArchiveLimits.from_settings(settings).body_bytes)
        if head.boundary is None:
            raise Invalid("Pictures are sent by the form of this page, as multipart/form-data.")
        with upload.hold_upload_slot():
            async with receive_body_into_spool(request, head, TERMS, settings) as file:
                name = derive_model_name(file.fields.get("name", ""))
                kind = await to_thread.run_sync(detect_batch_archive_kind, file)
                new_model: NewModel = {"name": name, "scenario": "class"}
                model = await to_thread.run_sync(
                    _create_model_and_notify_workers, service, actor, new_model
                )
                async with _delete_model_on_error(service, actor, model["id"]):
                    order = _build_batch_submission_request(service, upload, model["id"], None)
                    await to_thread.run_sync(
                        order.check_batch_room_and_read_former_names, file.size
                    )
                    await _submit_uploaded_batch(order, replace(file, kind=kind, fields={}))
    except PerennialError as error:
        return await to_thread.run_sync(
            render_model_list_with_error, request, actor, service, error
        )
    return RedirectResponse(_build_first_model_path(request, model["id"]), 303)


@router.get("/ui/models/{model}/first")
def show_first_model_page(
    request: Request, model: ModelPath, actor: Read, db: Db, catalogue: CatalogueOf
) -> Response:
    """Show the progress of a newcomer's first model, and what to do next."""
    events = read_newest_event_cursor(request, actor)
    model_response = models.read_model(db, catalogue(), actor, model)
    batches = tasks.list_tasks(db, actor, model_response["id"], SHOWN, None)["items"]
    of_model = jobs.JobFilter(model=model_response["id"])
    recent = jobs.list_jobs(db, actor, of_model, limit=SHOWN, cursor=None)["items"]
    learned = [one for one in batches if one["standing"] == "learned"]
    context = {
        "events": events,
        "model": model_response,
        "batches": batches,
        "jobs": {job["id"]: job for job in recent},
        # Before the first batch there is no job, and `all` of none is true.
        "is_over": bool(batches) and all(job["is_terminal"] for job in recent),
        "kinds": sum(len(one["classes"]) for one in learned),
        "right": sum(count_correct_held_out_images(one) for one in learned),
        "tested": sum(one["n_held_out"] or 0 for one in learned),
        "count_right": count_correct_held_out_images,
    }
    return render_page(request, "first.html", context)


def count_correct_held_out_images(task: TaskOut) -> int:
    """Return the number of a task's held-out images that the newest version predicts correctly."""
    share = task["accuracy_now"]
    return 0 if share is None else round(share * (task["n_held_out"] or 0))


def derive_model_name(text: str) -> str:
    """Turn the name of a folder or file into a valid model name.

    Return `DEFAULT_NAME` if too little of it is left.
    """
    name = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:60]
    return name if is_allowed_model_or_alias_name(name) else DEFAULT_NAME


def _create_model_and_notify_workers(
    service: ServiceDependencies, actor: Actor, new_model: NewModel
) -> ModelOut:
    limits = ModelLimits(
        AdmissionLimits.from_settings(service.settings),
        pretrained.PretrainedWeightsPolicy.from_settings(service.settings),
    )
    model = models.create_model(service.load_use_case_resources(), actor, new_model, None, limits)[
        0
    ]
    if model["job"] is not None:
        service.bell.notify_workers(model["job"])
    return model


@asynccontextmanager
async def _delete_model_on_error(
    service: ServiceDependencies, actor: Actor, model: str
) -> AsyncIterator[None]:
    """Delete the newly created model if its pictures are refused, so that its name is free again."""
    try:
        yield
    except PerennialError:
        await to_thread.run_sync(
            model_deletion.delete_model, service.db, service.store, service.blobs, actor, model
        )
        raise


@asynccontextmanager
async def _copy_file_to_spool(path: Path, settings: Settings) -> AsyncIterator[ReceivedUpload]:
    """Copy a packaged sample file to the spool, from where a submission moves it into the store."""
    with open_temporary_spool_file(settings, path.stat().st_size) as file:
        await to_thread.run_sync(lambda: file.append_piece(memoryview(path.read_bytes())))
        received = ReceivedUpload(file.path, file.size, file.sha256, file.sha256, "", {})
        yield replace(received, kind=await to_thread.run_sync(detect_batch_archive_kind, received))


def _build_batch_submission_request(
    service: ServiceDependencies, upload: UploadReception, model: str, name: str | None
) -> BatchSubmissionRequest:
    return BatchSubmissionRequest(
        BatchRequestOptions(model, name),
        None,
        upload.actor,
        upload,
        service.store,
        service.bell,
        service.catalogue,
    )


async def _submit_uploaded_batch(order: BatchSubmissionRequest, file: ReceivedUpload) -> None:
    """Submit a received batch as the model's next task, and wake a worker.

    Raises:
        PerennialError: see `core.tasks.submission.BatchSubmission.submit_as_next_task`.
    """
    submission = await order.build_submission(file, None)
    result = await to_thread.run_sync(submission.submit_as_next_task)
    order.bell.notify_workers(result.job)


def _build_first_model_path(request: Request, model: str) -> str:
    return f"{get_root_path(request.scope)}/ui/models/{model}/first"
