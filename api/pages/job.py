"""`/ui/jobs/{job}`: progress, log and actions of a job, updated live by the API's events."""

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from api.dependencies import CatalogueOf, Db, Read, Service, Write
from api.pages.parts import forms
from api.pages.parts.job_result import SUSPECTS, load_job_result_view
from api.pages.parts.render import get_root_path, render_page
from api.schemas.common import JobPath
from core.admission import recipe_preview
from core.admission.admission import AdmissionLimits, NewJobLimits
from core.contract.responses.job import JobOut
from core.database.states import TRANSITIONS, JobAction, JobState
from core.errors import BatchHeldForFindings, Invalid
from core.jobs import job_progress, jobs
from core.tasks import retries
from core.trials import listing, trial_selection

router = APIRouter(include_in_schema=False)

SentAgain = Annotated[bool, Query(description="A batch that the model has was sent again")]
_ACTIONS = (JobAction.PAUSE, JobAction.RESUME, JobAction.CANCEL)


@router.get("/ui/jobs/{job}")
def show_job_page(
    request: Request,
    job: JobPath,
    actor: Read,
    db: Db,
    catalogue: CatalogueOf,
    sent_again: SentAgain = False,
) -> Response:
    """Show the page of a job.

    Args:
        sent_again: the page answers a batch that the model has already.
    """
    story = job_progress.read_job_page_data(db, actor, job)
    possible = _list_allowed_job_actions(story.job)
    can_retry_learning = "retry" in possible and story.job["kind"] == "learn"
    suggestions = (
        recipe_preview.suggest_retry_recipes(db, catalogue(), actor, story.job["model"])
        if can_retry_learning
        else []
    )
    file = _find_export_download_url(story.job)
    return render_page(
        request,
        "job.html",
        {
            "story": story,
            "job": story.job,
            "actions": possible,
            "suggestions": suggestions,
            "file": file,
            "trials": listing.find_job_trials(db, actor, job),
            "result": load_job_result_view(db, actor, story.job),
            "shown_suspects": SUSPECTS,
            "sent_again": sent_again,
        },
    )


@router.post("/ui/jobs/{job}/{verb}")
async def handle_job_action_form(
    request: Request, job: JobPath, verb: str, actor: Write, service: Service
) -> Response:
    """Cancel, pause or resume a job, choose its trial, or learn its task again."""
    inputs = await forms.read_values_of_own_page_form(request)
    recipe = forms.parse_relearning_recipe_input(inputs)
    db, settings = service.db, service.settings

    def apply_requested_action() -> tuple[JobOut, bool]:
        if verb == JobAction.RETRY:
            return retries.retry_job(
                db,
                service.catalogue(),
                actor,
                job,
                recipe,
                NewJobLimits(settings.max_open_jobs, AdmissionLimits.from_settings(settings)),
            )
        if verb == JobAction.CHOOSE:
            _, fresh = trial_selection.choose_trial(
                db, actor, job, forms.parse_form_whole_number(inputs, "trial")
            )
            return jobs.read_job(db, actor, job), fresh
        if verb not in _ACTIONS:
            raise Invalid(
                f"A job cannot be told to {verb[:40]}: cancel, pause, resume, choose and retry "
                f"are possible."
            )
        # Pausing leaves nothing to do for a worker.
        return jobs.apply_job_action(db, actor, job, JobAction(verb)), verb != JobAction.PAUSE

    job_response, ring = await to_thread.run_sync(apply_requested_action)
    if ring:
        service.bell.notify_workers(job_response["id"])
    return RedirectResponse(f"{get_root_path(request.scope)}/ui/jobs/{job_response['id']}", 303)


def _list_allowed_job_actions(job: JobOut) -> list[str]:
    """Return the actions that the table of transitions allows for a job now."""
    state = JobState(job["state"])
    possible = [str(action) for action in _ACTIONS if (state, action) in TRANSITIONS]
    can_retry = (state, JobAction.RETRY) in TRANSITIONS or job["outcome"] == "held"
    error = job["error"]
    # A rejected batch is retained for a retry only if it was held for its data.
    if state is JobState.REJECTED and (error is None or error["code"] != BatchHeldForFindings.code):
        can_retry = False
    return (
        [*possible, "retry"]
        if can_retry and job["kind"] in ("learn", "fetch", "export")
        else possible
    )


def _find_export_download_url(job: JobOut) -> str | None:
    """Return the download URL (path and query) of a finished export job, or None for other jobs."""
    report = dict(job["report"] or {})
    if job["kind"] != "export" or job["state"] != JobState.SUCCEEDED or "format" not in report:
        return None
    return f"versions/{report['version']}/download?format={report['format']}"
