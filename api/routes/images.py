"""Routes for the images of a task. Reading and drawing them is heavy work, in turns between
owners.
"""

from dataclasses import dataclass
from typing import Annotated

from anyio import to_thread
from fastapi import Depends, Path, Query, Request, Response
from pydantic import JsonValue

from api.dependencies import Page, Read, Service
from api.description.documented_routes import make_tagged_api_router
from api.json_responses import build_json_response, is_etag_in_if_none_match
from api.problems import build_openapi_problem_responses
from api.routes.tasks import Number
from api.schemas.common import ModelPath
from core.contract.responses.task_image import Split, TaskImagePage
from core.tasks import task_images

router = make_tagged_api_router("tasks")

MOST = 2
"""Maximum number of pictures that an API process makes at once, one per owner."""
PNG = "image/png"
SplitQuery = Annotated[Split, Query(description="Of which part")]
Rows = Annotated[
    str,
    Query(
        pattern=r"^[0-9]{1,9}(,[0-9]{1,9})*$",
        max_length=1000,
        description="Numbers of images, separated by commas: the tiles of the sheet in their order",
    ),
]
_PRIVATE = {"Cache-Control": "private, no-cache"}  # revalidated each time: data may be deleted
_picture: dict[int | str, dict[str, JsonValue]] = {
    200: {
        "description": "The picture",
        "content": {PNG: {"schema": {"type": "string", "format": "binary"}}},
        "headers": {"ETag": {"schema": {"type": "string"}}},
    },
    304: {"description": "The client has this picture"},
    **build_openapi_problem_responses(409, 410),
}
_if_none_match: dict[str, JsonValue] = {
    "parameters": [
        {"in": "header", "name": "If-None-Match", "required": False, "schema": {"type": "string"}}
    ]
}


@dataclass(frozen=True)
class TaskImagesQuery:
    """The part of a task's data, and the class in it; None: all classes."""

    split: Split
    label: str | None


async def _gather_task_images_query_parameters(
    split: SplitQuery = "held_out",
    class_: Annotated[
        str | None, Query(alias="class", max_length=100, description="Only those of this class")
    ] = None,
) -> TaskImagesQuery:
    return TaskImagesQuery(split, class_)


@dataclass(frozen=True)
class TaskImageSplitAndNumber:
    """An image of a task: its part, and its number in it."""

    split: Split
    index: int


async def _gather_task_image_path_parameters(
    split: Annotated[Split, Path(description="Of which part")],
    i: Annotated[int, Path(ge=0, lt=2**31, description="Number of the image")],
) -> TaskImageSplitAndNumber:
    return TaskImageSplitAndNumber(split, i)


@dataclass(frozen=True)
class ContactSheetQuery:
    """The tiles of a contact sheet: a part of a task's data, and numbers of images as text."""

    split: Split
    rows: str


async def _gather_contact_sheet_query_parameters(
    rows: Rows, split: SplitQuery = "held_out"
) -> ContactSheetQuery:
    return ContactSheetQuery(split, rows)


@router.get(
    "/v1/models/{model}/tasks/{n}/images",
    response_model=TaskImagePage,
    responses=build_openapi_problem_responses(409, 410),
)
async def list_images(
    model: ModelPath,
    n: Number,
    actor: Read,
    service: Service,
    images: Annotated[TaskImagesQuery, Depends(_gather_task_images_query_parameters)],
    page: Page,
) -> Response:
    """List the images of a part of a task's data, by number, with their labels."""
    db, blobs = service.db, service.blobs
    part = await to_thread.run_sync(
        task_images.find_task_split_dataset, db, actor, model, n, images.split
    )

    def load_image_page() -> TaskImagePage:
        with task_images.translate_deleted_image_errors(db, actor, model, part):
            return task_images.list_task_split_images(
                blobs, part, label=images.label, limit=page.limit, cursor=page.cursor
            )

    return build_json_response(
        await service.picture_work.run_work_in_turn(actor.owner_id, load_image_page), 200, _PRIVATE
    )


@router.get(
    "/v1/models/{model}/tasks/{n}/images/{split}/{i}.png",
    summary="Picture",
    response_class=Response,
    responses=_picture,
    openapi_extra=_if_none_match,
)
async def read_task_image(
    request: Request,
    model: ModelPath,
    n: Number,
    image: Annotated[TaskImageSplitAndNumber, Depends(_gather_task_image_path_parameters)],
    actor: Read,
    service: Service,
) -> Response:
    """Return one image as it is used for learning: decoded, resized, not augmented."""
    db, blobs = service.db, service.blobs
    part = await to_thread.run_sync(
        task_images.find_task_split_dataset, db, actor, model, n, image.split
    )
    # Known without drawing: a client that has the picture costs no turn.
    tag = part.build_picture_etag([image.index])
    if is_etag_in_if_none_match(request.headers.get("if-none-match", ""), tag):
        return _build_unchanged_response(tag)

    def render_picture() -> bytes:
        with task_images.translate_deleted_image_errors(db, actor, model, part):
            return task_images.render_task_image(blobs, part, image.index)

    png = await service.picture_work.run_work_in_turn(actor.owner_id, render_picture)
    return _build_picture_response(png, tag)


@router.get(
    "/v1/models/{model}/tasks/{n}/sheet.png",
    summary="Sheet",
    response_class=Response,
    responses=_picture,
    openapi_extra=_if_none_match,
)
async def read_contact_sheet(
    request: Request,
    model: ModelPath,
    n: Number,
    actor: Read,
    service: Service,
    tiles: Annotated[ContactSheetQuery, Depends(_gather_contact_sheet_query_parameters)],
) -> Response:
    """Return up to 64 images side by side, eight per row, each at most 128 pixels per side."""
    db, blobs = service.db, service.blobs
    row_numbers = task_images.parse_image_numbers(tiles.rows)
    part = await to_thread.run_sync(
        task_images.find_task_split_dataset, db, actor, model, n, tiles.split
    )
    # With the count, so that a sheet of one image has another tag than the image itself.
    tag = part.build_picture_etag([len(row_numbers), *row_numbers])
    if is_etag_in_if_none_match(request.headers.get("if-none-match", ""), tag):
        return _build_unchanged_response(tag)

    def render_contact_sheet_png() -> bytes:
        with task_images.translate_deleted_image_errors(db, actor, model, part):
            return task_images.render_contact_sheet(blobs, part, row_numbers)

    png = await service.picture_work.run_work_in_turn(actor.owner_id, render_contact_sheet_png)
    return _build_picture_response(png, tag)


def _build_unchanged_response(tag: str) -> Response:
    return Response(status_code=304, headers={"ETag": f"W/{tag}", **_PRIVATE})


def _build_picture_response(png: bytes, tag: str) -> Response:
    """Return a picture. Its ETag is weak: another release may encode the same pixels
    differently.
    """
    return Response(png, 200, {"ETag": f"W/{tag}", **_PRIVATE}, PNG)
