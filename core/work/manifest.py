"""A manifest: what a state of a model is made of, and everything that it was made from."""

from typing import Any

from core.code_version import code_version
from core.db.tables import Job, Model, Task, Version

_MEASURED = (
    *("update_norm", "drift", "changes", "knn_probe", "adp", "forecast"),
    *("trainable", "parameters", "steps", "images"),
)


def manifest(
    model: Model,
    task: Task,
    job: Job,
    base: Version,
    document: dict[str, Any],
    parts: list[dict[str, Any]],
    number: int | None,
    tasks: list[int],
) -> dict[str, Any]:
    """The manifest of what a job made.

    Args:
        base: version 0 of the model.
        document: what the job process said of it.
        parts: `{"name", "type", "sha256", "bytes"}` each.
        number: of the version; None for a state that is none.
        tasks: that it was taught, in order.
    """
    environment = document.get("environment", {})
    content = {
        "format": 1,
        "model": model.id,
        "name": model.name,
        "version": number,
        "parent": job.parent_version,
        "task": task.number,
        "tasks": tasks,
        "scenario": model.scenario,
        "architecture": model.architecture,
        "image": model.image,
        "normalise": document.get("normalise"),
        "classes": document.get("classes"),
        "heads": document.get("heads"),
        "recipe": job.recipe,
        "method": document.get("method"),
        "datasets": {"train": task.train_sha256, "held_out": task.held_out_sha256},
        "seed": job.recipe.get("seed"),
        "threads": environment.get("threads"),
        "code_version": code_version(),
        "environment": environment,
        "parts": parts,
    }
    content |= {name: document.get(name) for name in _MEASURED}
    if document.get("network") is not None:  # what the method made of the architecture's network
        content["network"] = document["network"]
    origin = base.manifest
    return content | {name: origin[name] for name in ("init", "base") if name in origin}
