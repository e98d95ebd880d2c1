"""What a request for a new model asks for, checked and completed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.errors import Invalid
from core.ids import is_name
from core.ingest.names import label_of
from core.protocol.answers.architecture import ArchitectureChoice
from core.protocol.answers.model import Scenario
from core.protocol.answers.model_change import NewModel
from core.protocol.base import ModelBase
from core.protocol.catalogue import Catalogue
from core.protocol.patch import RecipePatch
from core.recipe import start
from core.recipe.architecture import architecture
from core.recipe.images import DECODING, Images, images_of
from core.recipe.resolve import Resolved, resolve
from core.recipe.stored import stored
from core.requests.admission import Admission
from core.requests.default_start import Start, find_start


@dataclass(frozen=True)
class AskedModel:
    """`recipe`: what is stored, a patch over the defaults; `resolved`: the same complete; `classes`: None where
    batches bring them; `notes`: why it starts where it does, for the person who left that open."""

    name: str
    scenario: Scenario
    images: Images
    architecture: ArchitectureChoice
    base: ModelBase
    recipe: RecipePatch
    resolved: Resolved
    classes: list[str] | None
    notes: list[str]


def asked_model(
    catalogue: Catalogue, given: NewModel, admission: Admission, photos: bool = False
) -> AskedModel:
    """What is not given has its default.

    Args:
        photos: whether a model that leaves its base open starts from the one for photos.

    Raises:
        Invalid, InvalidRecipe: a field is wrong.
        JobTooLarge: its network, or a job that learns a batch, is beyond what `admission` takes.
    """
    name, scenario = given["name"], given["scenario"]
    if not is_name(name):
        raise Invalid(
            f"{name!r} cannot be a name: [a-z0-9][a-z0-9._-]{{0,62}}, and not like an id.",
            fields=[{"field": "name", "message": "not a valid name"}],
        )
    begin = find_start(catalogue, given, admission) if photos else Start()
    given_base = given.get("base") or begin.base
    asked_architecture: str | Mapping[str, Any] = given.get("architecture") or start.default_architecture(
        given_base
    )
    images = images_of(catalogue, asked_architecture, given.get("image") or {})
    images = replace(images, image={**images.image, "decoding": DECODING})
    complete = architecture(catalogue, scenario, asked_architecture, images.image)
    base = given_base or start.default_base(complete)
    recipe = start.new_recipe(catalogue, stored(given.get("recipe") or {}), base)
    resolved = resolve(catalogue, scenario, recipe, architecture=complete)
    admission.check_job(catalogue, complete, images.image, resolved.recipe)
    classes = _classes(scenario, given.get("classes"))
    return AskedModel(name, scenario, images, complete, base, recipe, resolved, classes, begin.notes)


def _classes(scenario: str, classes: list[str] | None) -> list[str] | None:
    if classes is None:
        return None
    if scenario != "data":
        raise Invalid(
            f"classes can be fixed in the data scenario only; in the {scenario} scenario they come with tasks.",
            fields=[{"field": "classes", "message": "only in the data scenario"}],
        )
    clean = [label_of(text, "classes") for text in classes]
    if len(set(clean)) != len(clean):
        raise Invalid(
            "classes names a class twice.", fields=[{"field": "classes", "message": "duplicate class"}]
        )
    return sorted(clean)
