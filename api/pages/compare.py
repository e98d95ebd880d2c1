"""`/ui/models/{model}/compare`: two versions compared by class and by image."""

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from anyio import to_thread
from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from api.dependencies import Read, Service
from api.pages.parts.render import render_page
from api.schemas.common import ModelPath
from core.comparisons import compare, compared_tasks
from core.comparisons.compared_tasks import ComparedVersionPair
from core.contract.responses.versions.compare import ComparedImagePage, CompareOut, FlipKind
from core.errors import Invalid, ObjectGone, VersionPredictionsNotStored
from core.models import models
from core.storage import Blobs
from core.versions.history import read_version_history

router = APIRouter(include_in_schema=False)

IMAGES = 48
"""Images per page."""
CELLS = 24
"""Maximum number of classes for a confusion matrix; with more, the pairs that changed most are
shown.
"""
CHOICE = 200
"""Newest versions to choose from."""
P_SURE = 0.05
# The largest value of PostgreSQL's type integer, which these numbers have.
_MOST = 2**31 - 1
Version = Annotated[str | None, Query(max_length=63, description="Number or alias of a version")]
OnTask = Annotated[str | None, Query(max_length=10, description="Only this task; empty: all")]
OfClass = Annotated[
    str | None, Query(alias="class", max_length=100, description="Only images of this class")
]
Kind = Annotated[FlipKind | None, Query(description="Which images are shown")]
Every = Annotated[bool, Query(alias="all", description="Also classes that did not change")]
From = Annotated[str | None, Query(max_length=300, description="Cursor of the page before")]


@dataclass(frozen=True)
class ComparisonPageUrlParameters:
    """The versions, task, class and kind of image selected on a comparison page, from its URL."""

    a: int
    b: int
    task: int | None
    label: str | None
    kind: FlipKind
    every: bool

    def build_comparison_page_query(self, **other: object) -> str:
        """Return the comparison page's query, such as `?a=3&b=5&task=2…`, with some parameters
        replaced.
        """
        parameters: dict[str, object] = {
            "a": self.a,
            "b": self.b,
            "task": self.task,
            "class": self.label,
            "flips": self.kind,
            "all": "true" if self.every else None,
            **other,
        }
        return "?" + urlencode(
            {name: value for name, value in parameters.items() if value is not None}
        )


@dataclass(frozen=True)
class ComparisonWithImages:
    """A comparison of two versions, with a page of the images whose prediction changed."""

    result: CompareOut
    images: ComparedImagePage


@dataclass(frozen=True)
class ComparedVersionsQuery:
    """The two versions and the task to compare, as the page's URL names them; empty: not chosen."""

    a: str | None
    b: str | None
    task: str | None


async def _gather_compared_versions_query(
    a: Version = None, b: Version = None, task: OnTask = None
) -> ComparedVersionsQuery:
    return ComparedVersionsQuery(a, b, task)


@dataclass(frozen=True)
class ComparisonPageFilters:
    """Filters of a comparison page for classes and images, from its URL."""

    label: str | None
    flips: FlipKind | None
    every: bool
    cursor: str | None


async def _gather_comparison_view_query_parameters(
    label: OfClass = None, flips: Kind = None, every: Every = False, cursor: From = None
) -> ComparisonPageFilters:
    return ComparisonPageFilters(label, flips, every, cursor)


