"""Offsets of classes by left-out answers: none where classes are equal, and the best single β where
they are not.
"""

import pytest
import torch
from torch.nn import functional

from core.learning.analytic.offsets import fit_score_offsets_by_class

COUNTS = torch.tensor([120, 6, 6, 0])


def draw_scores(counts: torch.Tensor, lead: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw noisy scores, in which the first class is `lead` ahead, and labels."""
    labels = torch.arange(len(counts)).repeat_interleave(counts)
    noise = torch.randn(
        len(labels), len(counts), generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    scores = functional.one_hot(labels, len(counts)) + 0.5 * noise
    scores[:, 0] += lead
    return scores, labels


def test_equal_classes_have_none() -> None:
    scores, labels = draw_scores(torch.tensor([9, 9, 0, 9]), 0.5)
    assert torch.equal(
        fit_score_offsets_by_class(scores, labels, torch.tensor([9, 9, 0, 9])),
        torch.zeros(4, dtype=torch.float64),
    )


@pytest.mark.parametrize(("lead", "expected"), [(-1.0, False), (1.0, True)])
def test_a_large_class_is_only_ever_put_back(lead: float, expected: bool) -> None:
    found = fit_score_offsets_by_class(*draw_scores(COUNTS, lead), COUNTS)
    assert bool((found != 0).any()) is expected
    assert float(found[0]) <= float(found[1]) == float(found[2])


def test_no_other_slope_and_scale_answer_better() -> None:
    scores, labels = draw_scores(COUNTS, 1.0)
    weights = 1 / COUNTS.double()[labels]

    def compute_least_loss(offsets: torch.Tensor) -> float:
        centred = scores - scores.mean(1, keepdim=True)
        each = [
            functional.cross_entropy(scale * (centred + offsets), labels, reduction="none")
            for scale in torch.logspace(-1, 1, 401, dtype=torch.float64)
        ]
        return float(min((one * weights).sum() for one in each))

    found = fit_score_offsets_by_class(scores, labels, COUNTS)
    assert all(
        compute_least_loss(found) <= compute_least_loss(share * found)
        for share in (0, 0.5, 0.9, 1.1, 2)
    )


def test_a_class_without_images_has_none() -> None:
    scores, labels = draw_scores(COUNTS, 1.0)
    found = fit_score_offsets_by_class(scores, labels, COUNTS)
    assert float(found[0]) < 0 and float(found[3]) == 0


def test_classes_of_other_heads_say_nothing() -> None:
    scores, labels = draw_scores(COUNTS, 1.0)
    apart = torch.cat([scores, torch.full_like(scores[:, :1], -torch.inf)], 1)
    counts = torch.cat([COUNTS, torch.tensor([50])])
    found = fit_score_offsets_by_class(apart, labels, counts)
    assert bool(torch.isfinite(found).all()) and float(found[1] - found[0]) > 0


def test_without_examples_there_are_none() -> None:
    nothing = torch.zeros(0, 4, dtype=torch.float64)
    assert not fit_score_offsets_by_class(nothing, torch.zeros(0, dtype=torch.int64), COUNTS).any()


@pytest.mark.parametrize("unit", [0.01, 1.0, 300.0])
def test_the_offset_is_that_of_the_best_slope_whatever_the_unit_of_scores(unit: float) -> None:
    scores, labels = draw_scores(COUNTS, 1.0)
    found = float(fit_score_offsets_by_class(unit * scores, labels, COUNTS)[0]) / unit
    assert found == pytest.approx(find_best_offset(scores, labels), rel=1e-3)


def find_best_offset(scores: torch.Tensor, labels: torch.Tensor) -> float:
    """Find the offset of the largest class by trying scales and slopes on finer and finer grids."""
    sizes = COUNTS.clamp(min=1).double().log() - COUNTS[COUNTS > 0].double().log().mean()
    sizes = sizes * (COUNTS > 0)
    weights = 1 / COUNTS.double()[labels]
    scale, slope, reach = 1.0, 1.0, 1.0
    for _ in range(30):
        steps = reach * torch.linspace(-1, 1, 9, dtype=torch.float64)
        tried = [(scale + a, slope + b) for a in steps.tolist() for b in steps.tolist()]
        losses = [
            functional.cross_entropy(a * scores - b * sizes, labels, reduction="none") @ weights
            for a, b in tried
        ]
        scale, slope = tried[int(torch.stack(losses).argmin())]
        reach *= 0.7
    return float(-slope / scale * sizes[0])
