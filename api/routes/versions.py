"""Routes for versions: list, details, download, parts."""

from dataclasses import dataclass
from typing import Annotated

from anyio import to_thread
from fastapi import Depends, Path, Query, Request, Response
from pydantic import JsonValue

from api.dependencies import (
    Db,
    Page,
    Read,
    Service,
    ServiceDependencies,
    Write,
)
from api.description.documented_routes import make_tagged_api_router
from api.downloads import (
    DOWNLOAD_HEADERS,
    build_file_response,
    build_openapi_download_responses,
    build_presigned_redirect_if_possible,
)
from api.json_responses import build_json_response, build_queued_job_response
from api.problems import build_openapi_problem_responses
from api.schemas.common import ModelPath
from api.schemas.versions import VersionPatch, VersionPath
from core.contract.responses.versions.version import FileList, ResultPage, VersionOut, VersionPage
from core.export.registry import FORMATS
from core.requests.actor import translate_deleted_file_errors
from core.versions import export_jobs, exports, versions

router = make_tagged_api_router("versions")

SAFETENSORS = "application/safetensors"
Format = Annotated[
    str, Query(description=" or ".join(f"`{name}`" for name in FORMATS), max_length=40)
]
_downloads: dict[int | str, dict[str, JsonValue]] = {
    **build_openapi_download_responses(
        *dict.fromkeys(format.media_type for format in FORMATS.values()), redirect=True
    ),
    202: {
        "description": "A job makes it: ask again once it has succeeded",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/JobOut"}}},
    },
    **build_openapi_problem_responses(429),
}
PartPath = Annotated[str, Path(description="Name of the part", max_length=100)]


@router.get("/v1/models/{model}/versions", response_model=VersionPage)
def list_versions(model: ModelPath, actor: Read, db: Db, page: Page) -> Response:
    """List a model's versions in ascending order."""
    return build_json_response(
        versions.list_versions(db, actor, model, limit=page.limit, cursor=page.cursor)
    )


@router.get("/v1/models/{model}/versions/{version}", response_model=VersionOut)
def get_version(model: ModelPath, version: VersionPath, actor: Read, db: Db) -> Response:
    """Return one version, by number or alias."""
    return build_json_response(versions.get_version(db, actor, model, version))


@router.patch("/v1/models/{model}/versions/{version}", summary="Change", response_model=VersionOut)
def change_version_note(
    model: ModelPath, version: VersionPath, body: VersionPatch, actor: Write, db: Db
) -> Response:
    """Set the note of a version; nothing else of it can be changed."""
    return build_json_response(versions.set_version_note(db, actor, model, version, body.note))


@router.get(
    "/v1/models/{model}/versions/{version}/results", summary="Results", response_model=ResultPage
)
def list_version_results(
    model: ModelPath,
    version: VersionPath,
    actor: Read,
    db: Db,
    page: Page,
) -> Response:
    """List a version's counts of correct predictions on each measured task, in total and by
    class.
    """
    return build_json_response(
        versions.list_version_task_results(
            db, actor, model, version, limit=page.limit, cursor=page.cursor
        )
    )


@dataclass(frozen=True)
class DownloadQuery:
    """The format of a download, and whether to redirect to the object store where it has URLs."""

    format: str
    redirect: bool


async def _gather_download_query_parameters(
    format: Format = "safetensors",
    redirect: Annotated[
        bool, Query(description="307 to the object store, where it has URLs")
    ] = False,
) -> DownloadQuery:
    return DownloadQuery(format, redirect)


async def download_version(
    request: Request,
    model: ModelPath,
    version: VersionPath,
    actor: Read,
    service: Service,
    download: Annotated[DownloadQuery, Depends(_gather_download_query_parameters)],
) -> Response:
    """Download a version as one zip: weights, configuration, and a model card with loading code.

    `onnx`: an ONNX graph from pixels to probabilities, labels, and code that runs it. A job builds
    it at the first request: 202 with the job until it is ready.
    """
    db, blobs, format = service.db, service.blobs, download.format

    def find_stored_download() -> exports.FinishedExportDownload | None:
        with translate_deleted_file_errors(db, actor, model):
            return exports.find_stored_export(
                db, blobs, actor, exports.RequestedExport(model, version, format)
            )

    def build_export() -> exports.FinishedExportDownload:
        with translate_deleted_file_errors(db, actor, model):
            spool = service.settings.make_folder("spool")
            return exports.get_or_build_export(
                service.load_use_case_resources(),
                actor,
                exports.RequestedExport(model, version, format),
                spool,
            )

    # Hash the file before any of it is sent, here or by redirect.
    def build_download_response(file: exports.FinishedExportDownload) -> Response:
        with translate_deleted_file_errors(db, actor, model):
            redirection = None
            if download.redirect:
                redirection = build_presigned_redirect_if_possible(
                    request, service.store, blobs, file.sha256, file.media_type, file.filename
                )
            return redirection or build_file_response(
                request, blobs, file.sha256, file.bytes, file.media_type, file.filename
            )

    stored_file = await to_thread.run_sync(find_stored_download)
    # Formats that take long are built by a job; the others during the request.
    if stored_file is None and FORMATS[format].by_job:
        return await to_thread.run_sync(
            _queue_export_and_build_response, service, actor, model, version, format
        )
    file = stored_file
    if file is None:
        file = await service.export_work.run_work_in_turn(actor.owner_id, build_export)
    return await to_thread.run_sync(build_download_response, file)


def _queue_export_and_build_response(
    service: ServiceDependencies, actor: Read, model: str, version: str, format: str
) -> Response:
    """Return the 202 of a download that a job builds; a new job wakes a worker."""
    max_open_jobs = service.settings.max_open_jobs
    job, fresh = export_jobs.queue_export_job(
        service.db, actor, model, version, format=format, max_open_jobs=max_open_jobs
    )
    if fresh:
        service.bell.notify_workers(job["id"])
    return build_queued_job_response(job)


router.get(
    "/v1/models/{model}/versions/{version}/download",
    response_class=Response,
    responses=_downloads,
    openapi_extra={"parameters": DOWNLOAD_HEADERS},
)(download_version)
# Unlike Starlette, FastAPI answers HEAD only at routes that declare it.
router.head(
    "/v1/models/{model}/versions/{version}/download",
    response_class=Response,
    responses=_downloads,
    openapi_extra={"parameters": DOWNLOAD_HEADERS},
    operation_id="head_download_version",
)(download_version)


@router.get("/v1/models/{model}/versions/{version}/files", response_model=FileList)
def list_files(
    model: ModelPath,
    version: VersionPath,
    actor: Read,
    db: Db,
    page: Page,
) -> Response:
    """List the version's downloadable parts; never buffers with training images."""
    return build_json_response(
        versions.list_version_files(db, actor, model, version, limit=page.limit, cursor=page.cursor)
    )


@router.get(
    "/v1/models/{model}/versions/{version}/files/{part}",
    response_class=Response,
    responses=build_openapi_download_responses(SAFETENSORS),
    openapi_extra={"parameters": DOWNLOAD_HEADERS},
)
def get_file(
    request: Request,
    model: ModelPath,
    version: VersionPath,
    part: PartPath,
    actor: Read,
    service: Service,
) -> Response:
    """Return one part as a safetensors file."""
    db, blobs = service.db, service.blobs
    with translate_deleted_file_errors(db, actor, model):
        file = versions.get_version_file(db, actor, model, version, part)
        return build_file_response(
            request, blobs, file.sha256, file.bytes, SAFETENSORS, file.filename
        )
