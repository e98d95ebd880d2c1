"""`/ui/models/new`: create a model with its name, scenario, base and gate.

A link may fill in these inputs, as in a warning that recommends a new model based on another
model's version.
"""

from typing import Annotated, cast

from anyio import to_thread
from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import RedirectResponse, Response

from api.dependencies import CatalogueOf, Config, Service, Write
from api.pages.parts import forms
from api.pages.parts.render import get_root_path, render_page
from core.admission.admission import AdmissionLimits
from core.bases import pretrained
from core.contract.catalogue import RecipeCatalogue
from core.contract.gate import GateLimits
from core.contract.patch import ArchitectureIn
from core.contract.responses.model import ModelOut, Scenario
from core.contract.responses.model_change import NewModel
from core.errors import Invalid, PerennialError
from core.models import models
from core.models.new_model import NewModelAdmissionLimits
from core.packaged import imagenet_base, packaged_base
from core.requests.resources import UseCaseResources
from perennial.characters import validate_and_normalise_reason

router = APIRouter(include_in_schema=False)

PATH = "/ui/models/new"
SCENARIOS = {
    "class": "each batch brings new classes; one head tells all of them apart",
    "data": "the classes stay, and batches bring new samples of them",
    "task": "each batch is a task with a head of its own, which is named when images are predicted",
}
GATES = (
    ("max_forgetting", "Forgetting, at most (percent)", "such as 10"),
    ("min_new_task", "Accuracy on the new task, at least (percent)", "such as 80"),
    ("min_acc", "Mean accuracy over all tasks, at least (percent)", "such as 75"),
)
"""Limits of the gate: name, label, example."""
Filled = Annotated[str, Query(max_length=63, description="What a link has filled in")]


async def _gather_new_model_query_parameters(
    name: Filled = "",
    scenario: Filled = "",
    base: Filled = "",
    model: Filled = "",
    version: Filled = "",
) -> dict[str, str]:
    values = {
        "name": name,
        "scenario": scenario,
        "base": base,
        "model": model,
        "version": version,
    }
    return {key: value for key, value in values.items() if value}


@router.get(PATH)
def show_new_model_form(
    request: Request,
    actor: Write,
    catalogue: CatalogueOf,
    settings: Config,
    inputs: Annotated[dict[str, str], Depends(_gather_new_model_query_parameters)],
) -> Response:
    """Show the form that creates a model."""
    del actor
    photos = pretrained.PretrainedWeightsPolicy.from_settings(settings).photos
    return _render_model_form(request, catalogue(), photos, inputs)


@router.post(PATH)
async def handle_create_model_form(request: Request, actor: Write, service: Service) -> Response:
    """Create a model and show it, or show the form again with an error beside each invalid
    input.
    """
    inputs = await forms.read_values_of_own_page_form(request)
    db = service.db
    catalogue_value = await to_thread.run_sync(service.catalogue)
    bounds = AdmissionLimits.from_settings(service.settings)
    terms = pretrained.PretrainedWeightsPolicy.from_settings(service.settings)

    def create_model_from_form() -> ModelOut:
        new_model = _parse_model_form(inputs)
        if inputs.get("base") == "version":
            source = models.read_model(db, catalogue_value, actor, inputs.get("model", ""))
            # Weights of a version fit only its own architecture and image format.
            size, channels = source["image"]["size"], source["image"]["channels"]
            new_model["architecture"] = cast(ArchitectureIn, dict(source["architecture"]))
            new_model["image"] = {"size": size, "channels": channels}
        resources = UseCaseResources(db, service.blobs, catalogue_value)
        return models.create_model(
            resources, actor, new_model, None, NewModelAdmissionLimits(bounds, terms)
        )[0]

    try:
        model_response = await to_thread.run_sync(create_model_from_form)
    except PerennialError as error:
        return _render_model_form(request, catalogue_value, terms.photos, inputs, error)
    if model_response["job"] is not None:
        service.bell.notify_workers(model_response["job"])
    return RedirectResponse(f"{get_root_path(request.scope)}/ui/models/{model_response['id']}", 303)


def _parse_model_form(inputs: dict[str, str]) -> NewModel:
    """Parse the form for a new model into the API's request.

    Raises:
        Invalid: an input is invalid in a way that only a form can be.
    """
    scenario = inputs.get("scenario", "")
    if scenario not in SCENARIOS:
        raise _build_field_error("scenario", f"must be one of {', '.join(SCENARIOS)}")
    new_model: NewModel = {
        "name": inputs.get("name", ""),
        "scenario": cast(Scenario, scenario),
        "gate": _parse_gate_limits(inputs),
    }
    try:
        # Browsers send the line ends of a text area as CRLF.
        new_model["description"] = (
            validate_and_normalise_reason(inputs.get("description", "").replace("\r\n", "\n"))
            or None
        )
    except ValueError as error:
        raise _build_field_error("description", str(error)) from None
    return cast(NewModel, {**new_model, **_parse_base_choice(inputs)})


def _parse_base_choice(inputs: dict[str, str]) -> dict[str, object]:
    """Return the fields of a new model's request that choose its starting weights.

    Raises:
        Invalid: the choice is unknown, or contradicts another input.
    """
    base = inputs.get("base", "packaged")
    # Two contradictory choices are an error: it is not clear which one was meant.
    if inputs.get("timm") and base != "timm":
        raise _build_field_error(
            "base", "names no weights of timm, and a name of them is filled in: choose one of both"
        )
    if inputs.get("model") and base != "version":
        raise _build_field_error(
            "base", "names no other model, and one is filled in: choose one of both"
        )
    if base == "timm":
        if not inputs.get("timm"):
            raise _build_field_error("architecture", "choose a name of the list")
        return {"architecture": f"timm/{inputs['timm'].removeprefix('timm/')}"}
    if base == "version":
        return {
            "base": {
                "model": inputs.get("model", ""),
                "version": forms.parse_form_whole_number(inputs, "version"),
            }
        }
    if base == "random":
        return {"base": "random"}
    if base == "small":
        return {"base": packaged_base.PACKAGED}
    if base != "packaged":
        raise _build_field_error("base", "must be packaged, small, timm, version or random")
    return {}


def _parse_gate_limits(inputs: dict[str, str]) -> GateLimits:
    limits = {}
    for name, _, _ in GATES:
        text = inputs.get(name, "").removesuffix("%").strip()
        if not text:
            continue
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        # Written so that nan is refused, too: every comparison with it is false.
        if not 0 <= value <= 100:
            raise _build_field_error(f"gate.{name}", "must be a number from 0 to 100")
        limits[name] = value / 100
    return cast(GateLimits, limits)


def _build_field_error(field: str, message: str) -> Invalid:
    return Invalid(
        f"{field.rpartition('.')[2].replace('_', ' ')} {message}.",
        fields=[{"field": field, "message": message}],
    )


def _render_model_form(
    request: Request,
    catalogue: RecipeCatalogue,
    photos: bool,
    inputs: dict[str, str],
    error: PerennialError | None = None,
) -> Response:
    context = {
        "given": inputs,
        "errors": {one["field"]: one["message"] for one in error.fields} if error else {},
        "said": error.detail if error else None,
        "scenarios": SCENARIOS,
        "gates": GATES,
        "photos": photos and not imagenet_base.explain_missing_imagenet_base(),
        "recommended": catalogue["recommended"],
        "pretrained": sorted(catalogue["pretrained"]),
    }
    return render_page(request, "new.html", context, error.status if error else 200)
