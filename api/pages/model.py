"""`/ui/models/{model}`: what waits for a person, how production is, what was learned and forgotten."""

from collections.abc import Callable, Mapping
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from api.dependencies import Bell, BlobStore, CatalogueOf, Db, ObjectStore, Read, Write
from api.pages import forms
from api.pages.actions import buttons
from api.pages.checks import describe_checked, describe_limits, list_off
from api.pages.curves import curves
from api.pages.heat import ROWS, heat
from api.pages.rebase import find_shown
from api.pages.render import page, root_of
from api.pages.svg import coverage, reliability, tree
from api.schemas.common import ModelPath
from core.db.session import Database
from core.errors import Invalid
from core.line.line import PRODUCTION
from core.protocol.answers.model import ModelOut
from core.requests import aliases, class_changes, jobs, lineage, metrics, model_deletion, models, recipes
from core.requests.actor import Actor
from core.requests.lineage import Lineage, VersionRow
from core.requests.metrics import Window

router = APIRouter(include_in_schema=False)

JOBS = 8
HURT = 0.05
"""A version that lets forgetting rise by so much has hurt what was known."""
_MOST = 2**31 - 1
Shown = Annotated[int | None, Query(ge=0, le=_MOST, description="Version of the cell to look into")]
OnTask = Annotated[int | None, Query(ge=1, le=_MOST, description="Task of the cell to look into")]
Last = Annotated[int | None, Query(ge=0, le=_MOST, description="Newest version of the page")]
First = Annotated[int | None, Query(ge=1, le=_MOST, description="First task that has a column")]


@router.get("/ui/models/{model}")
def show(
    request: Request,
    model: ModelPath,
    actor: Read,
    db: Db,
    catalogue: CatalogueOf,
    v: Shown = None,
    t: OnTask = None,
    last: Last = None,
    first: First = None,
) -> Response:
    """The page of a model."""
    found = models.read(db, catalogue(), actor, model)
    recent = jobs.list_jobs(db, actor, state=None, model=found["id"], limit=JOBS, cursor=None)["items"]
    waits = buttons(found)
    again = any(button.again for one in waits for button in one.buttons)
    suggestions = recipes.suggestions(db, catalogue(), actor, found["id"]) if again else []
    told: dict[str, object] = {"model": found, "jobs": recent, "waits": waits, "suggestions": suggestions}
    told["rebase"] = find_shown(db, actor, found)
    told |= {"v": v, "t": t, "limits": describe_limits(found["gate"]), "off": list_off(found)}
    if found["state"] == "fetching":
        return page(request, "model.html", {**told, "history": None})
    history = lineage.lineage(db, actor, found["id"], last=last, size=ROWS)
    told |= _measured(db, actor, found, history, first)
    if v is not None and t is not None:
        told["cell"] = class_changes.class_changes(db, actor, found["id"], v, task=t)
    return page(request, "model.html", {**told, "history": history, "last": last, "first": first})


def _measured(
    db: Database, actor: Actor, model: ModelOut, history: Lineage, first: int | None
) -> dict[str, object]:
    """What the page shows of the accuracy matrix, in a fixed number of queries."""
    numbers = [one.number for one in history.versions]
    window = Window((min(numbers, default=0), max(numbers, default=0)))
    found = metrics.model_metrics(db, actor, model["id"], version=PRODUCTION, window=window)
    named, shown = model["aliases"][PRODUCTION], {one.number: one for one in history.versions}
    production = -1 if named is None else named
    left = {move.previous for move in history.moves if move.cause == "rollback" and move.previous is not None}
    held = [one["version"] for one in model["attention"] if one["kind"] == "held" and one["version"]]
    latest = held[0] if held else history.newest
    current = shown.get(production)
    measured = found["summary"]["calibration"]
    return {
        "summary": found["summary"],
        "reliability": [] if measured is None else reliability(measured["bins"]),
        "coverage": "" if measured is None else coverage(measured.get("curve", [])),
        "production": current,
        "checked": describe_checked(None if current is None or current.number == 0 else current.gate),
        "hurt": _hurt(shown, production),
        "heat": heat(found, production=production, left=left, first=first),
        "curves": curves(found, history),
        "tree": tree(history.versions, history.moves),
        "changes": class_changes.class_changes(db, actor, model["id"], latest) if latest else None,
        "cell": None,
    }


def _hurt(shown: Mapping[int, VersionRow], production: int) -> float | None:
    """What forgetting rose by with the version in production, in [0, 1]; None: by less than `HURT`."""
    now = shown.get(production)
    before = None if now is None or now.parent is None else shown.get(now.parent)
    if now is None or before is None or now.forgetting is None:
        return None
    rise = now.forgetting - (before.forgetting or 0.0)
    return rise if rise >= HURT else None


@router.post("/ui/models/{model}/aliases/production")
async def promote(request: Request, model: ModelPath, actor: Write, db: Db, bell: Bell) -> Response:
    """Put a version in production."""
    given = await forms.form(request)
    version, reason, seen = forms.number_of(given, "version"), forms.reason_of(given), _seen(given)

    def moved() -> str | None:
        return aliases.set_alias(db, actor, model, PRODUCTION, version=version, reason=reason, seen=seen)[1]

    return await done(request, model, moved, bell)


@router.post("/ui/models/{model}/aliases/production/rollback")
async def rollback(request: Request, model: ModelPath, actor: Write, db: Db, bell: Bell) -> Response:
    """Put production back on an earlier version."""
    given = await forms.form(request)
    version = forms.number_of(given, "version") if given.get("version") else None
    reason, seen = forms.reason_of(given), _seen(given)

    def moved() -> str | None:
        return aliases.rollback(db, actor, model, PRODUCTION, version=version, reason=reason, seen=seen)[1]

    return await done(request, model, moved, bell)


def _seen(given: dict[str, str]) -> int | None:
    """The version that production was on when the page of a form was made; None: the form does not say."""
    return forms.number_of(given, "production") if given.get("production") else None


@router.post("/ui/models/{model}/aliases/production/follow")
async def follow(request: Request, model: ModelPath, actor: Write, db: Db, bell: Bell) -> Response:
    """Let production follow the line again."""
    await forms.form(request)
    return await done(request, model, lambda: aliases.follow(db, actor, model, PRODUCTION)[1], bell)


@router.post("/ui/models/{model}/delete")
async def delete(
    request: Request,
    model: ModelPath,
    actor: Write,
    db: Db,
    store: ObjectStore,
    blobs: BlobStore,
    catalogue: CatalogueOf,
) -> Response:
    """Delete it, once somebody has typed its name, and show the models that are left."""
    given = await forms.form(request)

    def deleted() -> str:
        found = models.read(db, catalogue(), actor, model)
        if given.get("name") != found["name"]:
            raise Invalid(f"The model is deleted only with its name typed as it is: {found['name']}.")
        model_deletion.delete(db, store, blobs, actor, found["id"])
        return found["id"]

    gone = await to_thread.run_sync(deleted)
    return RedirectResponse(f"{root_of(request.scope)}/ui?deleted={gone}", 303)


async def done(request: Request, model: str, change: Callable[[], str | None], bell: Bell) -> Response:
    """Do it, wake the worker for the job whose turn it is now, and show the model again."""
    job = await to_thread.run_sync(change)
    if job is not None:
        bell.ring(job)
    return RedirectResponse(f"{root_of(request.scope)}/ui/models/{model}", 303)
