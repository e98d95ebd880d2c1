"""Rows of the database with defaults for the columns that a test does not set."""

from typing import Any

from core.contract.manifest import Manifest
from core.database.tables import Job, Model, Task, Version, VersionPart

MANIFEST = Manifest.from_json(
    {"scenario": "class", "architecture": {"name": "mlp"}, "image": {"size": 8, "channels": 3}}
)


def make_model_row(model_id: str, owner_id: str, name: str = "birds", **values: Any) -> Model:
    usual = {
        "scenario": "class", "architecture": {"name": "mlp"}, "image": {"size": 8, "channels": 3}, "base": "random",
        "recipe": {}, "gate": {}, "keep_training_data": False, "held_out": "keep", "warnings": [], "created_at": 0.0,
    }  # fmt: skip
    return Model(id=model_id, owner_id=owner_id, name=name, **{**usual, **values})


def make_task_row(task_id: str, model_id: str, number: int = 1, **values: Any) -> Task:
    usual = {
        "sha256": "0" * 64, "bytes": 3, "media_type": "zip", "classes": {}, "report": {}, "warnings": [],
        "created_at": 0.0,
    }  # fmt: skip
    return Task(id=task_id, model_id=model_id, number=number, **{**usual, **values})


def make_job_row(
    job_id: str, model_id: str, owner_id: str, task_id: str, number: int = 1, **values: Any
) -> Job:
    """Make a job of the task `number`, at its place in the lineage."""
    usual = {
        "state": "queued",
        "recipe_override": {},
        "recipe": {},
        "progress": {},
        "created_at": 0.0,
    }
    of = {
        "model_id": model_id,
        "owner_id": owner_id,
        "task_id": task_id,
        "task_number": number,
        "place": number,
    }
    return Job(id=job_id, **{**of, **usual, **values})


def make_version_row(version_id: str, model_id: str, number: int = 1, **values: Any) -> Version:
    usual = {
        "status": "published", "gate": {}, "manifest": MANIFEST, "bytes": 0, "bytes_new": 0, "created_at": 0.0,
    }  # fmt: skip
    return Version(id=version_id, model_id=model_id, number=number, **{**usual, **values})


def make_part_row(version_id: str, name: str, sha256: str, size: int, **values: Any) -> VersionPart:
    """Make a part whose type is its name."""
    of = {"version_id": version_id, "name": name, "type": name, "position": 0}
    return VersionPart(sha256=sha256, bytes=size, **{**of, **values})
