"""Blocks: what they multiply by, the penalty they make, and how they merge."""

import pytest
import torch
import toys

from core.learning.curvature import block as blocks
from core.learning.curvature.block import (
    DiagonalCurvatureBlock,
    ExactCurvatureBlock,
    GroupedConvolutionCurvatureBlock,
    HeadGramCurvatureBlock,
    KroneckerCurvatureBlock,
    TraceRestrictedKroneckerBlock,
)
from core.learning.curvature.factor import make_dense_factor

ROWS, COLUMNS = 4, 5


def draw_symmetric_matrix(size, seed):
    root = torch.randn(
        size, size + 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    return root @ root.T


def draw_displacement(seed=9):
    return torch.randn(
        ROWS, COLUMNS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def make_blocks(seed=0):
    a, g = draw_symmetric_matrix(COLUMNS, seed), draw_symmetric_matrix(ROWS, seed + 50)
    rows = torch.stack([draw_symmetric_matrix(COLUMNS, seed + i) for i in range(ROWS)])
    return {
        "diagonal": DiagonalCurvatureBlock(draw_displacement(seed).square()),
        "kfac": KroneckerCurvatureBlock(make_dense_factor(a), make_dense_factor(g)),
        "tkfac": TraceRestrictedKroneckerBlock(
            make_dense_factor(a / a.trace() * 3),
            make_dense_factor(g / g.trace() * 3),
            torch.tensor(3.0).double(),
        ),
        "exact": ExactCurvatureBlock(draw_symmetric_matrix(ROWS * COLUMNS, seed)),
        "gram": HeadGramCurvatureBlock(make_dense_factor(a)),
        "channels": GroupedConvolutionCurvatureBlock(rows),
    }


def compute_expected_matrix(block):
    """Return H [o w, o w] of a block by its definition."""
    if isinstance(block, DiagonalCurvatureBlock):
        return block.values.flatten().diag()
    if isinstance(block, KroneckerCurvatureBlock):
        return torch.kron(block.g.to_dense(), block.a.to_dense())
    if isinstance(block, TraceRestrictedKroneckerBlock):
        return torch.kron(block.q.to_dense(), block.p.to_dense()) / block.delta
    if isinstance(block, HeadGramCurvatureBlock):
        return torch.kron(torch.eye(ROWS, dtype=torch.float64), block.a.to_dense())
    if isinstance(block, GroupedConvolutionCurvatureBlock):
        return torch.block_diag(*block.blocks)
    return block.matrix


KINDS = tuple(make_blocks())


@pytest.mark.parametrize("kind", KINDS)
def test_multiplying_is_what_the_matrix_does_to_the_flattened_displacement(kind) -> None:
    block = make_blocks()[kind]
    assert (
        toys.compute_relative_error(
            block.multiply_by_curvature(draw_displacement()).flatten(),
            compute_expected_matrix(block) @ draw_displacement().flatten(),
        )
        < 1e-12
    )


@pytest.mark.parametrize("kind", KINDS)
def test_multiplying_is_the_gradient_of_half_the_quadratic_form(kind) -> None:
    block, moved = make_blocks()[kind], draw_displacement().requires_grad_()
    value = moved.flatten() @ compute_expected_matrix(block) @ moved.flatten()
    (gradient,) = torch.autograd.grad(value / 2, moved)
    assert (
        toys.compute_relative_error(block.multiply_by_curvature(draw_displacement()), gradient)
        < 1e-12
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_is_symmetric_and_not_negative(kind) -> None:
    matrix = toys.compute_matrix(make_blocks()[kind], ROWS)
    assert toys.compute_relative_error(matrix, matrix.T) < 1e-12
    assert float(torch.linalg.eigvalsh((matrix + matrix.T) / 2).min()) >= -1e-9 * float(
        matrix.norm()
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_trace_is_that_of_the_matrix(kind) -> None:
    rows = ROWS if kind == "gram" else 1  # a gram knows one row's
    assert float(make_blocks()[kind].trace()) * rows == pytest.approx(
        float(compute_expected_matrix(make_blocks()[kind]).trace()), rel=1e-12
    )


@pytest.mark.parametrize("kind", KINDS)
def test_storing_and_loading_gives_the_same_block(kind) -> None:
    block = make_blocks()[kind]
    again = blocks.rebuild_curvature_block(
        block.kind, block.compression_by_factor, block.to_tensors()
    )
    assert (
        type(again) is type(block)
        and again.compression_by_factor == block.compression_by_factor
        and again.nbytes == block.nbytes
    )
    assert torch.equal(
        again.multiply_by_curvature(draw_displacement()),
        block.multiply_by_curvature(draw_displacement()),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_merging_weighs_each_stored_statistic(kind) -> None:
    one, two = make_blocks()[kind], make_blocks(1)[kind]
    merged = one.average_with(two, 0.25).to_tensors()
    for name, tensor in one.to_tensors().items():
        assert torch.allclose(
            merged[name], 0.75 * tensor + 0.25 * two.to_tensors()[name], rtol=1e-12
        )


def test_merging_factors_is_not_merging_their_products() -> None:
    one, two = make_blocks()["kfac"], make_blocks(1)["kfac"]
    merged = toys.compute_matrix(one.average_with(two, 0.5), ROWS)
    assert (
        toys.compute_relative_error(
            merged, (compute_expected_matrix(one) + compute_expected_matrix(two)) / 2
        )
        > 0.01
    )


def test_blocks_of_two_kinds_are_not_merged() -> None:
    with pytest.raises(ValueError, match="a kfac block cannot be merged with a tkfac one"):
        make_blocks()["kfac"].average_with(make_blocks()["tkfac"], 0.5)


@pytest.mark.parametrize("kind", ["diagonal", "exact", "channels"])
def test_blocks_of_two_shapes_are_not_merged(kind) -> None:
    block = make_blocks()[kind]
    (name,) = block.to_tensors()
    smaller = type(block)(**{name: block.to_tensors()[name][1:]})
    with pytest.raises(ValueError, match="of shapes"):
        block.average_with(smaller, 0.5)


def test_a_block_without_any_gradient_is_zero_and_not_a_division_by_zero() -> None:
    zero = TraceRestrictedKroneckerBlock(
        make_dense_factor(torch.zeros(COLUMNS, COLUMNS)),
        make_dense_factor(torch.zeros(ROWS, ROWS)),
        torch.zeros(()),
    )
    assert (
        float(zero.multiply_by_curvature(draw_displacement().float()).abs().max())
        == 0
        == float(zero.trace())
    )


@pytest.mark.parametrize("kind", ["kfac", "tkfac"])
def test_a_layer_whose_factors_fit_nowhere_keeps_its_diagonal_and_trace(kind) -> None:
    block = make_blocks()[kind]
    small = block.compress_factors(8)
    assert isinstance(small, DiagonalCurvatureBlock) and small.compression_by_factor == {}
    assert torch.allclose(
        small.values.flatten(), compute_expected_matrix(block).diagonal(), rtol=1e-12
    )


def test_each_factor_of_a_block_has_a_tier_of_its_own() -> None:
    small = make_blocks()["kfac"].compress_factors(ROWS * ROWS * 8)
    assert small.compression_by_factor == {"a": "packed", "g": "full"}
    assert small.nbytes == (COLUMNS * (COLUMNS + 1) // 2 + ROWS * ROWS) * 8


def test_a_gram_fits_any_number_of_rows() -> None:
    a = draw_symmetric_matrix(COLUMNS, 0)
    moved = torch.randn(7, COLUMNS, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert (
        toys.compute_relative_error(
            HeadGramCurvatureBlock(make_dense_factor(a)).multiply_by_curvature(moved), moved @ a
        )
        < 1e-12
    )


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind of curvature 'ekfac'"):
        blocks.rebuild_curvature_block("ekfac", {}, {})
