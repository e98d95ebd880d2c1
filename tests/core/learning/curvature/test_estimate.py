"""Measured curvature: against Hessians by autograd, one backward each, and what it must not be."""

import pytest
import torch
import toys
from torch import nn

from core.learning.curvature.block import DiagonalCurvatureBlock, GroupedConvolutionCurvatureBlock
from core.learning.curvature.estimate import CurvatureEstimator, sum_gradient_products
from core.learning.curvature.fisher import (
    draw_rademacher_cotangents,
    estimate_diagonal_fisher,
    make_basis_vector_cotangents,
)
from core.learning.curvature.layers import require_layer_with_measurable_curvature
from core.learning.networks import HeadSpec, ImageSpec, build_network
from core.learning.networks.heads import ClassifierHead
from core.learning.torchvision_import import import_torchvision_models

KINDS = ("diagonal", "kfac", "tkfac", "exact")


def make_sign_cotangents(draws, seed):
    generator = torch.Generator().manual_seed(seed)
    return lambda outputs: draw_rademacher_cotangents(outputs, draws, generator)


@pytest.mark.parametrize(
    ("layer", "kind", "cotangents"),
    [(nn.Linear, "kfac", make_basis_vector_cotangents), (ClassifierHead, "gram", None)],
)
def test_the_block_of_one_layer_is_the_hessian_of_half_the_squared_error(
    layer, kind, cotangents
) -> None:
    torch.manual_seed(0)
    network, x, y = layer(4, 3).double(), torch.randn(7, 4).double(), torch.randn(7, 3).double()

    def compute_loss(d):
        return (x @ d[:, :4].T + d[:, 4] - y).square().sum(1).mean() / 2

    d = toys.join_parameters(network.weight, network.bias).detach()
    wanted = torch.autograd.functional.hessian(compute_loss, d).reshape(15, 15)
    block = toys.build_blocks(network, x, kind, cotangents, [""])[""]
    assert toys.compute_relative_error(toys.compute_matrix(block, 3), wanted) < 1e-12


def test_kfac_of_a_deep_linear_network_is_exact_in_every_layer() -> None:
    torch.manual_seed(0)
    parts = [
        nn.Linear(4, 5),
        nn.LeakyReLU(1.0),
        nn.Linear(5, 4),
        nn.LeakyReLU(1.0),
        nn.Linear(4, 3),
    ]
    network, x = nn.Sequential(*parts).double(), toys.draw_images(8, shape=(4,))
    for name, block in toys.build_blocks(network, x, "kfac").items():
        assert (
            toys.compute_relative_error(
                toys.compute_layer_matrix(network, name, block),
                toys.compute_slow_exact_block(network, name, x),
            )
            < 1e-12
        )


@pytest.mark.parametrize("name", ["0", "2", "5", "7"])
def test_the_exact_block_is_the_hessian_of_the_linearised_loss(name, network, x) -> None:
    y = 15 * nn.functional.one_hot(torch.arange(6) % 3, 3).double()
    weights = {key: p.detach() for key, p in network.named_parameters()}
    weight, bias = toys.get_parameters(network, name)

    def compute_loss(d):
        moved = {key: torch.zeros_like(p) for key, p in weights.items()}
        columns = weight[0].numel()
        moved[f"{name}.weight"] = d[:, :columns].reshape(weight.shape)
        if bias is not None:
            moved[f"{name}.bias"] = d[:, columns]
        value, tangent = torch.func.jvp(
            lambda p: torch.func.functional_call(network, p, (x,)), (weights,), (moved,)
        )
        return (y - value - tangent).square().sum(1).mean() / 2

    o, w = toys.join_parameters(weight, bias).shape
    wanted = torch.autograd.functional.hessian(compute_loss, torch.zeros(o, w).double()).reshape(
        o * w, o * w
    )
    block = toys.build_blocks(network, x, "exact", names=[name])[name]
    assert toys.compute_relative_error(block.matrix, wanted) < 1e-10


def test_traces_of_trace_restricted_and_diagonal_blocks_are_the_exact_ones(network, x) -> None:
    found = {kind: toys.build_blocks(network, x, kind) for kind in KINDS}
    for name, exact in found["exact"].items():
        for kind in ("tkfac", "diagonal"):
            assert abs(float(found[kind][name].trace() / exact.trace()) - 1) < 1e-12, (kind, name)


