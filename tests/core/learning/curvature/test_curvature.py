"""The penalty of a whole network, merging over tasks, and storage."""

import json

import pytest
import torch
import toys
from torch import nn

from core.learning.curvature.block import DiagonalCurvatureBlock, HeadGramCurvatureBlock
from core.learning.curvature.curvature import LayerCurvatures
from core.learning.curvature.estimate import CurvatureEstimator
from core.learning.curvature.fisher import make_basis_vector_cotangents
from core.learning.state import load_tensors, save_tensors

KINDS = ("diagonal", "kfac", "tkfac", "exact")


def make_curvatures(kind="kfac", seed=1, n=6, limit=None):
    network = toys.build_cnn()
    return LayerCurvatures(
        toys.estimate_curvature(network, toys.draw_images(n, seed), kind).build_curvature_blocks(
            limit
        )
    )


def draw_displacements():
    generator = torch.Generator().manual_seed(7)
    return {
        name: torch.randn(p.shape, generator=generator, dtype=torch.float64)
        for name, p in toys.build_cnn().named_parameters()
    }


def is_same_curvature(one, two, error):
    first, second = one.to_tensors(), two.to_tensors()
    return first.keys() == second.keys() and all(
        toys.compute_relative_error(first[k], second[k]) <= error for k in first
    )


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_and_value_are_those_of_autograd_on_the_whole_matrix(kind) -> None:
    found = make_curvatures(kind)
    moved = {name: d.requires_grad_() for name, d in draw_displacements().items()}
    value = 0
    for layer, block in found.blocks.items():
        d = toys.join_parameters(moved[f"{layer}.weight"], moved.get(f"{layer}.bias"))
        value = value + d.flatten() @ toys.compute_matrix(block, d.shape[0]) @ d.flatten() / 2
    wanted = torch.autograd.grad(value, list(moved.values()))
    gradient, mine = found.compute_penalty_and_gradient(
        {name: d.detach() for name, d in moved.items()}
    )
    assert float(mine) == pytest.approx(float(value.detach()), rel=1e-12)
    for name, of in zip(moved, wanted, strict=True):
        assert toys.compute_relative_error(gradient[name], of) < 1e-12, name
        assert gradient[name].shape == moved[name].shape and not gradient[name].requires_grad


def test_the_penalty_and_its_gradient_are_zero_at_the_anchor() -> None:
    gradient, value = make_curvatures().compute_penalty_and_gradient(
        {n: torch.zeros_like(d) for n, d in draw_displacements().items()}
    )
    assert float(value) == 0 == max(float(g.abs().max()) for g in gradient.values())


def test_layers_that_are_not_given_are_left_out() -> None:
    moved = draw_displacements()
    some = {name: moved[name] for name in ("5.weight", "5.bias")}
    gradient, value = make_curvatures().compute_penalty_and_gradient(
        some | {"elsewhere": torch.ones(2)}
    )
    alone, wanted = LayerCurvatures(
        {"5": make_curvatures().blocks["5"]}
    ).compute_penalty_and_gradient(moved)
    assert gradient.keys() == some.keys() and float(value) == float(wanted)
    assert torch.equal(gradient["5.weight"], alone["5.weight"])


def test_a_bias_that_is_not_given_did_not_move() -> None:
    moved = draw_displacements()
    still, value = make_curvatures().compute_penalty_and_gradient({"5.weight": moved["5.weight"]})
    both, wanted = make_curvatures().compute_penalty_and_gradient(
        {"5.weight": moved["5.weight"], "5.bias": torch.zeros(5).double()}
    )
    assert still.keys() == {"5.weight"} and float(value) == float(wanted)
    assert torch.equal(still["5.weight"], both["5.weight"])


def test_a_bias_without_its_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="is given without"):
        make_curvatures().compute_penalty_and_gradient({"5.bias": torch.zeros(5)})


def test_a_displacement_of_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="5: displacements of 3 columns for a block of 17"):
        make_curvatures().compute_penalty_and_gradient({"5.weight": torch.zeros(5, 3)})


