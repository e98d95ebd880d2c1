"""`/ui/models/{model}/compare`: whether a version is better than another, which classes it hurts, and on
which images."""

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from api.dependencies import BlobStore, CatalogueOf, Db, PictureWork, Read
from api.pages.render import page
from api.schemas.common import ModelPath
from core.errors import AnswersMissing, Gone, Invalid
from core.protocol.answers.compare import ComparedImagePage, CompareOut, FlipKind
from core.requests import compare, compared_tasks, lineage, models
from core.requests.compared_tasks import Pair
from core.store import Blobs

router = APIRouter(include_in_schema=False)

IMAGES = 48
"""Images of a page."""
CELLS = 24
"""Classes up to which the confusion is a matrix; beyond, the pairs that changed most."""
CHOICE = 200
"""Newest versions to choose from."""
P_SURE = 0.05
_MOST = 2**31 - 1
Version = Annotated[str | None, Query(max_length=63, description="Number or alias of a version")]
OnTask = Annotated[str | None, Query(max_length=10, description="Only this task; empty: all")]
OfClass = Annotated[str | None, Query(alias="class", max_length=100, description="Only images of this class")]
Kind = Annotated[FlipKind | None, Query(description="Which images are shown")]
Every = Annotated[bool, Query(alias="all", description="Also classes that did not change")]
From = Annotated[str | None, Query(max_length=300, description="Cursor of the page before")]


@dataclass(frozen=True)
class Choice:
    """What the reader asked for; `link` makes the address of the page with something else in its place."""

    a: int
    b: int
    task: int | None
    label: str | None
    kind: FlipKind
    every: bool

    def link(self, **other: object) -> str:
        """`?a=3&b=5&task=2…`"""
        given: dict[str, object] = {
            "a": self.a,
            "b": self.b,
            "task": self.task,
            "class": self.label,
            "flips": self.kind,
            "all": "true" if self.every else None,
            **other,
        }
        return "?" + urlencode({name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True)
class Found:
    """What was compared, and a page of images of one kind."""

    told: CompareOut
    images: ComparedImagePage


@router.get("/ui/models/{model}/compare")
async def show(
    request: Request,
    model: ModelPath,
    actor: Read,
    db: Db,
    blobs: BlobStore,
    catalogue: CatalogueOf,
    work: PictureWork,
    a: Version = None,
    b: Version = None,
    task: OnTask = None,
    label: OfClass = None,
    flips: Kind = None,
    every: Every = False,
    cursor: From = None,
) -> Response:
    """The page that compares two versions."""
    shown = await to_thread.run_sync(lambda: models.read(db, catalogue(), actor, model))
    history = await to_thread.run_sync(
        lambda: lineage.lineage(db, actor, shown["id"], last=None, size=CHOICE)
    )
    number = _task(task)
    here = {"model": shown, "versions": history.versions, "picked": (a, b), "task": number}
    if not a or not b:
        return page(request, "compare.html", {**here, "told": None, "why": None})
    try:
        pair = await to_thread.run_sync(compared_tasks.find, db, actor, shown["id"], a, b, number)
        kind: FlipKind = flips or "negative"
        look = Choice(pair.a.number, pair.b.number, number, label or None, kind, every)

        def made() -> Found:
            return compared_tasks.used(
                db, actor, pair, number, lambda left: _found(blobs, left, look, cursor)
            )

        found = await work.run(actor.owner_id, made)
    except (AnswersMissing, Gone) as error:
        return page(request, "compare.html", {**here, "told": None, "why": error.detail})
    return page(request, "compare.html", {**here, **_told(found, look), "cursor": cursor, "why": None})


def _task(text: str | None) -> int | None:
    """The number of a task; None of an empty field.

    Raises:
        Invalid: anything else.
    """
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _MOST):
        raise Invalid(
            "A task is named by its number, from 1 on.", fields=[{"field": "task", "message": "≥ 1"}]
        )
    return int(text)


def _found(blobs: Blobs, pair: Pair, look: Choice, cursor: str | None) -> Found:
    told = compare.compare(blobs, pair)
    some = compare.images(blobs, pair, kind=look.kind, label=look.label, limit=IMAGES, cursor=cursor)
    return Found(told, some)


def _told(found: Found, look: Choice) -> dict[str, object]:
    """What the template shows."""
    told = found.told
    totals = told["totals"]
    changed = [one for one in told["classes"] if one["negative"] or one["positive"]]
    balance = totals["positive"] - totals["negative"]
    return {
        "told": told,
        "look": look,
        "images": found.images,
        "balance": balance,
        "sure": totals["mcnemar_p"] < P_SURE,
        "hurt": [one for one in changed if one["negative"] > one["positive"]],
        "helped": [one for one in changed if one["positive"] > one["negative"]],
        "classes": told["classes"] if look.every else changed,
        "same": told["classes_total"] - len(changed),
        "matrix": _matrix(told),
        "pairs": [pair for pair in told["pairs"] if pair["a"] != pair["b"]][:40],
    }


@dataclass(frozen=True)
class Row:
    """A row of the matrix of changes: the true label, and for each answer b − a."""

    label: str
    cells: list[int]


def _matrix(told: CompareOut) -> list[Row] | None:
    """How many more images of a class (row) get an answer (column) by b than by a; None: too many classes, or
    no change."""
    found = told["confusion"]
    if found is None or len(found["labels"]) > CELLS:
        return None
    rows = [
        Row(label, [new - old for old, new in zip(of_a, of_b, strict=True)])
        for label, of_a, of_b in zip(found["labels"], found["a"], found["b"], strict=True)
    ]
    return rows if any(any(row.cells) for row in rows) else None
