"""Factors in fewer bytes: what each tier takes, what it keeps, and that storing it again changes
nothing.
"""

import pytest
import torch

from core.learning.curvature import factor
from core.learning.curvature.factor import (
    DenseFactor,
    LowRankFactor,
    UncorrelatedPixelsFactor,
    fit_factor_to_byte_limit,
)

TIERS = ("full", "packed", "packed bf16", "low rank", "uncorrelated")
CHANNELS, KERNEL = 20, 9
W = CHANNELS * KERNEL + 1


def draw_matrix(seed=0, w=W, dtype=torch.float32):
    """Draw a positive definite matrix with a falling spectrum."""
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(w, w, generator=generator, dtype=dtype) * torch.arange(1, w + 1).to(
        dtype
    ).pow(-0.7)
    full = root @ root.T
    return (full + full.T) / 2


def get_tier_limit(tier):
    """Return the number of bytes at which a tier is the first to fit."""
    return {
        "full": W * W * 4,
        "packed": W * (W + 1) // 2 * 4,
        "packed bf16": W * (W + 1) // 2 * 2,
        "low rank": (W * 20 + 20 + W) * 4,
        "uncorrelated": (CHANNELS**2 + 1) * 4,
    }[tier]


def fit_factor(tier, seed=0):
    found = fit_factor_to_byte_limit(draw_matrix(seed), get_tier_limit(tier), KERNEL)
    assert found is not None
    return found


@pytest.mark.parametrize("tier", TIERS)
def test_the_first_tier_that_fits_is_taken_and_takes_the_bytes_of_its_formula(tier) -> None:
    found = fit_factor(tier)
    assert found.tier == tier
    stored = sum(t.nbytes for name, t in found.to_tensors().items() if name != "kernel")
    assert stored == get_tier_limit(tier)
    assert found.nbytes == sum(t.nbytes for t in found.to_tensors().values())


def test_a_byte_less_takes_the_next_tier() -> None:
    found = [
        fit_factor_to_byte_limit(draw_matrix(), get_tier_limit(tier) - 1, KERNEL)
        for tier in TIERS[:3]
    ]
    assert [f.tier for f in found if f is not None] == ["packed", "packed bf16", "low rank"]
    smaller = fit_factor_to_byte_limit(draw_matrix(), get_tier_limit("low rank") - 1, KERNEL)
    assert isinstance(smaller, LowRankFactor) and smaller.values.shape[0] == 19


def test_what_fits_in_no_tier_has_no_factor() -> None:
    assert (
        fit_factor_to_byte_limit(draw_matrix(), get_tier_limit("uncorrelated") - 1, KERNEL) is None
    )
    assert (
        fit_factor_to_byte_limit(draw_matrix(), get_tier_limit("uncorrelated")) is None
    )  # not of a convolution


def test_the_widest_factor_of_a_resnet18_takes_the_bytes_of_the_design() -> None:
    w = 4609
    sizes = [DenseFactor(torch.empty(w, w, device="meta"), tier).nbytes / 1e6 for tier in TIERS[:3]]
    assert sizes == pytest.approx([84.97, 42.49, 21.25], abs=0.01)
    parts = [torch.empty(shape, device="meta") for shape in ((w, 512), (512,), (w,))]
    assert LowRankFactor(*parts).nbytes / 1e6 == pytest.approx(9.4, abs=0.1)
    channels = UncorrelatedPixelsFactor(
        torch.empty(512, 512, device="meta"), 9, torch.empty(1, device="meta")
    )
    assert channels.nbytes / 1e6 == pytest.approx(1.05, abs=0.01)


@pytest.mark.parametrize("tier", TIERS)
def test_storing_and_loading_changes_no_bit_of_what_is_stored_or_computed(tier) -> None:
    found = fit_factor(tier)
    again = factor.rebuild_kronecker_factor(found.tier, found.to_tensors())
    assert again.tier == found.tier
    first, second = found.to_tensors(), again.to_tensors()
    assert first.keys() == second.keys()
    assert all(
        torch.equal(first[k], second[k]) and first[k].dtype == second[k].dtype for k in first
    )
    x = torch.randn(3, W, generator=torch.Generator().manual_seed(1))
    assert torch.equal(found.multiply_rows(x), again.multiply_rows(x))
    assert torch.equal(found.trace(), again.trace())