def test_nothing_to_hold_costs_nothing() -> None:
    assert float(LayerCurvatures({}).compute_penalty_and_gradient(draw_displacements())[1]) == 0


def test_a_projection_and_a_bare_parameter_are_found_by_their_own_names() -> None:
    whole = LayerCurvatures(
        {
            "x.in_proj": DiagonalCurvatureBlock(torch.ones(6, 3)),
            "token": DiagonalCurvatureBlock(2 * torch.ones(1, 6)),
        }
    )
    moved = {
        "x.in_proj_weight": torch.ones(6, 2),
        "x.in_proj_bias": torch.ones(6),
        "token": torch.ones(1, 3, 2),
    }
    gradient, value = whole.compute_penalty_and_gradient(moved)
    assert {n: g.shape for n, g in gradient.items()} == {n: d.shape for n, d in moved.items()}
    assert float(value) == (18 + 12) / 2


@pytest.mark.parametrize("kind", KINDS)
def test_merging_two_tasks_is_measuring_their_data_together(kind) -> None:
    network, x = toys.build_cnn(), toys.draw_images(8)
    both = LayerCurvatures(toys.build_blocks(network, x, kind))
    one, two = (LayerCurvatures(toys.build_blocks(network, part, kind)) for part in x.split(4))
    assert is_same_curvature(one.average_with(two, 0.5), both, 1e-12)
    three, five = (
        LayerCurvatures(toys.build_blocks(network, part, kind)) for part in x.split([3, 5])
    )
    assert is_same_curvature(three.average_with(five, 5 / 8), both, 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_merging_copies_of_one_task_gives_it_back(kind) -> None:
    one = merged = make_curvatures(kind)
    for t in range(2, 6):
        merged = merged.average_with(one, 1 / t)
    assert is_same_curvature(merged, one, 1e-12)


def test_the_order_of_tasks_does_not_matter() -> None:
    tasks = [make_curvatures("tkfac", seed) for seed in range(4)]

    def all_of(order):
        merged = tasks[order[0]]
        for t, task in enumerate(order[1:], 2):
            merged = merged.average_with(tasks[task], 1 / t)
        return merged

    assert is_same_curvature(all_of([0, 1, 2, 3]), all_of([3, 1, 0, 2]), 1e-12)


def test_curvatures_of_different_layers_are_not_merged() -> None:
    one = make_curvatures()
    with pytest.raises(ValueError, match="only one of two curvatures that are to be merged has 5"):
        one.average_with(LayerCurvatures({k: b for k, b in one.blocks.items() if k != "5"}), 0.5)


@pytest.mark.parametrize("limit", [None, 400, 60])
@pytest.mark.parametrize("kind", KINDS)
def test_storing_in_files_and_loading_gives_the_same_bits(kind, limit, tmp_path) -> None:
    found = make_curvatures(kind, limit=limit)
    save_tensors(found.to_tensors(), tmp_path / "curvature.safetensors")
    stored = json.loads(json.dumps(found.to_json()))
    again = LayerCurvatures.from_tensors(load_tensors(tmp_path / "curvature.safetensors"), stored)
    assert (
        again.to_json() == found.to_json()
        and again.measure_layer_bytes() == found.measure_layer_bytes()
    )
    assert all(torch.equal(t, again.to_tensors()[k]) for k, t in found.to_tensors().items())
    gradient, value = found.compute_penalty_and_gradient(draw_displacements())
    other, same_value = again.compute_penalty_and_gradient(draw_displacements())
    # Products of tensors that lie elsewhere in memory may differ in the last bit.
    torch.testing.assert_close(other, gradient, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(same_value, value, rtol=1e-12, atol=0)


def test_a_limit_on_bytes_shows_in_the_tiers_of_each_layer() -> None:
    kinds = {
        name: of["tiers"] or of["kind"]
        for name, of in make_curvatures(limit=2000).to_json().items()
    }
    assert kinds == {
        "0": {"a": "packed", "g": "full"},  # 19 x 19 numbers of 8 bytes
        "2": {"a": "packed bf16", "g": "full"},  # 27 x 27
        "5": {"a": "packed", "g": "full"} if 17 * 17 * 8 > 2000 else {"a": "full", "g": "full"},
        "7": {"a": "full", "g": "full"},
    }


def test_bytes_by_layer_are_those_of_its_tensors() -> None:
    found = make_curvatures(limit=2000)
    for layer, size in found.measure_layer_bytes().items():
        stored = [t.nbytes for k, t in found.to_tensors().items() if k.startswith(f"{layer}/")]
        assert size == sum(stored)


def test_the_trace_is_the_sum_over_layers() -> None:
    found = make_curvatures("tkfac")
    wanted = sum(float(b.trace()) for b in make_curvatures("exact").blocks.values())
    assert float(found.trace()) == pytest.approx(wanted, rel=1e-12)


class Bilinear(nn.Module):
    """W (Φ x + ψ x) + b: features linear in ψ, logits bilinear in W and ψ."""

    def __init__(self, rows) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fixed = torch.randn(3, 4, dtype=torch.float64)
        self.displacement = nn.Linear(4, 3, bias=False).double()
        self.head = nn.Linear(3, rows).double()

    def forward(self, x):
        return self.head(x @ self.fixed.T + self.displacement(x))


def compute_whole_hessian(x, rows):
    """Return the Hessian of half the squared error in all parameters, with two rows of zeros
    appended to two that are learned.
    """
    network = Bilinear(rows)
    with torch.no_grad():
        network.head.weight[2:].zero_()
        network.head.bias[2:].zero_()
    y = 15 * nn.functional.one_hot(torch.arange(len(x)) % 2, rows).double()
    named = dict(network.named_parameters())
    shapes = {name: p.shape for name, p in named.items()}

    def compute_loss(flat):
        parts = flat.split([s.numel() for s in shapes.values()])
        p = {name: part.view(s) for (name, s), part in zip(shapes.items(), parts, strict=True)}
        out = torch.func.functional_call(network, p, (x,))
        return (out - y).square().sum(1).mean() / 2

    flat = torch.cat([p.detach().flatten() for p in named.values()])
    return network, torch.autograd.functional.hessian(compute_loss, flat)


def test_appended_rows_have_the_curvature_of_the_rows_that_were_there() -> None:
    x = toys.draw_images(9, shape=(4,))
    network, hessian = compute_whole_hessian(x, 4)
    estimate = CurvatureEstimator(network, network, {"head": "gram"})
    estimate.add_examples(x)
    gram = estimate.build_curvature_blocks()["head"]
    assert isinstance(gram, HeadGramCurvatureBlock)
    weights, biases = torch.arange(12, 24).view(4, 3), torch.arange(24, 28)
    order = torch.cat([weights, biases[:, None]], 1)
    new = order[2:].flatten()
    wanted = torch.kron(torch.eye(2, dtype=torch.float64), gram.a.to_dense())
    assert toys.compute_relative_error(hessian[new][:, new], wanted) < 1e-12


def test_appended_rows_have_no_curvature_with_anything_else_when_they_come() -> None:
    _, hessian = compute_whole_hessian(toys.draw_images(9, shape=(4,)), 4)
    weights, biases = torch.arange(12, 24).view(4, 3), torch.arange(24, 28)
    new = torch.cat([weights[2:].flatten(), biases[2:]])
    rest = torch.tensor([i for i in range(28) if i not in new.tolist()])
    assert float(hessian[new][:, rest].abs().max()) < 1e-12 * float(hessian.abs().max())


def test_the_displacement_of_a_bilinear_network_has_its_exact_block() -> None:
    x = toys.draw_images(9, shape=(4,))
    network, hessian = compute_whole_hessian(x, 4)
    found = toys.build_blocks(network, x, "kfac", make_basis_vector_cotangents, ["displacement"])[
        "displacement"
    ]
    assert toys.compute_relative_error(toys.compute_matrix(found, 3), hessian[:12, :12]) < 1e-12
