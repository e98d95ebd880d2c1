"""The warning of a version whose features know more than its head: when it is said, and what it
advises.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from core.contract.jobs.job_result import LearnJobResult
from core.database.tables import Model, StoredJobEvent, Version
from core.publishing.biased_head import find_biased_head_warning
from core.publishing.publish import publish_or_hold_job_result

MODEL = Model(
    name="photos",
    scenario="class",
    architecture={"name": "small-cnn"},
    image={"size": 32, "channels": 3},
)
PROMPTED = {"family": "vpt", "prompts": 3, "deep": True, "tasks": None}


def make_job_result(
    own: int, ncm: int, lda: int | None, total: int = 100, **more: Any
) -> LearnJobResult:
    def build_baseline_counts(correct: int) -> dict[str, Any]:
        return {"all": [correct, total], "own": [own, total], "tasks": {"1": [correct, total]}}

    return LearnJobResult.from_json(
        {
            "classes": [],
            "heads": [],
            "results": [],
            "method": {"name": "finetune"},
            "normalise": {"mean": [0.5], "std": [0.25]},
            "environment": {"torch": "2", "cpu_capability": "x", "threads": 1, "device": "cpu"},
            "steps": 3,
            "images": 24,
            "trainable": 10,
            "parameters": 20,
            "baseline_ncm": build_baseline_counts(ncm),
            "baseline_lda": None if lda is None else build_baseline_counts(lda),
            **more,
        }
    )


def test_it_names_the_better_classifier_both_accuracies_and_the_images() -> None:
    told = find_biased_head_warning(MODEL, 3, make_job_result(48, 71, None), ["head"])
    assert told is not None and told.startswith(
        "The features of version 3 tell the classes apart better than its head does: 71 % by "
        "nearest class mean, 48 % by the head, of the same 100 held-out images. Start a model"
    )
    other = find_biased_head_warning(MODEL, 3, make_job_result(48, 71, 80), ["head"])
    assert other is not None and "80 % by linear discriminants" in other


@pytest.mark.parametrize(
    ("own", "ncm", "total", "said"),
    [
        (71, 60, 100, False),
        (600, 640, 1000, False),  # four points
        (600, 660, 1000, True),
        (12, 15, 20, False),  # fifteen points of twenty images are chance
    ],
)
def test_five_points_that_are_not_chance_are_needed(
    own: int, ncm: int, total: int, said: bool
) -> None:
    assert (
        find_biased_head_warning(MODEL, 1, make_job_result(own, ncm, None, total), []) is not None
    ) == said


def test_nothing_is_said_where_nothing_was_measured() -> None:
    assert (
        find_biased_head_warning(
            MODEL, 1, make_job_result(0, 9, 9, baseline_ncm=None, baseline_lda=None), []
        )
        is None
    )


@pytest.mark.parametrize(
    ("part_types", "more", "rebalance"),
    [
        (["head", "buffer"], {}, True),
        (["head", "exemplars"], {}, True),
        (["head", "curvature"], {}, False),
        (["own", "exemplars"], {"method": {"name": "icarl", "predicts_with": ["own"]}}, False),
        (["head", "buffer"], {"network": PROMPTED}, False),
    ],
    ids=("buffer", "exemplars", "no-images", "no-head", "another-family"),
)
def test_rebalance_is_named_where_a_head_answers_and_images_are_kept(
    part_types, more, rebalance
) -> None:
    told = find_biased_head_warning(MODEL, 2, make_job_result(40, 80, None, **more), part_types)
    assert told is not None
    assert ('Perennial-Recipe: {"rebalance": {"epochs": 5}}' in told) == rebalance
    assert "method `analytic`" in told


def test_another_head_is_named_where_the_method_is_analytic_already() -> None:
    made = {"method": {"name": "analytic", "hyper": {"head": "ncm"}}}
    told = find_biased_head_warning(MODEL, 2, make_job_result(40, 60, 90, **made), [])
    assert told is not None and '{"method": {"name": "analytic", "head": "lda"}}' in told


def test_a_published_version_its_job_and_its_log_say_it(desk: Any) -> None:
    model = desk.model()
    job_id = desk.submit(model)
    folder: Path = desk.result({"head": "h"}, [("new", 1, 48, 100)])
    document = json.loads((folder / "result.json").read_text())
    beside = make_job_result(48, 71, 60).to_json()
    figures = {name: beside[name] for name in ("baseline_ncm", "baseline_lda")}
    (folder / "result.json").write_text(json.dumps({**document, **figures}))
    publish_or_hold_job_result(desk.db, desk.store, desk.claim(), folder)
    (told,) = desk.job(job_id).warnings
    assert told.startswith("The features of version 1 tell the classes apart")
    assert desk.all(Version, model_id=model)[1].warnings == [told]
    assert told in desk.task(job_id).warnings
    events = desk.all(StoredJobEvent, job_id=job_id)
    assert [e.data for e in events if e.type == "log" and told in e.data["message"]] == [
        {"level": "warning", "message": told}
    ]
    assert [e.data["warnings"] for e in events if e.data.get("state") == "succeeded"] == [[told]]
    assert desk.manifests(model)[1]["baseline_ncm"] == figures["baseline_ncm"]
