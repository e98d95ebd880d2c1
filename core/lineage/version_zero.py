"""Version 0 of a model: the start of its first task, and the first target of its aliases."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from core.contract.architecture import ArchitectureWithHyperParameters, ImageSettings, Normalisation
from core.contract.manifest import BaseOrigin, Manifest, RandomWeightsOrigin, StoredVersionPart
from core.contract.pretrained import PretrainedWeights
from core.database import owner_events
from core.database.tables import FetchedPretrainedWeights, Model, Version, VersionPart
from core.ids import new_id
from core.lineage.lineage import LATEST, PRODUCTION, AliasMoveOrigin, point_alias_to_version
from core.packaged.packaged_base import PREFIX

Origin = dict[str, RandomWeightsOrigin | BaseOrigin | None]
"""Origin of the weights as in the manifest: `init` for random ones, `base`, or both."""


@dataclass(frozen=True)
class VersionZeroPartsAndOrigin:
    """Initial weights of a model for its version 0: parts, origin and pixel statistics.

    Attributes:
        parts: parts whose blobs are stored; empty for random weights.
        origin: origin of the weights.
        normalise: pixel statistics of the base.
    """

    parts: Sequence[StoredVersionPart]
    origin: Origin
    normalise: Normalisation | None


def add_version_zero(
    session: Session,
    model: Model,
    start: VersionZeroPartsAndOrigin,
    move_origin: AliasMoveOrigin,
    *,
    seed: int,
    now: float,
) -> Version:
    """Add a model's version 0 with its parts and aliases to the database.

    Args:
        start: weights of the version; the caller holds the lock on references
            (`core.retention.references.lock_blob_references_against_deletion`).
        seed: seed of the model's recipe.
        now: seconds since 1970.
    """
    # Named only where it is not the default, so that older manifests keep their bytes.
    problem = {} if model.problem is None else {"problem": model.problem}
    manifest = Manifest(
        format=1,
        model=model.id,
        name=model.name,
        version=0,
        parent=None,
        task=None,
        tasks=[],
        scenario=model.scenario,
        architecture=ArchitectureWithHyperParameters.from_json(model.architecture),
        image=ImageSettings.from_json(model.image),
        normalise=start.normalise,
        classes=model.classes or [],
        heads=[],
        seed=seed,
        parts=list(start.parts),
        **start.origin,
        **problem,
    )
    version = add_version_without_job(session, model, manifest, start.parts, now)
    # From here on, callers rely on both aliases (`core.lineage.batch_outlook`).
    for alias in (LATEST, PRODUCTION):
        point_alias_to_version(session, model, alias, 0, now, move_origin)
    return version


def add_version_without_job(
    session: Session,
    model: Model,
    manifest: Manifest,
    parts: Sequence[StoredVersionPart],
    now: float,
) -> Version:
    """Add a published version that no job made to the database, with its parts.

    Args:
        manifest: its manifest, with its number, its parent and its task.
        parts: its parts; bytes of those that version 0 has count there.
        now: seconds since 1970.
    """
    assert manifest.version is not None, "the manifest of a version has its number"
    version = Version(
        id=new_id("ver"),
        model_id=model.id,
        number=manifest.version,
        parent=manifest.parent,
        task_number=manifest.task,
        job_id=None,
        status="published",
        # Nothing was learned here that a gate could judge.
        gate={"passed": True, "checks": []},
        manifest=manifest,
        bytes=sum(part.bytes for part in parts),
        bytes_new=0,
        created_at=now,
    )
    session.add(version)
    owner_events.collect_owner_and_webhook_events_of_version(session, model, version, now)
    # The rows of parts refer to this one.
    session.flush()
    for position, part in enumerate(parts):
        session.add(
            VersionPart(
                version_id=version.id, position=position, **part.get_explicitly_set_field_values()
            )
        )
    return version


def build_pretrained_weights_part_and_origin(
    weights: PretrainedWeights, stored: FetchedPretrainedWeights
) -> tuple[StoredVersionPart, Origin]:
    """Build version 0's part of pretrained weights, and describe their origin for the manifest."""
    assert stored.sha256 is not None and stored.bytes is not None, "the weights were brought"
    part = StoredVersionPart(name="base", type="base", sha256=stored.sha256, bytes=stored.bytes)
    # A packaged base is stored under its own name, which is no repository of the Hub.
    is_packaged = stored.repository.startswith(PREFIX)
    origin = BaseOrigin(
        name=stored.repository if is_packaged else weights.name,
        repository=None if is_packaged else stored.repository,
        revision=stored.revision,
        licence=weights.licence,
        sha256=stored.sha256,
        bytes=stored.bytes,
    )
    return part, {"base": origin}


def find_pixel_statistics_of_weights(
    weights: PretrainedWeights, model: Model
) -> Normalisation | None:
    """Find the pixel mean and standard deviation that pretrained weights expect.

    Return None if the model's images have other channels.
    """
    if len(weights.mean) != model.image["channels"]:
        return None
    return Normalisation(mean=weights.mean, std=weights.std)