@router.get("/ui/models/{model}/compare")
async def show_comparison_page(
    request: Request,
    model: ModelPath,
    actor: Read,
    service: Service,
    compared: Annotated[ComparedVersionsQuery, Depends(_gather_compared_versions_query)],
    view: Annotated[ComparisonPageFilters, Depends(_gather_comparison_view_query_parameters)],
) -> Response:
    """Show the page that compares two versions."""
    db, blobs, catalogue = service.db, service.blobs, service.catalogue
    a, b = compared.a, compared.b
    model_response = await to_thread.run_sync(
        lambda: models.read_model(db, catalogue(), actor, model)
    )
    history = await to_thread.run_sync(
        lambda: read_version_history(db, actor, model_response["id"], last=None, size=CHOICE)
    )
    number = _parse_task_number(compared.task)
    context = {
        "model": model_response,
        "versions": history.versions,
        "picked": (a, b),
        "task": number,
    }
    if not a or not b:
        return render_page(request, "compare.html", {**context, "told": None, "why": None})
    try:
        pair = await to_thread.run_sync(
            compared_tasks.load_version_pair_to_compare,
            db,
            actor,
            model_response["id"],
            a,
            b,
            number,
        )
        kind: FlipKind = view.flips or "negative"
        look = ComparisonPageUrlParameters(
            pair.a.number, pair.b.number, number, view.label or None, kind, view.every
        )

        def compare_pair() -> ComparisonWithImages:
            return compared_tasks.run_comparison_skipping_deleted_tasks(
                db,
                actor,
                pair,
                number,
                lambda left: _build_comparison_with_images(blobs, left, look, view.cursor),
            )

        comparison = await service.picture_work.run_work_in_turn(actor.owner_id, compare_pair)
    # The page says why and lets the user choose other versions, instead of showing an error.
    except (VersionPredictionsNotStored, ObjectGone) as error:
        return render_page(request, "compare.html", {**context, "told": None, "why": error.detail})
    return render_page(
        request,
        "compare.html",
        {
            **context,
            **_build_comparison_template_variables(comparison, look),
            "cursor": view.cursor,
            "why": None,
        },
    )


def _parse_task_number(text: str | None) -> int | None:
    """Parse the task number in a form field; None for an empty field.

    Raises:
        Invalid: it is not a number of at least 1.
    """
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _MOST):
        raise Invalid(
            "A task is named by its number, from 1 on.",
            fields=[{"field": "task", "message": "≥ 1"}],
        )
    return int(text)


def _build_comparison_with_images(
    blobs: Blobs, pair: ComparedVersionPair, look: ComparisonPageUrlParameters, cursor: str | None
) -> ComparisonWithImages:
    result = compare.compare_version_predictions_and_recipes(blobs, pair)
    images = compare.list_compared_images_of_flip_kind(
        blobs, pair, kind=look.kind, label=look.label, limit=IMAGES, cursor=cursor
    )
    return ComparisonWithImages(result, images)


def _build_comparison_template_variables(
    comparison: ComparisonWithImages, look: ComparisonPageUrlParameters
) -> dict[str, object]:
    """Build the template variables of the page that compares two versions."""
    result = comparison.result
    totals = result["totals"]
    changed = [one for one in result["classes"] if one["negative"] or one["positive"]]
    balance = totals["positive"] - totals["negative"]
    return {
        "told": result,
        "look": look,
        "images": comparison.images,
        "balance": balance,
        "sure": totals["mcnemar_p"] < P_SURE,
        "hurt": [one for one in changed if one["negative"] > one["positive"]],
        "helped": [one for one in changed if one["positive"] > one["negative"]],
        "classes": result["classes"] if look.every else changed,
        "same": result["classes_total"] - len(changed),
        "matrix": _build_confusion_change(result),
        "pairs": [pair for pair in result["pairs"] if pair["a"] != pair["b"]][:40],
    }


@dataclass(frozen=True)
class ConfusionChangeRow:
    """A row of the confusion matrix's change from version a to b: one true label's differences."""

    label: str
    cells: list[int]


def _build_confusion_change(result: CompareOut) -> list[ConfusionChangeRow] | None:
    """Return the change of the confusion matrix from version a to b, with true classes as rows.

    None if there are too many classes or no changes.
    """
    confusion = result["confusion"]
    if confusion is None or len(confusion["labels"]) > CELLS:
        return None
    rows = [
        ConfusionChangeRow(label, [new - old for old, new in zip(of_a, of_b, strict=True)])
        for label, of_a, of_b in zip(
            confusion["labels"], confusion["a"], confusion["b"], strict=True
        )
    ]
    return rows if any(any(row.cells) for row in rows) else None
