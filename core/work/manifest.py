"""The manifest of a state that a job made."""

from core.code_version import code_version
from core.db.tables import Job, Model, Task, Version
from core.protocol.architecture import Architecture, Image
from core.protocol.figures import Figures
from core.protocol.job_result import LearnedNetwork
from core.protocol.manifest import Datasets, Manifest, StoredPart
from core.protocol.recipe import Recipe

_MEASURED = (*Figures.model_fields, "trainable", "parameters", "steps", "images")


def build_manifest(
    model: Model,
    task: Task,
    job: Job,
    base: Version,
    made: LearnedNetwork,
    parts: list[StoredPart],
    number: int | None,
    tasks: list[int],
) -> Manifest:
    """Return the manifest of what a job made.

    Args:
        base: version 0 of the model.
        made: report of the job process.
        parts: stored parts.
        number: number of the version; None for a state that is no version.
        tasks: tasks that it was taught, in order.
    """
    recipe, reported = Recipe.from_json(job.recipe), made.get_given_fields()
    optional = {
        "network": made.network,
        "init": base.manifest.init,
        "base": base.manifest.base,
        "temperature": made.temperature,
    }
    return Manifest(
        format=1,
        model=model.id,
        name=model.name,
        version=number,
        parent=job.parent_version,
        task=task.number,
        tasks=tasks,
        scenario=model.scenario,
        architecture=Architecture.from_json(model.architecture),
        image=Image.from_json(model.image),
        normalise=made.normalise,
        classes=made.classes,
        heads=made.heads,
        recipe=recipe,
        method=made.method,
        datasets=Datasets(train=task.train_sha256, held_out=task.held_out_sha256),
        seed=recipe.seed,
        threads=made.environment.threads,
        code_version=code_version(),
        environment=made.environment,
        parts=parts,
        **{name: reported.get(name) for name in _MEASURED},
        **{name: value for name, value in optional.items() if value is not None},
    )