def test_partial_traces_of_a_trace_restricted_block_are_those_of_the_exact_one(network, x) -> None:
    exact = toys.build_blocks(network, x, "exact")
    for name, block in toys.build_blocks(network, x, "tkfac").items():
        o = toys.get_parameters(network, name)[0].shape[0]
        mine = toys.compute_partial_traces(toys.compute_matrix(block, o), o)
        for found, wanted in zip(
            mine, toys.compute_partial_traces(exact[name].matrix, o), strict=True
        ):
            assert toys.compute_relative_error(found, wanted) < 1e-12


def test_a_trace_restricted_linear_layer_is_the_original_formula() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    x = toys.draw_images(5, shape=(4,))
    probe = [torch.ones(1, 2).double()]
    m = toys.compute_slow_gradients(network, "0", x, lambda _: probe)[:, 0]  # g aᵀ, and a ends in 1
    g, a = m[:, :, -1], nn.functional.pad(x, (0, 1), value=1.0)
    inner, outer = a.square().sum(1), g.square().sum(1)
    delta = (inner * outer).mean()
    phi = torch.einsum("n,ni,nj->ij", outer, a, a) / 5 / delta
    psi = torch.einsum("n,ni,nj->ij", inner, g, g) / 5 / delta
    block = toys.build_blocks(network, x, "tkfac", lambda out: [torch.ones_like(out)], ["0"])["0"]
    assert (
        toys.compute_relative_error(toys.compute_matrix(block, 3), delta * torch.kron(psi, phi))
        < 1e-12
    )


