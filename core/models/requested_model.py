"""The request for a new model, checked and completed with defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.admission.admission import AdmissionLimits
from core.contract.base import ModelBase
from core.contract.catalogue import RecipeCatalogue
from core.contract.patch import RecipePatch
from core.contract.responses.architecture import ArchitectureChoice
from core.contract.responses.model import Scenario
from core.contract.responses.model_change import NewModel
from core.errors import Invalid
from core.ids import is_allowed_model_or_alias_name
from core.ingest.names import check_and_normalise_class_label
from core.models.adoption import (
    AdoptedClassifier,
    complete_adoption_request,
    require_method_usable_after_adoption,
)
from core.models.default_base import ReplacementOfDefaultBase, choose_larger_base_for_photos
from core.recipe import model_defaults
from core.recipe.architecture import complete_architecture
from core.recipe.images import DECODING, ImageFormatAndNormalisation, resolve_image_settings
from core.recipe.problem import resolve_requested_problem
from core.recipe.resolve import ResolvedRecipe, resolve_recipe
from core.recipe.stored_patch import build_stored_recipe_patch


@dataclass(frozen=True)
class CheckedModelRequest:
    """A request for a new model after checking, with its defaults filled in.

    Attributes:
        request: the request as it came, with settings that need no completion.
        recipe: patch over the defaults, as stored.
        resolved_recipe: the complete recipe.
        classes: fixed class names; None where batches bring them.
        notes: why the model starts where it does, for a person who left that open.
        problem: what it predicts; None is classification.
        adopted: classifier that becomes its version 1; None for any other start.
    """

    request: NewModel
    name: str
    scenario: Scenario
    images: ImageFormatAndNormalisation
    architecture: ArchitectureChoice
    base: ModelBase
    recipe: RecipePatch
    resolved_recipe: ResolvedRecipe
    classes: list[str] | None
    notes: list[str]
    problem: str | None = None
    adopted: AdoptedClassifier | None = None


def check_and_complete_model_request(
    catalogue: RecipeCatalogue,
    request: NewModel,
    admission: AdmissionLimits,
    photos: bool = False,
    adopted: AdoptedClassifier | None = None,
) -> CheckedModelRequest:
    """Check the request for a new model and fill in defaults.

    Args:
        photos: start from the base for photos if the request names no base.
        adopted: the classifier that the request names as its base.

    Raises:
        Invalid, InvalidRecipe: a field is wrong.
        JobTooLarge: the network, or a job that learns a batch, exceeds the limits of `admission`.
    """
    name, scenario = request["name"], request["scenario"]
    if not is_allowed_model_or_alias_name(name):
        raise Invalid(
            f"{name!r} cannot be a name: [a-z0-9][a-z0-9._-]{{0,62}}, and not like an id.",
            fields=[{"field": "name", "message": "not a valid name"}],
        )
    if adopted is not None:
        request = complete_adoption_request(request, adopted)
    begin = (
        choose_larger_base_for_photos(catalogue, request, admission)
        if photos
        else ReplacementOfDefaultBase()
    )
    given_base = request.get("base") or begin.base
    asked_architecture: str | Mapping[str, Any] = request.get(
        "architecture"
    ) or model_defaults.choose_default_architecture(given_base)
    images = resolve_image_settings(catalogue, asked_architecture, request.get("image") or {})
    # Stored with the model, so that later rules never change the pixels of its images.
    images = replace(images, image={**images.image, "decoding": DECODING})
    complete = complete_architecture(catalogue, scenario, asked_architecture, images.image)
    base = given_base or model_defaults.choose_default_base_weights(complete)
    recipe = model_defaults.build_recipe_of_new_model(
        catalogue, build_stored_recipe_patch(request.get("recipe") or {}), base
    )
    problem = resolve_requested_problem(catalogue, request.get("problem"))
    resolved = resolve_recipe(catalogue, scenario, recipe, architecture=complete, problem=problem)
    if adopted is not None:
        require_method_usable_after_adoption(catalogue, resolved.recipe)
    # Checked here too, so that nobody uploads a batch for a model whose jobs would all be refused.
    admission.check_job_memory(catalogue, complete, images.image, resolved.recipe)
    classes = _check_and_normalise_fixed_classes(scenario, request.get("classes"))
    return CheckedModelRequest(
        request,
        name,
        scenario,
        images,
        complete,
        base,
        recipe,
        resolved,
        classes,
        begin.notes,
        problem,
        adopted,
    )


def _check_and_normalise_fixed_classes(
    scenario: str, classes: list[str] | None
) -> list[str] | None:
    if classes is None:
        return None
    if scenario != "data":
        raise Invalid(
            f"classes can be fixed in the data scenario only; in the {scenario} scenario they come "
            f"with tasks.",
            fields=[{"field": "classes", "message": "only in the data scenario"}],
        )
    # By the rule for labels of batches, with which these names are compared.
    clean = [check_and_normalise_class_label(text, "classes") for text in classes]
    # Compared after cleaning, which may turn two spellings into one name.
    if len(set(clean)) != len(clean):
        raise Invalid(
            "classes names a class twice.",
            fields=[{"field": "classes", "message": "duplicate class"}],
        )
    return sorted(clean)
