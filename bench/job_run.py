"""The product's job, run here and now on a specification that is written as JSON."""

from collections.abc import Callable, Mapping
from typing import Any

from core.contract.document import Document
from core.contract.jobs.job_spec import EarlierTask, LearnJobSpec, LocalVersionPartFile
from core.learning.training import job
from core.learning.training.control import ControlRequestSource

Json = dict[str, Any]


def complete_and_run_job_spec(
    spec: Mapping[str, Any],
    emit: Callable[[Json], None] = lambda event: None,
    control: ControlRequestSource | None = None,
    hook: job.EvaluationHook | None = None,
) -> None:
    """Run the learning job of a specification after filling in omitted fields.

    Raises:
        Exception: as `core.learning.training.job.learn_task`.
    """
    job.learn_task(complete_job_spec(spec), lambda event: emit(event.to_json()), control, hook)


def complete_job_spec(spec: Mapping[str, Any]) -> LearnJobSpec:
    """Fill in the omitted fields of a job specification's manifests and history."""
    model = {name: spec[name] for name in ("architecture", "image", "scenario")}
    versions = {
        name: {
            **spec[name],
            "manifest": {**model, **spec[name]["manifest"]},
            "parts": [
                _select_known_fields(LocalVersionPartFile, part) for part in spec[name]["parts"]
            ],
        }
        for name in ("parent", "base")
    }
    history = [_select_known_fields(EarlierTask, task) for task in spec["history"]]
    return LearnJobSpec.from_json({**spec, **versions, "history": history})


def _select_known_fields(document: type[Document], value: Json) -> Json:
    return {name: value[name] for name in document.model_fields if name in value}
