"""`/ui/models/{model}/rebase`: both models of a rebase on the same images, and moving production.

Also the section of a model's page that links there.
"""

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from api.dependencies import Read, Service, Write
from api.pages.parts import forms
from api.pages.parts.render import get_root_path, render_page
from api.schemas.common import ModelPath
from core.contract.responses.model import ModelOut
from core.contract.responses.versions.rebase import RebaseOut
from core.database.session import Database
from core.models import models
from core.rebase import rebase_comparison, rebase_finish
from core.requests.actor import Actor

router = APIRouter(include_in_schema=False)


def find_rebase_shown_on_model_page(
    db: Database, actor: Actor, model: ModelOut
) -> RebaseOut | None:
    """Return the rebase to show on a model's page, compared by counts of images only, or None.

    A finished one is shown on the model that production moved to, to allow the way back.
    """
    rebase = rebase_comparison.compare_rebase_by_counts(db, actor, model["id"])
    if rebase is None or (rebase["state"] == "finished" and rebase["new"]["id"] != model["id"]):
        return None
    return rebase


@router.get("/ui/models/{model}/rebase")
async def show_rebase_page(
    request: Request, model: ModelPath, actor: Read, service: Service
) -> Response:
    """Show the page of a rebase, image by image."""
    db, blobs = service.db, service.blobs
    rebase = await service.picture_work.run_work_in_turn(
        actor.owner_id, lambda: rebase_comparison.compare_rebase_by_images(db, blobs, actor, model)
    )
    new = await to_thread.run_sync(
        lambda: models.read_model(db, service.catalogue(), actor, rebase["new"]["id"])
    )
    return render_page(request, "rebase.html", {"model": new, "rebase": rebase})


@router.post("/ui/models/{model}/rebase/finish")
async def handle_finish_rebase_form(
    request: Request, model: ModelPath, actor: Write, service: Service
) -> Response:
    """Finish a rebase: compare both models image by image, then move the name to the new one."""
    db, blobs = service.db, service.blobs
    inputs = await forms.read_values_of_own_page_form(request)
    # The page's versions, so that nothing is moved on the basis of an outdated comparison.
    shown_versions = (
        forms.parse_form_whole_number(inputs, "old"),
        forms.parse_form_whole_number(inputs, "new"),
    )
    reason, missing = forms.read_form_reason(inputs), _parse_rebase_missing_tasks_policy(inputs)

    def finish_rebase() -> RebaseOut:
        decision = rebase_finish.RebaseDecision(reason, missing, shown_versions)
        return rebase_finish.finish_rebase(db, blobs, actor, model, decision)

    await service.picture_work.run_work_in_turn(actor.owner_id, finish_rebase)
    return RedirectResponse(f"{get_root_path(request.scope)}/ui/models/{model}", 303)


def _parse_rebase_missing_tasks_policy(inputs: dict[str, str]) -> rebase_finish.Missing:
    """Return the policy for missing tasks from a form: `allow` if its box is ticked, else
    `refuse`.
    """
    return "allow" if inputs.get("sure") == "yes" else "refuse"