@pytest.mark.parametrize("tier", TIERS)
def test_multiplying_is_what_the_dense_matrix_does(tier) -> None:
    found, x = fit_factor(tier), torch.randn(3, W, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(found.multiply_rows(x), x @ found.to_dense(), rtol=1e-4, atol=1e-3)
    assert torch.allclose(found.diagonal(), found.to_dense().diagonal(), rtol=1e-5)


@pytest.mark.parametrize(("tier", "error"), [("full", 0), ("packed", 0), ("packed bf16", 2**-8)])
def test_dense_tiers_are_off_by_their_rounding_alone(tier, error) -> None:
    found = fit_factor(tier).to_dense()
    assert found.dtype == torch.float32
    assert bool(((found - draw_matrix()).abs() <= error * draw_matrix().abs()).all())


def test_low_rank_keeps_trace_and_diagonal() -> None:
    found = fit_factor("low rank")
    assert torch.allclose(found.diagonal(), draw_matrix().diagonal(), rtol=1e-5)
    assert float(found.trace()) == pytest.approx(float(draw_matrix().trace()), rel=1e-6)


def test_low_rank_is_nearer_than_its_diagonal() -> None:
    wanted = draw_matrix()
    assert (fit_factor("low rank").to_dense() - wanted).norm() < 0.5 * (
        wanted.diagonal().diag() - wanted
    ).norm()


def test_uncorrelated_keeps_the_trace_and_the_mean_over_pixels() -> None:
    found, wanted = fit_factor("uncorrelated"), draw_matrix()
    assert float(found.trace()) == pytest.approx(float(wanted.trace()), rel=1e-5)
    assert isinstance(found, UncorrelatedPixelsFactor)
    pixels = [wanted[:-1, :-1][p::KERNEL, p::KERNEL] for p in range(KERNEL)]
    assert torch.allclose(found.channels, torch.stack(pixels).mean(0), rtol=1e-5, atol=1e-6)


def test_uncorrelated_without_a_bias_has_no_corner() -> None:
    found = factor.make_uncorrelated_pixels_factor(draw_matrix(w=CHANNELS * KERNEL), KERNEL)
    assert found.size == CHANNELS * KERNEL and "corner" not in found.to_tensors()
    x = torch.randn(3, CHANNELS * KERNEL, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(found.multiply_rows(x), x @ found.to_dense(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tier", ["full", "packed", "uncorrelated"])
def test_merging_is_linear_in_tiers_that_store_sums(tier) -> None:
    merged = fit_factor(tier).average_with(fit_factor(tier, 1), 0.25)
    wanted = 0.75 * fit_factor(tier).to_dense() + 0.25 * fit_factor(tier, 1).to_dense()
    assert merged.tier == tier
    assert torch.allclose(merged.to_dense(), wanted, rtol=1e-5, atol=1e-5)


def test_merging_bf16_rounds_what_float32_merged() -> None:
    merged = fit_factor("packed bf16").average_with(fit_factor("packed bf16", 1), 0.25)
    wanted = torch.lerp(
        fit_factor("packed bf16").to_dense(), fit_factor("packed bf16", 1).to_dense(), 0.25
    )
    assert torch.equal(merged.to_dense(), wanted.bfloat16().float())


def test_merging_low_rank_keeps_trace_diagonal_and_rank() -> None:
    merged = fit_factor("low rank").average_with(fit_factor("low rank", 1), 0.25)
    wanted = 0.75 * draw_matrix() + 0.25 * draw_matrix(1)
    assert isinstance(merged, LowRankFactor) and merged.values.shape[0] == 20
    assert torch.allclose(merged.diagonal(), wanted.diagonal(), rtol=1e-4)


def test_merging_low_rank_keeps_the_leading_directions_of_both() -> None:
    low = [
        factor.make_low_rank_factor(draw_matrix(seed, dtype=torch.float64), 20) for seed in (0, 1)
    ]
    both = sum(
        part * (f.to_dense() - f.remainder.diag())
        for part, f in zip((0.75, 0.25), low, strict=True)
    )
    values = torch.linalg.eigvalsh(both)[-20:].flip(0)
    merged = low[0].average_with(low[1], 0.25)
    assert isinstance(merged, LowRankFactor)
    assert torch.allclose(merged.values, values, rtol=1e-10)


@pytest.mark.parametrize("tier", TIERS)
def test_merging_a_factor_with_itself_gives_it_back(tier) -> None:
    found = fit_factor(tier)
    assert torch.allclose(
        found.average_with(found, 0.3).to_dense(), found.to_dense(), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("tier", TIERS)
def test_a_fresh_factor_is_merged_into_the_tier_of_the_stored_one(tier) -> None:
    merged = fit_factor(tier).average_with(fit_factor("full", 1), 0.5)
    assert merged.tier == tier
    assert torch.allclose(
        merged.to_dense(),
        fit_factor(tier).average_with(fit_factor(tier, 1), 0.5).to_dense(),
        rtol=2e-2,
        atol=2e-2,
    )


def test_factors_of_two_sizes_are_not_merged() -> None:
    with pytest.raises(ValueError, match="sizes 181 and 20"):
        fit_factor("full").average_with(factor.make_dense_factor(draw_matrix(w=20)), 0.5)


def test_an_unknown_tier_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown storage tier 'tiny'"):
        factor.rebuild_kronecker_factor("tiny", {})
