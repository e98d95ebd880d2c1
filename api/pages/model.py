"""`/ui/models/{model}`: pending decisions, production, and what was learned and forgotten."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import RedirectResponse, Response

from api.dependencies import Bell, CatalogueOf, Db, Read, Service, Write
from api.pages.parts import forms
from api.pages.parts.actions import build_attention_items
from api.pages.parts.gate_checks import (
    describe_gate_check_limits,
    describe_gate_comparison_with_production,
    list_disabled_gate_checks,
)
from api.pages.parts.heat_map import ROWS, build_accuracy_curves, build_heat_map
from api.pages.parts.live import read_newest_event_cursor
from api.pages.parts.render import get_root_path, render_page
from api.pages.parts.svg import (
    format_precision_coverage_svg_points,
    lay_out_reliability_diagram,
    lay_out_version_tree,
)
from api.pages.rebase import find_rebase_shown_on_model_page
from api.schemas.common import ModelPath
from core.admission import recipe_preview
from core.contract.responses.model import ModelOut
from core.database.session import Database
from core.errors import Invalid
from core.jobs import jobs
from core.lineage.lineage import PRODUCTION
from core.models import model_deletion, models
from core.requests.actor import Actor
from core.versions import aliases, class_changes, metrics
from core.versions.history import VersionHistory, VersionSummaryRow, read_version_history
from core.versions.metrics import MatrixWindow

router = APIRouter(include_in_schema=False)

JOBS = 8
HURT = 0.05
"""Rise of forgetting, in [0, 1], above which a version is shown as harmful."""
# The largest value of PostgreSQL's type integer, which these numbers have.
_MOST = 2**31 - 1
Shown = Annotated[int | None, Query(ge=0, le=_MOST, description="Version of the cell to look into")]
OnTask = Annotated[int | None, Query(ge=1, le=_MOST, description="Task of the cell to look into")]
Last = Annotated[int | None, Query(ge=0, le=_MOST, description="Newest version of the page")]
First = Annotated[int | None, Query(ge=1, le=_MOST, description="First task that has a column")]


@dataclass(frozen=True)
class HeatMapWindow:
    """The window of the heat map, and the cell in it whose details are shown.

    Attributes:
        version, task: those of the cell; None: no cell.
        last: the newest version; None: the newest of all.
        first: the first task with a column; None: see `build_heat_map`.
    """

    version: int | None
    task: int | None
    last: int | None
    first: int | None


async def _gather_heat_map_query_parameters(
    v: Shown = None, t: OnTask = None, last: Last = None, first: First = None
) -> HeatMapWindow:
    return HeatMapWindow(v, t, last, first)


@router.get("/ui/models/{model}")
def show_model_page(
    request: Request,
    model: ModelPath,
    actor: Read,
    db: Db,
    catalogue: CatalogueOf,
    view: Annotated[HeatMapWindow, Depends(_gather_heat_map_query_parameters)],
) -> Response:
    """Show the page of a model."""
    events = read_newest_event_cursor(request, actor)
    model_response = models.read_model(db, catalogue(), actor, model)
    recent = jobs.list_jobs(
        db, actor, jobs.JobFilter(model=model_response["id"]), limit=JOBS, cursor=None
    )["items"]
    waits = build_attention_items(model_response)
    has_relearn_button = any(button.again for one in waits for button in one.buttons)
    suggestions = (
        recipe_preview.suggest_retry_recipes(db, catalogue(), actor, model_response["id"])
        if has_relearn_button
        else []
    )
    context: dict[str, object] = {
        "events": events,
        "model": model_response,
        "jobs": recent,
        "waits": waits,
        "suggestions": suggestions,
    }
    context["rebase"] = find_rebase_shown_on_model_page(db, actor, model_response)
    context |= {
        "v": view.version,
        "t": view.task,
        "limits": describe_gate_check_limits(model_response["gate"]),
        "off": list_disabled_gate_checks(model_response),
    }
    # A model that still fetches its base has no version, so there is nothing to measure.
    if model_response["state"] == "fetching":
        return render_page(request, "model.html", {**context, "history": None})
    history = read_version_history(db, actor, model_response["id"], last=view.last, size=ROWS)
    context |= _load_accuracy_template_variables(db, actor, model_response, history, view.first)
    if view.version is not None and view.task is not None:
        context["cell"] = class_changes.compare_class_accuracies_with_parent(
            db, actor, model_response["id"], view.version, task=view.task
        )
    context |= {"history": history, "last": view.last, "first": view.first}
    return render_page(request, "model.html", context)


def _load_accuracy_template_variables(
    db: Database, actor: Actor, model: ModelOut, history: VersionHistory, first: int | None
) -> dict[str, object]:
    """Return the model page's data from the accuracy matrix, in a fixed number of queries."""
    numbers = [one.number for one in history.versions]
    window = MatrixWindow((min(numbers, default=0), max(numbers, default=0)))
    model_metrics = metrics.read_model_accuracy_metrics(
        db, actor, model["id"], version=PRODUCTION, window=window
    )
    alias_version, by_number = (
        model["aliases"][PRODUCTION],
        {one.number: one for one in history.versions},
    )
    # No version has this number.
    production = -1 if alias_version is None else alias_version
    rolled_back_versions = {
        move.previous
        for move in history.moves
        if move.cause == "rollback" and move.previous is not None
    }
    held_versions = [
        one["version"] for one in model["attention"] if one["kind"] == "held" and one["version"]
    ]
    # The held version is what a person has to judge.
    latest = held_versions[0] if held_versions else history.newest
    current = by_number.get(production)
    measured = model_metrics["summary"]["calibration"]
    return {
        "summary": model_metrics["summary"],
        "reliability": [] if measured is None else lay_out_reliability_diagram(measured["bins"]),
        "coverage": ""
        if measured is None
        else format_precision_coverage_svg_points(measured.get("curve", [])),
        "production": current,
        "checked": describe_gate_comparison_with_production(
            None if current is None or current.number == 0 else current.gate
        ),
        "hurt": _compute_forgetting_rise_if_notable(by_number, production),
        "heat": build_heat_map(
            model_metrics, production=production, left=rolled_back_versions, first=first
        ),
        "curves": build_accuracy_curves(model_metrics, history),
        "tree": lay_out_version_tree(history.versions, history.moves),
        "changes": class_changes.compare_class_accuracies_with_parent(
            db, actor, model["id"], latest
        )
        if latest
        else None,
        "cell": None,
    }


