"""The manifest of a state that a job made."""

from dataclasses import dataclass

from core.contract.architecture import ArchitectureWithHyperParameters, ImageSettings
from core.contract.figures import VersionFigures
from core.contract.jobs.job_result import LearnedNetworkRecord
from core.contract.manifest import DatasetDigests, Manifest, StoredVersionPart
from core.contract.recipe import Recipe
from core.database.tables import Job, Model, Task, Version
from core.recipe.code_version import compute_learning_code_digest

_MEASURED = (*VersionFigures.model_fields, "trainable", "parameters", "steps", "images")


@dataclass(frozen=True)
class LearningJobRows:
    """Database rows of a learning job, its task and its model; `base` is version 0 of the model."""

    model: Model
    task: Task
    job: Job
    base: Version


def build_version_manifest(
    rows: LearningJobRows,
    network_record: LearnedNetworkRecord,
    parts: list[StoredVersionPart],
    number: int | None,
    tasks: list[int],
    parent: int | None = None,
) -> Manifest:
    """Build the manifest of the version that a job made.

    Args:
        network_record: report of the job process.
        parts: stored parts.
        number: number of the version; None for a state that is no version.
        tasks: tasks that it was taught, in order.
        parent: version that it continues; None: that of the job.
    """
    model, job = rows.model, rows.job
    recipe, reported = (
        Recipe.from_json(job.recipe),
        network_record.get_explicitly_set_field_values(),
    )
    optional = {
        "network": network_record.network,
        "init": rows.base.manifest.init,
        "base": rows.base.manifest.base,
        "temperature": network_record.temperature,
        "problem": network_record.problem,
    }
    return Manifest(
        format=1,
        model=model.id,
        name=model.name,
        version=number,
        parent=job.parent_version if parent is None else parent,
        task=rows.task.number,
        tasks=tasks,
        scenario=model.scenario,
        architecture=ArchitectureWithHyperParameters.from_json(model.architecture),
        image=ImageSettings.from_json(model.image),
        normalise=network_record.normalise,
        classes=network_record.classes,
        heads=network_record.heads,
        recipe=recipe,
        method=network_record.method,
        datasets=DatasetDigests(train=rows.task.train_sha256, held_out=rows.task.held_out_sha256),
        seed=recipe.seed,
        threads=network_record.environment.threads,
        code_version=compute_learning_code_digest(),
        environment=network_record.environment,
        parts=parts,
        **{name: reported.get(name) for name in _MEASURED},
        **{name: value for name, value in optional.items() if value is not None},
    )
