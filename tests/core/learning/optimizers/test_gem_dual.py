"""The dual of GEM's quadratic program: known solutions, optimality, and a non-negative
least-squares oracle.
"""

import pytest
import torch
from scipy.optimize import nnls

from core.learning.optimizers import gem_dual
from core.learning.optimizers.gem_dual import compute_gram_and_dots, solve_gem_dual_problem


def make_tensor(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def project_gradient(g, rows, gamma):
    """Return (g + Gᵀv, v)."""
    v = solve_gem_dual_problem(*compute_gram_and_dots(rows, g), gamma)
    return g + v @ rows, v


def draw_problem(seed):
    """Draw up to 20 rows in at least as many dimensions. Every other problem has rows that nearly
    agree.
    """
    generator = torch.Generator().manual_seed(seed)
    t = 1 + seed % 20
    rows = torch.randn(t, t + 30, generator=generator, dtype=torch.float64)
    if seed % 2:
        rows = 0.1 * rows + torch.randn(t + 30, generator=generator, dtype=torch.float64)
    g = torch.randn(t + 30, generator=generator, dtype=torch.float64)
    return g - rows.mean(0), rows


@pytest.mark.parametrize(
    ("g", "rows", "gamma", "wanted", "v"),
    [
        ((2, 1), ((-1, 1), (1, 0)), 0.0, (1.5, 1.5), (0.5, 0.0)),
        ((2, 1), ((-1, 1), (1, 0)), 0.5, (1.75, 1.75), (0.75, 0.5)),
        ((1, 1), ((-1, 0), (0, -1)), 0.0, (0.0, 0.0), (1.0, 1.0)),
    ],
)
def test_known_projections(g, rows, gamma, wanted, v) -> None:
    got, weights = project_gradient(make_tensor(*g), make_tensor(*rows), gamma)
    assert torch.allclose(got, make_tensor(*wanted), atol=1e-12) and torch.allclose(
        weights, make_tensor(*v), atol=1e-12
    )


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_it_agrees_with_non_negative_least_squares(gamma) -> None:
    for seed in range(40):
        g, rows = draw_problem(seed)
        got, v = project_gradient(g, rows, gamma)
        u, _ = nnls(rows.T.numpy(), -(g + gamma * rows.sum(0)).numpy(), maxiter=10_000)
        wanted = torch.from_numpy(u) + gamma
        assert torch.allclose(v, wanted, rtol=1e-8, atol=1e-8), seed
        assert float((got - (g + wanted @ rows)).norm()) < 1e-9 * float(g.norm())


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_the_solution_is_optimal(gamma) -> None:
    for seed in range(40):
        g, rows = draw_problem(seed)
        got, v = project_gradient(g, rows, gamma)
        dots = rows @ got
        scale = rows.norm(dim=1) * g.norm()
        assert bool((dots >= -1e-9 * scale).all())
        assert bool((v >= gamma).all())
        assert float(((v - gamma) * dots).abs().max()) < 1e-9 * float(scale.max())


def test_scaling_all_gradients_scales_the_result_and_leaves_the_weights() -> None:
    g, rows = draw_problem(7)
    got, v = project_gradient(g, rows, 0.5)
    small, w = project_gradient(1e-3 * g, 1e-3 * rows, 0.5)
    assert torch.allclose(w, v, rtol=1e-9) and torch.allclose(small, 1e-3 * got, rtol=1e-9)
    cosines = (1e-3 * rows @ small) / ((1e-3 * rows).norm(dim=1) * small.norm())
    assert float((rows @ g).min()) < 0 and float(cosines.min()) > -1e-9


def test_one_memory_without_a_bound_gives_the_formula_of_averaged_gem() -> None:
    g, ref = make_tensor(2, 1, -1), make_tensor(-1, 1, 2)
    wanted = g - (g @ ref) / (ref @ ref) * ref
    assert torch.allclose(project_gradient(g, ref[None], 0.0)[0], wanted, rtol=1e-12)


def test_a_memory_with_a_vanishing_gradient_constrains_nothing() -> None:
    g, rows = make_tensor(2, 1), make_tensor((-1, 1), (1e-8, -1e-8), (0, 0))
    got, v = project_gradient(g, rows, 0.5)
    alone, w = project_gradient(g, rows[:1], 0.5)
    assert v[1:].tolist() == [0, 0] and torch.equal(got, alone) and torch.equal(v[:1], w)


def test_memories_that_say_the_same_give_the_same_projection_as_one() -> None:
    g, row = make_tensor(2, 1), make_tensor((-1, 1))
    twice, _ = project_gradient(g, row.repeat(2, 1), 0.0)
    assert torch.allclose(twice, project_gradient(g, row, 0.0)[0], atol=1e-12)


def test_products_of_float32_rows_are_summed_in_float64_block_by_block(monkeypatch) -> None:
    monkeypatch.setattr(gem_dual, "COLUMNS", 7)
    g, rows = (t.float() for t in draw_problem(12))
    gram, dots = compute_gram_and_dots(rows, g)
    wide = rows.double()
    assert torch.allclose(gram, wide @ wide.T, rtol=1e-13)
    assert torch.allclose(dots, wide @ g.double(), rtol=1e-13)
