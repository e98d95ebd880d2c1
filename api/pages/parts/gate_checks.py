"""The gate's checks as the page of a model shows them, and the form that switches them on."""

from anyio import to_thread
from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from api.dependencies import CatalogueOf, Db, Write
from api.pages.parts import forms
from api.pages.parts.render import get_root_path
from api.schemas.common import ModelPath
from core.contract.gate import Check, GateOut, Verdict
from core.contract.responses.model import ModelOut
from core.contract.responses.model_change import ModelChange
from core.lineage.checks import CHECKS
from core.models import models

router = APIRouter(include_in_schema=False)

_WORDS: dict[Check, str] = {
    "forgotten": "forgotten ≤ {:g} % of the held-out images of earlier tasks",
    "confused": "≤ {:g} % of them called by a new class",
    "class_lost": "no class of them down to {:g} % right",
    "drifted": "drifted ≤ {:g} % from the best of the last versions, on each task",
    "learned_nothing": "more than {:g} % right of the batch's new classes",
    "features_collapsed": "features at most {:g} points worse than the best of the last versions",
}


def describe_gate_check_limits(gate: GateOut) -> list[str]:
    """Describe the enabled gate checks of a model with their limits."""
    limits = {name: gate.get(name) for name in CHECKS}
    return [_WORDS[name].format(100 * limit) for name, limit in limits.items() if limit is not None]


def list_disabled_gate_checks(model: ModelOut) -> list[str]:
    """List the gate checks that a model has disabled."""
    return [name for name in CHECKS if model["gate"].get(name) is None]


def describe_gate_comparison_with_production(gate: Verdict | None) -> list[str]:
    """Describe the gate's comparison of a version in sentences; empty without such checks."""
    if gate is None:
        return []
    by_name = {check["name"]: check for check in gate["checks"]}
    forgotten = by_name.get("forgotten")
    if forgotten is None:
        return []
    if "not_measured" in forgotten:
        return [f"It was not compared with the version before: {forgotten['not_measured']}."]
    visible, confused = gate.get("visible"), by_name.get("confused")
    # What it took for a new class is no loss among the classes that both versions know.
    confusion_details = (
        [confused["detail"]] if confused is not None and confused.get("negative") else []
    )
    return [forgotten["detail"], *confusion_details, *([visible["detail"]] if visible else [])]


@router.post("/ui/models/{model}/checks")
async def handle_enable_all_checks_form(
    request: Request, model: ModelPath, actor: Write, db: Db, catalogue: CatalogueOf
) -> Response:
    """Enable all gate checks of a model with the limits of a new one, and show the model."""
    # Its fields do not matter: this checks that a page of this service sent it.
    await forms.read_values_of_own_page_form(request)
    change: ModelChange = {"gate": {"checks": "on"}}
    await to_thread.run_sync(lambda: models.change_model(db, catalogue(), actor, model, change))
    return RedirectResponse(f"{get_root_path(request.scope)}/ui/models/{model}#rules-title", 303)
