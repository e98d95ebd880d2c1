"""Checks of architectures against the catalogue."""

from collections.abc import Mapping
from typing import Any, cast

from core.contract.catalogue import RecipeCatalogue
from core.contract.responses.architecture import ArchitectureChoice, ImageOut
from core.errors import Invalid
from core.recipe.pretrained import (
    ARCHITECTURE,
    SHORT,
    find_image_settings_unfit_for_weights,
    find_pretrained_weights_of_architecture,
)
from core.recipe.schema import (
    FieldError,
    describe_recipe_errors,
    find_json_schema_errors,
    list_first_field_errors,
)
from core.text.nearest import list_schema_property_paths
from core.text.plain import describe_allowed_names


def complete_architecture(
    catalogue: RecipeCatalogue,
    scenario: str,
    requested_architecture: str | Mapping[str, Any],
    image: ImageOut,
) -> ArchitectureChoice:
    """Complete an architecture with default hyper-parameters: `{"name": …, …}`.

    `timm/NAME` is a short form for an architecture of timm.

    Raises:
        Invalid: the architecture is unknown, has bad hyper-parameters, or does not fit the scenario
            or the image.
    """
    weights = find_pretrained_weights_of_architecture(catalogue, requested_architecture)
    # A copy, since `pop` must not change the request.
    hyper_parameters = dict(
        _expand_architecture_name_to_object(requested_architecture)
        if isinstance(requested_architecture, str)
        else requested_architecture
    )
    name = hyper_parameters.pop("name", None)
    architectures = catalogue["architectures"]
    if not isinstance(name, str) or name not in architectures:
        unknown = f"unknown architecture; {describe_allowed_names(name, sorted(architectures))}"
        raise _build_architecture_error([("architecture.name", unknown)], "Unknown architecture")
    entry = architectures[name]
    hyper = {**entry.get("defaults", {}), **hyper_parameters}
    known_fields = [
        f"architecture.{path}" for path in ("name", *list_schema_property_paths(entry["schema"]))
    ]
    # Collected instead of raised, so that one response names every wrong field.
    errors = list(find_json_schema_errors(entry["schema"], hyper, "architecture", known_fields))
    if scenario not in entry.get("scenarios", [scenario]):
        errors.append(("architecture.name", f"{name} does not work in the {scenario} scenario"))
    smallest = entry.get("min_size") or 1
    if image["size"] < smallest:
        errors.append(("image.size", f"{name} needs images of at least {smallest} pixels"))
    if weights is not None:
        errors += find_image_settings_unfit_for_weights(weights, image)
    if errors:
        raise _build_architecture_error(errors, "Unusable architecture")
    return cast(ArchitectureChoice, {"name": name, **hyper})


def _expand_architecture_name_to_object(architecture_name: str) -> Mapping[str, str]:
    if architecture_name.startswith(SHORT):
        return {"name": ARCHITECTURE, "model": architecture_name.removeprefix(SHORT)}
    return {"name": architecture_name}


def _build_architecture_error(errors: list[FieldError], what: str) -> Invalid:
    return Invalid(describe_recipe_errors(errors, what), fields=list_first_field_errors(errors))