def _compute_forgetting_rise_if_notable(
    shown: Mapping[int, VersionSummaryRow], production: int
) -> float | None:
    """Return how much forgetting rose with the production version; None if by less than `HURT`."""
    now = shown.get(production)
    before = None if now is None or now.parent is None else shown.get(now.parent)
    if now is None or before is None or now.forgetting is None:
        return None
    rise = now.forgetting - (before.forgetting or 0.0)
    return rise if rise >= HURT else None


@router.post("/ui/models/{model}/aliases/production")
async def handle_promote_version_form(
    request: Request, model: ModelPath, actor: Write, db: Db, bell: Bell
) -> Response:
    """Move production to a version."""
    inputs = await forms.read_values_of_own_page_form(request)
    # The version on the page: if production has moved since, the change is refused.
    version = forms.parse_form_whole_number(inputs, "version")
    decision = aliases.AliasMoveReasonAndSeenVersion(
        forms.read_form_reason(inputs), _parse_shown_production(inputs)
    )

    def move_production() -> str | None:
        return aliases.set_alias(db, actor, model, PRODUCTION, version, decision)[1]

    return await apply_model_change_and_redirect(request, model, move_production, bell)


@router.post("/ui/models/{model}/aliases/production/rollback")
async def handle_roll_production_back_form(
    request: Request, model: ModelPath, actor: Write, db: Db, bell: Bell
) -> Response:
    """Move production back to an earlier version."""
    inputs = await forms.read_values_of_own_page_form(request)
    version = forms.parse_form_whole_number(inputs, "version") if inputs.get("version") else None
    decision = aliases.AliasMoveReasonAndSeenVersion(
        forms.read_form_reason(inputs), _parse_shown_production(inputs)
    )

    def roll_back() -> str | None:
        return aliases.roll_alias_back(db, actor, model, PRODUCTION, decision, version)[1]

    return await apply_model_change_and_redirect(request, model, roll_back, bell)


def _parse_shown_production(inputs: dict[str, str]) -> int | None:
    """Return the production version that the sending page showed, or None if the form has none."""
    return forms.parse_form_whole_number(inputs, "production") if inputs.get("production") else None


@router.post("/ui/models/{model}/aliases/production/follow")
async def handle_follow_lineage_form(
    request: Request, model: ModelPath, actor: Write, db: Db, bell: Bell
) -> Response:
    """Let production follow the lineage again."""
    await forms.read_values_of_own_page_form(request)
    return await apply_model_change_and_redirect(
        request,
        model,
        lambda: aliases.let_production_follow_lineage(db, actor, model, PRODUCTION)[1],
        bell,
    )


@router.post("/ui/models/{model}/delete")
async def handle_delete_model_form(
    request: Request, model: ModelPath, actor: Write, service: Service
) -> Response:
    """Delete a model after its name was typed, and show the remaining models."""
    inputs = await forms.read_values_of_own_page_form(request)
    db = service.db

    def require_typed_name_and_delete_model() -> str:
        model_response = models.read_model(db, service.catalogue(), actor, model)
        if inputs.get("name") != model_response["name"]:
            raise Invalid(
                f"The model is deleted only with its name typed as it is: {model_response['name']}."
            )
        # By id: between the two calls, the name could pass to another model.
        model_deletion.delete_model(db, service.store, service.blobs, actor, model_response["id"])
        return model_response["id"]

    deleted_id = await to_thread.run_sync(require_typed_name_and_delete_model)
    return RedirectResponse(f"{get_root_path(request.scope)}/ui?deleted={deleted_id}", 303)


async def apply_model_change_and_redirect(
    request: Request, model: str, change: Callable[[], str | None], bell: Bell
) -> Response:
    """Apply a change, notify the worker of a job that it releases, and show the model again."""
    job = await to_thread.run_sync(change)
    if job is not None:
        bell.notify_workers(job)
    return RedirectResponse(f"{get_root_path(request.scope)}/ui/models/{model}", 303)