@pytest.mark.parametrize("name", ["0", "2", "5"])
def test_trace_factors_are_the_same_through_positions_and_through_gradients(
    name, network, x
) -> None:
    layer = require_layer_with_measurable_curvature(network, name)
    for index, module in enumerate(network):
        if str(index) == name:
            a, out = x.detach(), module(x.detach()).detach()
        x = module(x)
    g = torch.randn(out.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    routes = [sum_gradient_products(layer, a, g, by_positions) for by_positions in (True, False)]
    for mine, theirs in zip(*routes, strict=True):
        assert toys.compute_relative_error(mine, theirs) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_any_size_give_the_same_blocks(kind, network, x) -> None:
    whole = toys.build_blocks(network, x, kind, make_sign_cotangents(2, 5))
    for batch in (1, 4):  # batches of one: a gradient divided by its batch would show
        for name, block in toys.build_blocks(
            network, x, kind, make_sign_cotangents(2, 5), batch=batch
        ).items():
            found, wanted = (
                toys.compute_layer_matrix(network, name, of) for of in (block, whole[name])
            )
            assert toys.compute_relative_error(found, wanted) < 1e-10


def test_cotangents_divided_by_the_batch_would_be_noticed(network, x) -> None:

    def divide_cotangents_by_batch(outputs):
        return [probe / len(outputs) for probe in make_basis_vector_cotangents(outputs)]

    right = [float(toys.build_blocks(network, x, "kfac", batch=n)["0"].trace()) for n in (6, 1)]
    bad = [
        float(
            toys.build_blocks(network, x, "kfac", divide_cotangents_by_batch, batch=n)["0"].trace()
        )
        for n in (6, 1)
    ]
    assert right[0] == pytest.approx(right[1], rel=1e-10)
    assert bad[0] == pytest.approx(bad[1] / 36, rel=1e-10)


def measure_traces(kind, draws, cotangents=None):
    """Return the mean and the standard error of the trace of the first convolution's block for 200
    seeds of random signs, and the exact trace.
    """
    network, x = toys.build_cnn(), toys.draw_images(3)
    found = []
    for seed in range(200):
        probes = cotangents(seed) if cotangents else make_sign_cotangents(draws, seed)
        found.append(toys.build_blocks(network, x, kind, probes, ["0"])["0"].trace())
    values = torch.stack(found)
    exact = float(toys.build_blocks(network, x, kind, names=["0"])["0"].trace())
    return float(values.mean()), float(values.std() / 200**0.5), exact


@pytest.mark.parametrize("draws", [1, 8])
@pytest.mark.parametrize("kind", ["diagonal", "kfac", "tkfac"])
def test_random_signs_have_the_exact_trace_on_average(kind, draws) -> None:
    mean, error, exact = measure_traces(kind, draws)
    assert abs(mean - exact) < 4 * error


def test_probes_divided_by_their_number_before_squaring_would_be_noticed() -> None:
    def make_wrong_cotangents(seed):
        return lambda outputs: [v / 8**0.5 for v in make_sign_cotangents(8, seed)(outputs)]

    mean, error, exact = measure_traces("kfac", 8, make_wrong_cotangents)
    assert abs(mean - exact) > 4 * error
    assert mean == pytest.approx(exact / 8, rel=0.1)


def build_softmax_cotangents(outputs):
    """Return √p_c (e_c - p) for every class, whose outer products add up to the Fisher information
    of the outputs.
    """
    p = outputs.softmax(1)
    return [
        p[:, c : c + 1].sqrt() * (e - p)
        for c, e in enumerate(make_basis_vector_cotangents(outputs))
    ]


def extract_slow_patches(module, a):
    """Return rows [B, T, in k k], computed by loops over pixels."""
    k, s, d = module.kernel_size[0], module.stride[0], module.dilation[0]
    a = nn.functional.pad(a, [module.padding[0]] * 4)
    size = (a.shape[2] - d * (k - 1) - 1) // s + 1
    places = [slice(i * s, i * s + d * (k - 1) + 1, d) for i in range(size)]
    return torch.stack(
        [a[:, :, rows, columns].flatten(1) for rows in places for columns in places], 1
    )


def compute_output_gradients(network, x):
    """Return the gradient of each output by the output of the first layer, one [B, …] after the
    other.
    """
    out = network[0](x)
    of_outputs = network[1:](out).sum(0)
    return [torch.autograd.grad(output, out, retain_graph=True)[0] for output in of_outputs]


def build_convolution_network(outputs, shape=(2, 7, 7), **settings):
    """Build a convolution with an output of two numbers behind it, and images."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(shape[0], outputs, 3, **settings)
    network = nn.Sequential(convolution, nn.Tanh(), nn.Flatten(), nn.LazyLinear(2)).double()
    x = toys.draw_images(shape=shape)
    network(x)
    return network, x


CONVOLUTIONS = [{"padding": 1}, {"stride": 2, "padding": 1}, {"dilation": 2, "bias": False}]


@pytest.mark.parametrize("convolution", CONVOLUTIONS)
def test_kfac_of_a_convolution_is_its_definition(convolution) -> None:
    network, x = build_convolution_network(3, **convolution)
    a = extract_slow_patches(network[0], x)
    if network[0].bias is not None:
        a = nn.functional.pad(a, (0, 1), value=1.0)
    g = torch.stack(compute_output_gradients(network, x))
    block = toys.build_blocks(network, x, "kfac", names=["0"])["0"]
    wanted_a = torch.einsum("nti,ntj->ij", a, a) / (a.shape[0] * a.shape[1])
    wanted_g = torch.einsum("rnixy,rnjxy->ij", g, g) / len(x)
    assert toys.compute_relative_error(block.a.to_dense(), wanted_a) < 1e-12
    assert toys.compute_relative_error(block.g.to_dense(), wanted_g) < 1e-12


@pytest.mark.parametrize("convolution", [*CONVOLUTIONS, {"groups": 2}])
@pytest.mark.parametrize("kind", ["diagonal", "exact"])
def test_diagonal_and_exact_blocks_of_a_convolution_are_sums_of_squared_gradients(
    kind, convolution
) -> None:
    network, x = build_convolution_network(4, **convolution)
    wanted = toys.compute_slow_exact_block(network, "0", x)
    found = toys.compute_matrix(toys.build_blocks(network, x, kind, names=["0"])["0"], 4)
    assert (
        toys.compute_relative_error(found, wanted if kind == "exact" else wanted.diagonal().diag())
        < 1e-12
    )


def test_squares_of_single_positions_are_no_diagonal_of_a_convolution(network, x) -> None:
    a, wrong = nn.functional.pad(extract_slow_patches(network[0], x), (0, 1), value=1.0).square(), 0
    for g in compute_output_gradients(network, x):
        wrong = wrong + torch.einsum("nos,nsw->ow", g.flatten(2).square(), a) / len(x)
    right = toys.build_blocks(network, x, "diagonal", names=["0"])["0"].values
    assert toys.compute_relative_error(wrong, right) > 0.1


@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("kind", ["kfac", "tkfac"])
def test_convolutions_in_groups_have_the_exact_block_of_each_output(kind, groups) -> None:
    network, x = build_convolution_network(4, (4, 5, 5), groups=groups)
    block = toys.build_blocks(network, x, kind, names=["0"])["0"]
    assert isinstance(block, GroupedConvolutionCurvatureBlock)
    w = block.count_displacement_columns(4)
    exact = toys.compute_slow_exact_block(network, "0", x).view(4, w, 4, w)
    assert (
        toys.compute_relative_error(block.blocks, torch.stack([exact[c, :, c] for c in range(4)]))
        < 1e-12
    )


@pytest.fixture
def tokens():
    return Tokens().double().eval()


class Tokens(nn.Module):
    """Patches, class token, positions, a norm, a layer on tokens, a scaled depthwise block and
    attention.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        blocks = import_torchvision_models().convnext
        self.stem = nn.Conv2d(2, 4, 2, stride=2)
        self.norm2d = blocks.LayerNorm2d(4)
        self.block = blocks.CNBlock(4, 0.5, 0.0)
        self.norm = nn.BatchNorm2d(4)
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.position = nn.Parameter(torch.randn(1, 10, 4))
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.linear = nn.Linear(4, 3)
        self.head = ClassifierHead(3, 2)
        nn.init.normal_(self.head.weight)
        nn.init.normal_(self.norm2d.weight)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        x = self.norm(self.block(self.norm2d(self.stem(x)))).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.position
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(self.linear(x).tanh()[:, 0])


def test_every_parameter_of_a_network_of_all_layers_has_its_exact_diagonal(tokens) -> None:
    network, x = tokens, toys.draw_images(4)
    found = toys.build_blocks(network, x, "diagonal")
    assert len(found) == len(toys.list_layers(network)) == 14
    for name, block in found.items():
        wanted = toys.compute_slow_gradients(network, name, x).square().sum(1).mean(0)
        assert torch.allclose(block.values, wanted, rtol=1e-10, atol=1e-14), name


@pytest.mark.parametrize(
    "name", ["linear", "attention.in_proj", "attention.out_proj", "block.block.3"]
)
def test_layers_on_tokens_keep_the_exact_trace_when_restricted_to_it(name, tokens) -> None:
    network, x = tokens, toys.draw_images(4)
    block = toys.build_blocks(network, x, "tkfac", names=[name])[name]
    exact = toys.compute_slow_exact_block(network, name, x)
    o = toys.get_parameters(network, name)[0].shape[0]
    assert (
        toys.compute_relative_error(block.p.to_dense(), toys.compute_partial_traces(exact, o)[0])
        < 1e-12
    )
    assert (
        toys.compute_relative_error(block.q.to_dense(), toys.compute_partial_traces(exact, o)[1])
        < 1e-12
    )


def test_kfac_of_a_layer_on_tokens_counts_every_token(tokens) -> None:
    network, x = tokens, toys.draw_images(4)
    seen = []
    hook = network.linear.register_forward_hook(
        lambda module, args, out: seen.append(args[0].detach())
    )
    network(x)
    hook.remove()
    a = nn.functional.pad(seen[0], (0, 1), value=1.0).flatten(0, 1)
    block = toys.build_blocks(network, x, "kfac", names=["linear"])["linear"]
    assert toys.compute_relative_error(block.a.to_dense(), a.T @ a / len(a)) < 1e-12


def test_norms_and_bare_parameters_have_a_diagonal_whatever_is_asked_for() -> None:
    network = Tokens().double().eval()
    found = toys.build_blocks(network, toys.draw_images(2), "kfac")
    diagonal = {name for name, block in found.items() if isinstance(block, DiagonalCurvatureBlock)}
    assert diagonal == {"norm", "norm2d", "block.block.2", "block.layer_scale", "token", "position"}


def test_measuring_leaves_a_network_as_it_was(tokens) -> None:
    network, x = tokens, toys.draw_images(2)
    before, output = {name: p for name, p in network.named_parameters()}, network(x)
    toys.build_blocks(network, x, "kfac")
    assert all(p is before[name] and p.grad is None for name, p in network.named_parameters())
    assert torch.equal(network(x), output)
    assert not any(
        module._forward_hooks or "forward" in vars(module) for module in network.modules()
    )


@pytest.mark.parametrize(
    "architecture",
    [
        {"name": "resnet20"},
        {"name": "small-cnn"},
        {"name": "vit", "hidden": 12, "mlp": 8, "layers": 1},
    ],
    ids=lambda a: a["name"],
)
def test_all_parameters_of_an_architecture_are_measured(architecture) -> None:
    network = build_network(architecture, ImageSpec(8, 1), "class", HeadSpec(("a", "b")), 1).eval()
    nn.init.normal_(network.head.weight)
    names = [name for name, _ in network.named_parameters()]
    x = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    examples = [(x, torch.zeros(3, dtype=torch.int64))]
    fisher = estimate_diagonal_fisher(
        network, network, names, examples, kind="exact", generator=torch.Generator()
    )
    of = {id(p): fisher[name] for name, p in network.named_parameters()}
    for layer, block in toys.build_blocks(network, x, "diagonal", build_softmax_cotangents).items():
        wanted = toys.join_parameters(
            *(of[id(p)] for p in toys.get_parameters(network, layer) if p is not None)
        )
        assert torch.allclose(block.values, wanted, rtol=1e-3, atol=1e-5 * float(wanted.max())), (
            layer
        )


def test_weights_that_require_no_gradient_are_measured_all_the_same(network, x) -> None:
    wanted = toys.build_blocks(network, x, "kfac")
    network.requires_grad_(False)
    for name, block in toys.build_blocks(network, x, "kfac").items():
        assert torch.equal(block.g.to_dense(), wanted[name].g.to_dense())


def test_an_activation_in_place_after_a_layer_changes_nothing(network, x) -> None:
    wanted = toys.build_blocks(network, x, "kfac")
    for module in network:
        if isinstance(module, nn.LeakyReLU):
            module.inplace = True
    for name, block in toys.build_blocks(network, x, "kfac").items():
        assert torch.equal(block.g.to_dense(), wanted[name].g.to_dense())


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_that_is_restored_from_its_sums_gives_the_same_blocks(kind, network, x) -> None:
    wanted = toys.build_blocks(network, x, kind)
    first = toys.estimate_curvature(network, x[:4], kind)
    second = CurvatureEstimator(network, network, dict.fromkeys(toys.list_layers(network), kind))
    second.load_tensors(first.to_tensors())
    second.add_examples(x[4:], make_basis_vector_cotangents)
    assert second.n == 6
    for name, block in second.build_curvature_blocks().items():
        found, whole = (
            toys.compute_layer_matrix(network, name, of) for of in (block, wanted[name])
        )
        assert toys.compute_relative_error(found, whole) < 1e-10


def test_sums_of_another_kind_are_refused(network, x) -> None:
    stored = toys.estimate_curvature(network, x, "kfac").to_tensors()
    with pytest.raises(ValueError, match="other layers or kinds"):
        CurvatureEstimator(
            network, network, dict.fromkeys(toys.list_layers(network), "tkfac")
        ).load_tensors(stored)


def test_a_layer_that_the_forward_does_not_use_has_zero_curvature() -> None:
    network = nn.ModuleDict({"used": nn.Linear(3, 2), "other": nn.Linear(3, 2)}).double()
    for kind in KINDS:
        estimate = CurvatureEstimator(network, network["used"], {"used": kind, "other": kind})
        estimate.add_examples(toys.draw_images(4, shape=(3,)), make_basis_vector_cotangents)
        found = estimate.build_curvature_blocks()
        assert float(found["other"].trace()) == 0 < float(found["used"].trace())


def test_a_layer_that_runs_twice_is_refused() -> None:
    layer = nn.Linear(3, 3).double()
    network = nn.Sequential(layer, nn.Tanh(), layer)
    with pytest.raises(ValueError, match="0 runs twice"):
        toys.build_blocks(network, toys.draw_images(2, shape=(3,)), "kfac", names=["0"])


def test_a_layer_whose_rows_are_no_examples_is_refused() -> None:
    network = nn.Sequential(nn.Flatten(0, 1), nn.Linear(3, 3), nn.Unflatten(0, (2, 4))).double()
    with pytest.raises(ValueError, match="8 rows for 2 examples"):
        toys.build_blocks(network, toys.draw_images(2, shape=(4, 3)), "kfac", names=["1"])


class ChangesInput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        x = x * 1
        y = self.layer(x)
        return y + x.mul_(2)


def test_a_layer_whose_input_is_changed_afterwards_is_refused() -> None:
    network = ChangesInput().double().requires_grad_(False)
    with pytest.raises(ValueError, match="changed in place"):
        toys.build_blocks(network, toys.draw_images(2, shape=(3,)), "kfac")


@pytest.mark.parametrize("name", ["1", "8", "0.weight"])
def test_what_cannot_be_measured_is_refused_by_name(name, network) -> None:
    with pytest.raises(ValueError, match=name):
        CurvatureEstimator(network, network, {name: "kfac"})


def test_blocks_before_the_first_example_are_refused(network) -> None:
    with pytest.raises(ValueError, match="no example"):
        CurvatureEstimator(network, network, {"0": "kfac"}).build_curvature_blocks()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_float32_network_is_summed_in_float32_and_a_bfloat16_one_too(network, x, dtype) -> None:
    found = toys.build_blocks(network.to(dtype), x.to(dtype), "kfac")
    assert {block.a.to_dense().dtype for block in found.values()} == {torch.float32}


def test_random_signs_of_an_example_do_not_depend_on_batches() -> None:
    outputs = torch.zeros(5, 3)
    whole = torch.stack(make_sign_cotangents(4, 9)(outputs))
    probe = make_sign_cotangents(4, 9)
    parts = torch.cat([torch.stack(probe(rows)) for rows in outputs.split(2)], 1)
    assert torch.equal(whole, parts)


def measure_block_errors(name, seed):
    """Return the relative distance of each kind's block from the exact one, on images whose pixels
    are correlated.
    """
    network = toys.build_cnn(seed=seed)
    x = nn.functional.avg_pool2d(toys.draw_images(64, seed, (2, 10, 10)), 5, 1) * 5 + 0.5
    found = {
        k: toys.compute_layer_matrix(
            network, name, toys.build_blocks(network, x, k, names=[name])[name]
        )
        for k in KINDS
    }
    exact = found.pop("exact")
    return {kind: toys.compute_relative_error(matrix, exact) for kind, matrix in found.items()}


@pytest.mark.parametrize("name", ["0", "2"])
def test_convolutions_are_closest_with_restricted_trace_and_farthest_as_diagonal(name) -> None:
    found = [measure_block_errors(name, seed) for seed in range(4)]
    assert all(one["tkfac"] < one["kfac"] for one in found)
    assert sum(one["kfac"] for one in found) < sum(one["diagonal"] for one in found)


def test_the_output_layer_is_exact_with_kronecker_factors_and_not_as_diagonal() -> None:
    found = measure_block_errors("7", 0)
    assert max(found["kfac"], found["tkfac"]) < 1e-12 < 0.1 < found["diagonal"]


def test_float32_products_are_exact_inside_a_pass_and_as_before_after_it(network, x) -> None:
    matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before, inside = (matmul.fp32_precision, conv.fp32_precision), []
    network, x = network.float(), x.float()

    def forward(x):
        inside.extend([matmul.fp32_precision, conv.fp32_precision])
        return network(x)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        estimate = CurvatureEstimator(network, forward, {"0": "kfac"})
        estimate.add_examples(x, make_basis_vector_cotangents)
    wanted = toys.build_blocks(network, x, "kfac", names=["0"])["0"]
    assert inside == ["ieee", "ieee"]
    assert (matmul.fp32_precision, conv.fp32_precision) == before
    assert torch.equal(estimate.build_curvature_blocks()["0"].g.to_dense(), wanted.g.to_dense())
