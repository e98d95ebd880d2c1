"""Routes that compare two versions. Predictions are read as heavy work, in turns between owners."""

from dataclasses import dataclass
from typing import Annotated

from anyio import to_thread
from fastapi import Depends, Query, Response

from api.dependencies import Page, Read, Service
from api.description.documented_routes import make_tagged_api_router
from api.json_responses import build_json_response
from api.problems import build_openapi_problem_responses
from api.schemas.common import ModelPath
from core.comparisons import compare, compared_tasks
from core.comparisons.compared_tasks import ComparedVersionPair
from core.contract.responses.versions.compare import ComparedImagePage, CompareOut, FlipKind

router = make_tagged_api_router("versions")

A = Annotated[
    str, Query(description="Number or alias of the version to compare with", max_length=63)
]
B = Annotated[
    str, Query(description="Number or alias of the version that is compared", max_length=63)
]
OnTask = Annotated[int | None, Query(ge=1, lt=2**31, description="Only this task")]
OfClass = Annotated[
    str | None, Query(alias="class", max_length=100, description="Only images of this class")
]
Kind = Annotated[
    FlipKind,
    Query(
        description="Right by `a` alone (negative), by `b` alone (positive), or by none "
        "(both_wrong)"
    ),
]
_responses = build_openapi_problem_responses(409, 410)


@dataclass(frozen=True)
class FlippedImagesQuery:
    """The versions to compare, and which images whose prediction flipped are listed."""

    a: str
    b: str
    kind: FlipKind
    task: int | None
    label: str | None


async def _gather_flips_query_parameters(
    a: A, b: B, kind: Kind = "negative", task: OnTask = None, class_: OfClass = None
) -> FlippedImagesQuery:
    return FlippedImagesQuery(a, b, kind, task, class_)


@router.get("/v1/models/{model}/compare", response_model=CompareOut, responses=_responses)
async def compare_versions(
    model: ModelPath, a: A, b: B, actor: Read, service: Service, task: OnTask = None
) -> Response:
    """Compare two versions on the same held-out images: changes by task and by class."""
    db, blobs = service.db, service.blobs
    # Before the turn, so that a wrong request is refused without waiting for the work of others.
    pair = await to_thread.run_sync(
        compared_tasks.load_version_pair_to_compare, db, actor, model, a, b, task
    )

    # Data of a task may be deleted meanwhile: then the remaining tasks are compared.
    def compare_pair() -> CompareOut:
        return compared_tasks.run_comparison_skipping_deleted_tasks(
            db,
            actor,
            pair,
            task,
            lambda left: compare.compare_version_predictions_and_recipes(blobs, left),
        )

    return build_json_response(
        await service.picture_work.run_work_in_turn(actor.owner_id, compare_pair)
    )


@router.get(
    "/v1/models/{model}/compare/images", response_model=ComparedImagePage, responses=_responses
)
async def compare_images(
    model: ModelPath,
    actor: Read,
    service: Service,
    flips: Annotated[FlippedImagesQuery, Depends(_gather_flips_query_parameters)],
    page: Page,
) -> Response:
    """List the images whose prediction flipped between two versions, with both predictions."""
    db, blobs = service.db, service.blobs
    pair = await to_thread.run_sync(
        compared_tasks.load_version_pair_to_compare, db, actor, model, flips.a, flips.b, flips.task
    )

    def list_image_flips(remaining_pair: ComparedVersionPair) -> ComparedImagePage:
        return compare.list_compared_images_of_flip_kind(
            blobs,
            remaining_pair,
            kind=flips.kind,
            label=flips.label,
            limit=page.limit,
            cursor=page.cursor,
        )

    def load_flipped_images() -> ComparedImagePage:
        return compared_tasks.run_comparison_skipping_deleted_tasks(
            db, actor, pair, flips.task, list_image_flips
        )

    return build_json_response(
        await service.picture_work.run_work_in_turn(actor.owner_id, load_flipped_images)
    )
