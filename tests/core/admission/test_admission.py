"""The estimate of a job's memory: what it is made of, and what it depends on."""

from dataclasses import replace
from typing import Any

import pytest

from core.admission import admission
from core.admission.admission import (
    ANY,
    FIRST,
    FIXED_BYTES,
    AdmissionLimits,
    JobMemoryEstimate,
    JobTaskAndImageCounts,
    estimate_job_memory,
)
from core.admission.network_size import find_network_size
from core.errors import JobTooLarge
from core.learning.evaluation import evaluate
from core.learning.methods import analytic

CNN, IMAGE = {"name": "small-cnn"}, {"size": 32, "channels": 3}
RECIPE: dict[str, Any] = {
    "method": {"name": "er", "buffer": 500},
    "optimizer": {"name": "sgd", "momentum": 0.9},
    "batch_size": 64,
    "depth": 5,
}
ENTRY: dict[str, Any] = {"family": "plain", "footprint": {"copies": 7.0, "batches": 2.0}}
CATALOGUE = {"methods": {"er": ENTRY, "der-net": {"family": "der-net"}}}


def estimate_memory(
    entry: dict[str, Any] = ENTRY,
    image: Any = IMAGE,
    work: JobTaskAndImageCounts = FIRST,
    **recipe: Any,
) -> JobMemoryEstimate:
    size = find_network_size(CNN, image)
    assert size is not None
    return estimate_job_memory(entry, size, image, {**RECIPE, **recipe}, work)


def test_an_estimate_is_weights_activations_and_the_rest() -> None:
    found = estimate_memory()
    assert found.copies == 8 and found.images == 128
    assert found.weight_bytes == 240_832 * 4 * 8
    assert found.total_bytes == found.weight_bytes + 128 * found.activations * 4 + FIXED_BYTES


@pytest.mark.parametrize(
    ("optimizer", "copies"),
    [
        ({"name": "sgd", "momentum": 0.0}, 7),
        ({"name": "sgd", "momentum": 0.9}, 8),
        ({"name": "adam", "momentum": 0.0}, 9),
        ({"name": "adamw", "momentum": 0.9}, 9),
    ],
    ids=str,
)
def test_an_optimizer_keeps_copies(optimizer: dict[str, Any], copies: float) -> None:
    assert estimate_memory(optimizer=optimizer).copies == copies


def test_a_head_that_learns_alone_needs_no_activations_of_the_backbone() -> None:
    alone = estimate_memory(depth=1, batch_size=4096)
    assert (
        alone.copies == 6
        and alone.activation_bytes < estimate_memory(batch_size=4096).activation_bytes / 2
    )


def test_images_that_are_kept_count_up_to_those_that_there_were() -> None:
    pixels = 3 * 32**2
    assert estimate_memory(work=JobTaskAndImageCounts(1, 100)).image_bytes == 2 * 100 * pixels
    assert estimate_memory(work=JobTaskAndImageCounts(1, 10_000)).image_bytes == 2 * 500 * pixels


def test_what_a_method_keeps_for_each_earlier_task_counts_for_twenty_of_them() -> None:
    growing = {"footprint": {"copies": 7.0, "growing": 2.0}}
    assert [
        estimate_memory(growing, work=JobTaskAndImageCounts(n)).copies for n in (1, 3, 21, 500)
    ] == [
        8,
        12,
        48,
        48,
    ]


def test_a_hyper_parameter_may_stand_for_more_copies() -> None:
    entry = {"footprint": {"copies": 7.0, "copies_with": {"curvature": {"kfac": 20.0}}}}
    assert estimate_memory(entry, method={"name": "er", "curvature": "kfac"}).copies == 21
    assert estimate_memory(entry, method={"name": "er", "curvature": "diagonal"}).copies == 8


ANALYTIC: dict[str, Any] = {
    "family": "plain",
    "footprint": {"copies": 5.0, "columns": "projection"},
}


@pytest.mark.parametrize(("projection", "columns"), [(1000, 1000), (0, 129), (None, 1000)])
def test_second_moments_of_all_tasks_that_a_job_loads_count(
    projection: int | None, columns: int
) -> None:
    method = {"name": "analytic", "projection": projection}
    few, many = (
        estimate_memory(ANALYTIC, work=JobTaskAndImageCounts(tasks), method=method)
        for tasks in (1, 1001)
    )
    assert many.total_bytes - few.total_bytes == 1000 * 8 * columns * (columns + 1) // 2
    assert few.closed_form_memory_bytes == 8 * (
        columns * (columns + 1) // 2 + (6 * columns + 5 * admission.LEFT_OUT) * columns
    )


def test_a_model_with_too_many_tasks_for_its_sums_is_told_the_arithmetic() -> None:
    catalogue: Any = {"methods": {"analytic": ANALYTIC}}
    recipe: Any = {**RECIPE, "method": {"name": "analytic", "projection": 1000}}
    bound = AdmissionLimits(job_bytes=2_000_000_000)
    bound.check_job_memory(catalogue, CNN, IMAGE, recipe, JobTaskAndImageCounts(200))
    with pytest.raises(JobTooLarge) as caught:
        bound.check_job_memory(catalogue, CNN, IMAGE, recipe, JobTaskAndImageCounts(400))
    said = "sums of 400 tasks × 4.0 MB (1,000 columns) and their solution 128.0 MB = 1.7 GB"
    assert said in caught.value.detail and "recipe.method.projection" in caught.value.detail


def test_large_images_are_measured_in_smaller_batches() -> None:
    small = estimate_memory({}, {"size": 512, "channels": 3}, batch_size=1)
    assert small.images == 4


def test_a_network_that_grows_by_a_backbone_with_each_task_reaches_its_bound() -> None:
    bound = AdmissionLimits(max_parameters=1_000_000)
    recipe = {**RECIPE, "method": {"name": "der-net"}}
    bound.check_job_memory(CATALOGUE, CNN, IMAGE, recipe, JobTaskAndImageCounts(4))
    with pytest.raises(JobTooLarge, match="1,204,160 parameters; one may have 1,000,000"):
        bound.check_job_memory(CATALOGUE, CNN, IMAGE, recipe, JobTaskAndImageCounts(5))


def test_the_refusal_has_the_sum_and_what_to_change() -> None:
    with pytest.raises(JobTooLarge) as caught:
        AdmissionLimits(job_bytes=400_000_000).check_job_memory(CATALOGUE, CNN, IMAGE, RECIPE)
    detail = caught.value.detail
    assert (
        "240,832 parameters × 4 bytes × 8 copies" in detail
        and "activations of 256 images" not in detail
    )
    assert "One job may take 0.4 GB here (PERENNIAL_JOB_MEMORY_BYTES)" in detail
    assert caught.value.extra["needed"] == estimate_memory().total_bytes


def test_an_architecture_without_a_known_size_is_left_to_the_bound_of_its_jobs() -> None:
    replace(ANY, max_parameters=1, job_bytes=1).check_job_memory(
        CATALOGUE, {"name": "new"}, IMAGE, RECIPE
    )


def test_the_estimate_has_the_limits_of_the_code_that_it_estimates() -> None:
    # Copied, since admission runs in the API, which never loads torch.
    assert (admission.EVAL_IMAGES, admission.EVAL_PIXELS) == (evaluate.BATCH, evaluate.PIXELS)
    assert admission.LEFT_OUT == analytic.LEFT_OUT
