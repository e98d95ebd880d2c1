"""`/ui/models/{model}/rebase`: both models of a rebase on the same images, and the form that moves production; and the
section of a model's page that leads there."""

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from api.dependencies import BlobStore, CatalogueOf, Db, PictureWork, Read, Write
from api.pages import forms
from api.pages.render import page, root_of
from api.schemas.common import ModelPath
from core.db.session import Database
from core.protocol.answers.model import ModelOut
from core.protocol.answers.rebase import RebaseOut
from core.requests import models, rebase_comparison, rebase_finish
from core.requests.actor import Actor

router = APIRouter(include_in_schema=False)


def find_shown(db: Database, actor: Actor, model: ModelOut) -> RebaseOut | None:
    """Find what the page of a model shows of a rebase, by counts alone; None: nothing is to be shown.

    A finished one is shown in the model that production moved to, for the way back.
    """
    found = rebase_comparison.look(db, actor, model["id"])
    if found is None or (found["state"] == "finished" and found["new"]["id"] != model["id"]):
        return None
    return found


@router.get("/ui/models/{model}/rebase")
async def show(
    request: Request,
    model: ModelPath,
    actor: Read,
    db: Db,
    blobs: BlobStore,
    catalogue: CatalogueOf,
    work: PictureWork,
) -> Response:
    """The page of a rebase, image by image."""
    found = await work.run(actor.owner_id, lambda: rebase_comparison.read(db, blobs, actor, model))
    new = await to_thread.run_sync(lambda: models.read(db, catalogue(), actor, found["new"]["id"]))
    return page(request, "rebase.html", {"model": new, "rebase": found})


@router.post("/ui/models/{model}/rebase/finish")
async def finish(
    request: Request, model: ModelPath, actor: Write, db: Db, blobs: BlobStore, work: PictureWork
) -> Response:
    """Compare both models image by image, and give this one the name of the other."""
    given = await forms.form(request)
    seen = (forms.number_of(given, "old"), forms.number_of(given, "new"))
    reason, missing = forms.reason_of(given), _missing(given)

    def moved() -> RebaseOut:
        return rebase_finish.finish(db, blobs, actor, model, reason, missing, seen=seen)

    await work.run(actor.owner_id, moved)
    return RedirectResponse(f"{root_of(request.scope)}/ui/models/{model}", 303)


def _missing(given: dict[str, str]) -> rebase_finish.Missing:
    """Return what happens where something is missing: a tick says that production moves all the same."""
    return "allow" if given.get("sure") == "yes" else "refuse"
