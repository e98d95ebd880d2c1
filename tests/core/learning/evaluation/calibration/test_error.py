"""The calibration error: beside a slow obvious version, on models without fault, and on ones that
are too sure.
"""

import numpy as np
import pytest
import torch

from core.learning.evaluation.calibration.error import (
    Calibration,
    compute_calibration_error,
    measure_version_calibration,
    sort_predictions_into_probability_bins,
)
from core.learning.evaluation.calibration.held_out import HeldOutLogits

SEEDS = 40


def draw_predictions(n: int, seed: int, sure: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Draw the probabilities and the correctness of a calibrated model, with its logits multiplied
    by `sure` afterwards.
    """
    logits = draw_logits(n, seed)
    probabilities, rows = (logits.values * sure).softmax(1).max(1)
    return probabilities.numpy(), (rows == logits.targets).numpy()


def draw_logits(n: int, seed: int) -> HeldOutLogits:
    generator = torch.Generator().manual_seed(seed)
    values = 2 * torch.randn(n, 5, generator=generator, dtype=torch.float64)
    return HeldOutLogits(
        values, torch.multinomial(values.softmax(1), 1, generator=generator).squeeze(1)
    )


def test_the_raw_error_is_that_of_a_slow_version() -> None:
    probabilities, right = draw_predictions(333, 1)
    order = sorted(range(333), key=lambda i: probabilities[i])
    bins = [order[333 * b // 6 : 333 * (b + 1) // 6] for b in range(6)]
    wanted = (
        sum(abs(sum(probabilities[i] for i in b) - sum(right[i] for i in b)) for b in bins) / 333
    )
    found = compute_calibration_error(probabilities, right)
    assert found.raw == pytest.approx(wanted, abs=1e-12)
    assert [(b.images, b.right) for b in found.bins] == [(len(b), sum(right[b])) for b in bins]
    assert [b.probability for b in found.bins] == pytest.approx(
        [np.mean(probabilities[b]) for b in bins]
    )


@pytest.mark.parametrize(("images", "bins"), [(1, 1), (99, 1), (100, 2), (749, 14), (5000, 15)])
def test_bins_have_fifty_images_at_least(images: int, bins: int) -> None:
    starts = sort_predictions_into_probability_bins(
        np.linspace(0, 1, images), np.ones(images, bool)
    ).starts
    sizes = np.diff(np.append(starts, images))
    assert len(sizes) == bins and sizes.max() - sizes.min() <= 1


def measure_errors(n: int, sure: float) -> list[Calibration]:
    return [
        compute_calibration_error(*draw_predictions(n, seed, sure), seed=seed)
        for seed in range(SEEDS)
    ]


def test_a_model_without_fault_has_zero_in_its_interval() -> None:
    found = measure_errors(150, 1.0)
    assert sum(one.low <= 0 <= one.high for one in found) >= 0.9 * SEEDS
    assert (
        abs(np.mean([one.error for one in found]))
        < 0.01
        < 0.03
        < np.mean([one.raw for one in found])
    )


@pytest.mark.parametrize("sure", [2.0, 0.4])
def test_one_that_is_too_sure_or_not_sure_enough_is_found(sure: float) -> None:
    found = measure_errors(300, sure)
    assert all(one.low > 0 for one in found)
    right = compute_calibration_error(*draw_predictions(100_000, 99, sure)).raw
    assert np.mean([one.low <= right <= one.high for one in found]) >= 0.9


def test_images_do_not_judge_the_temperature_that_was_fitted_to_them() -> None:
    found = [measure_version_calibration(draw_logits(150, seed), 1.0) for seed in range(SEEDS)]
    assert sum(one is not None and one.low <= 0 <= one.high for one in found) >= 0.9 * SEEDS
    logits = draw_logits(400, 3)
    order = torch.randperm(400, generator=torch.Generator().manual_seed(0))
    drawn = HeldOutLogits(logits.values.clone(), logits.targets.clone())
    drawn.values[order[:200]] *= 3  # the halves ask for different temperatures
    told = measure_version_calibration(drawn, 1.0)
    assert told is not None and told.low > 0


def test_of_too_few_images_nothing_is_said() -> None:
    assert measure_version_calibration(draw_logits(49, 0), 1.0) is None
    found = measure_version_calibration(draw_logits(50, 0), 1.0)
    assert found is not None and found.images == 50


def test_the_report_of_a_job_has_it(bench) -> None:
    bench.n_held_out = 60
    learned = bench.learn_task(1, method="finetune")
    told = learned.result["calibration"]
    assert told["images"] == 60 and told["low"] <= told["error"] <= told["high"]
    assert any(
        "calibration error" in line and "held-out images" in line for line in learned.logged()
    )
