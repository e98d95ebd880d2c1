"""Dual numbers against forward-mode differentiation, and that a wrong rule is seen."""

import copy

import pytest
import torch
from linear import (
    build_linearised_network,
    compute_joint_relative_error,
    compute_relative_error,
    copy_plain_network,
    draw_displacement,
    draw_images,
    list_case_parameters,
    set_displacement,
)
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from core.learning.networks import HeadSpec, ImageSpec, build_network
from core.learning.networks.linear import dual
from core.learning.networks.linear.dual import DualTensor, MissingDualRuleError, use_dual_parameters
from core.learning.networks.linear.linearised import LinearisedNetwork
from core.learning.torchvision_import import import_torchvision_models

WRONG = 1e-3  # relative: what every wrong rule is beyond


def measure_differences(network, x):
    """Return the relative differences between dual numbers and forward mode.

    They are those of the value, of the derivative, and of the displacement's gradient of the
    derivative's product with a fixed vector.
    """
    set_displacement(network, draw_displacement(network, 4))
    found = []
    for way in (network.expand_by_dual_numbers, network.expand_by_forward_mode):
        value, tangent = way(x)
        weights = torch.linspace(-1, 1, tangent.numel(), dtype=tangent.dtype).view_as(tangent)
        grads = torch.autograd.grad((tangent * weights).sum(), network.displacement.parameters())
        names = [name for name, _ in network.displacement.named_parameters()]
        found.append((value, tangent, dict(zip(names, grads, strict=True))))
    (value, tangent, grads), (its_value, its_tangent, its_grads) = found
    return (
        compute_relative_error(value, its_value),
        compute_relative_error(tangent, its_tangent),
        compute_joint_relative_error(grads, its_grads),
    )


@pytest.mark.parametrize("case", list_case_parameters(large_in_ci=True))
def test_dual_numbers_agree_with_forward_mode_differentiation(case) -> None:
    assert all(
        difference <= 1e-13
        for difference in measure_differences(build_linearised_network(case), draw_images(case))
    )


def build_small_convnext(models, **options):
    """Build torchvision's ConvNeXt with few channels and blocks, and all of its kinds of layers."""
    sizes = ((8, 12, 1), (12, 16, 1), (16, 20, 2), (20, None, 1))
    blocks = [models.convnext.CNBlockConfig(*size) for size in sizes]
    return models.ConvNeXt(blocks, **options)


def test_they_agree_on_convnext(monkeypatch) -> None:
    models = import_torchvision_models()
    monkeypatch.setattr(
        models, "convnext_tiny", lambda weights, **options: build_small_convnext(models, **options)
    )
    network = build_network(
        {"name": "convnext_tiny"}, ImageSpec(16, 3), "class", HeadSpec(("a", "b"))
    )
    network = network.double().eval()
    for name, parameter in network.named_parameters():
        if name.endswith("layer_scale"):
            nn.init.uniform_(parameter, 0.5, 1.5)
    linear = LinearisedNetwork(network, slope=0.01, fixed_head=False, frozen=True).eval()
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert all(difference <= 1e-13 for difference in measure_differences(linear, x))
    assert not linear._by_jvp


@pytest.mark.parametrize("case", ["resnet20", "slim-resnet18"])
def test_norms_that_are_not_folded_have_a_rule_as_well(case) -> None:
    backbone, x = copy_plain_network(case).backbone, draw_images(case)
    g = torch.Generator().manual_seed(5)
    at = {name: p.detach() for name, p in backbone.named_parameters()}
    moved = {name: 0.1 * torch.randn(p.shape, generator=g, dtype=p.dtype) for name, p in at.items()}
    with use_dual_parameters(backbone, moved):
        out = backbone(DualTensor(x, None))
    value, tangent = torch.func.jvp(
        lambda p: torch.func.functional_call(backbone, p, (x,)), (at,), (moved,)
    )
    assert (
        compute_relative_error(out.x, value) <= 1e-13
        and compute_relative_error(out.dx, tangent) <= 1e-13
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.max_pool2d(x, 3, stride=2, padding=1),
        lambda x: functional.max_pool2d(x, 2, ceil_mode=True),
        lambda x: functional.avg_pool2d(x, 2),
        lambda x: functional.adaptive_avg_pool2d(x, (2, 3)),
        lambda x: functional.gelu(x),
        lambda x: functional.relu(x),
        lambda x: functional.leaky_relu(x, 0.3),
        lambda x: functional.layer_norm(x, (5, 7)),
        lambda x: functional.dropout(x, 0.5, training=False),
        lambda x: torch.cat([x, 2 * x], 1),
        lambda x: x * x + x,
        lambda x: torch.add(x, x * x, alpha=3),
        lambda x: torch.unsqueeze(x.permute(0, 2, 3, 1).flatten(1), 1)[:, :, 3:],
        lambda x: x.mean((2, 3), keepdim=True).expand(-1, -1, 4, 4),
    ],
)
def test_a_rule_is_the_derivative_of_its_function(function) -> None:
    g = torch.Generator().manual_seed(0)
    x, dx = (torch.randn(2, 3, 5, 7, generator=g, dtype=torch.float64) for _ in range(2))
    out = function(DualTensor(x, dx))
    value, tangent = torch.func.jvp(function, (x,), (dx,))
    assert torch.equal(out.x, value) or compute_relative_error(out.x, value) <= 1e-15
    assert compute_relative_error(out.dx, tangent) <= 1e-14


def test_at_zero_an_activation_takes_the_slope_of_its_negative_side() -> None:
    x, dx = torch.tensor([0.0, -0.0, 1.0]), torch.tensor([2.0, 2.0, 2.0])
    assert functional.leaky_relu(DualTensor(x, dx), 0.1).dx.tolist() == pytest.approx(
        [0.2, 0.2, 2.0]
    )


def test_what_does_not_move_costs_no_derivative() -> None:
    conv = nn.Conv2d(1, 2, 3)
    with use_dual_parameters(conv, {"weight": None, "bias": None}):
        assert conv(DualTensor(torch.randn(1, 1, 5, 5), None)).dx is None


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (torch.sigmoid, "sigmoid"),
        (lambda x: x.sigmoid(), "sigmoid"),
        (lambda x: functional.dropout(x, 0.5, training=True), "dropout"),
        (lambda x: functional.gelu(x, approximate="tanh"), "gelu"),
        (
            lambda x: functional.batch_norm(x, torch.zeros(2), torch.ones(2), training=True),
            "training mode",
        ),
    ],
)
def test_a_function_without_a_rule_says_so(function, name) -> None:
    with pytest.raises(MissingDualRuleError, match=name):
        function(DualTensor(torch.ones(3, 2), torch.ones(3, 2)))


def test_a_module_has_its_parameters_back_whatever_happens_inside() -> None:
    linear = nn.Linear(2, 2)
    weight, names = linear.weight, list(linear.state_dict())
    with (
        pytest.raises(RuntimeError),
        use_dual_parameters(linear, {"weight": torch.ones(2, 2), "bias": None}),
    ):
        raise RuntimeError
    assert linear.weight is weight and list(linear.state_dict()) == names


# Wrong rules: each must differ from the right derivative by far more than rounding does.


def add_bias_to_derivative(rule):
    def apply_wrong_rule(x, weight, bias=None, *args, **kwargs):
        out = rule(x, weight, bias, *args, **kwargs)
        shape = (1, -1) if out.x.dim() == 2 else (1, -1, 1, 1)
        entry = not isinstance(x, DualTensor) or x.dx is None
        return out if bias is None or entry else DualTensor(out.x, out.dx + bias.x.view(shape))

    return apply_wrong_rule


def make_masked_rule(chosen):
    def apply_masked_rule(x, negative_slope=0.01, inplace=False):
        value = functional.leaky_relu(x.x, negative_slope)
        return DualTensor(value, torch.where(chosen(x) > 0, x.dx, negative_slope * x.dx))

    return apply_masked_rule


def pool_parts_separately(x, *args, **kwargs):
    kwargs.pop("return_indices", None)
    return DualTensor(*(functional.max_pool2d(of, *args[:5], **kwargs) for of in (x.x, x.dx)))


MUTANTS = {
    "bias on the derivative's path": (
        "resnet20",
        torch.conv2d,
        add_bias_to_derivative(dual._convolve_dual),
    ),
    "bias on a linear layer's": (
        "mlp",
        torch._C._nn.linear,
        add_bias_to_derivative(dual._apply_dual_linear),
    ),
    "mask from the derivative": (
        "resnet20",
        torch._C._nn.leaky_relu,
        make_masked_rule(lambda x: x.dx),
    ),
    "mask from the sum": (
        "resnet20",
        torch._C._nn.leaky_relu,
        make_masked_rule(lambda x: x.x + x.dx),
    ),
    "max pool of the derivative": ("small-cnn", torch.max_pool2d, pool_parts_separately),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_rule_is_seen(mutant, monkeypatch) -> None:
    case, function, rule = MUTANTS[mutant]
    network, x = build_linearised_network(case), draw_images(case)
    set_displacement(network, draw_displacement(network, 4))
    wanted = network.expand_by_forward_mode(x)[1]
    assert compute_relative_error(network.expand_by_dual_numbers(x)[1], wanted) <= 1e-13
    for key, kept in list(dual.RULES.items()):
        if kept is dual.RULES[function]:
            monkeypatch.setitem(dual.RULES, key, rule)
    assert compute_relative_error(network.expand_by_dual_numbers(x)[1], wanted) > WRONG


def test_an_image_that_moves_is_seen() -> None:
    network, x = build_linearised_network("resnet20"), draw_images("resnet20")
    psi = draw_displacement(network, 4)
    set_displacement(network, psi)
    with use_dual_parameters(network.backbone, dict(psi)):
        out = network.backbone(DualTensor(x, 0.2 * x))
    assert compute_relative_error(out.dx, network.expand_by_forward_mode(x)[1]) > WRONG


def test_a_displacement_of_weights_that_are_not_folded_is_seen() -> None:
    network, x = build_linearised_network("resnet20"), draw_images("resnet20")
    psi = draw_displacement(network, 4)
    set_displacement(network, psi)
    unfrozen = LinearisedNetwork(
        copy_plain_network("resnet20"), slope=0.01, fixed_head=False, frozen=False
    ).eval()
    unfolded = unfrozen.backbone
    moved = {name: psi.get(name) for name, _ in unfolded.named_parameters()}
    with use_dual_parameters(unfolded, moved):
        out = unfolded(DualTensor(x, None))
    assert compute_relative_error(out.x, network.expand_by_forward_mode(x)[0]) <= 1e-12
    assert compute_relative_error(out.dx, network.expand_by_forward_mode(x)[1]) > WRONG


# What it costs: ResNet-18, images of 32 pixels.


def build_resnet18(images):
    network = build_network(
        {"name": "resnet18"}, ImageSpec(32, 3), "class", HeadSpec(tuple("abcdefghij"))
    )
    linear = LinearisedNetwork(network, slope=0.01, fixed_head=False, frozen=True).eval()
    plain_one = copy.deepcopy(linear.backbone).requires_grad_(True)
    return (
        linear,
        plain_one,
        torch.randn(images, 3, 32, 32, generator=torch.Generator().manual_seed(0)),
    )


def measure_kept_megabytes(module, forward):
    """Return the megabytes of the storages that a graph keeps, without the module's own tensors."""
    own = {t.untyped_storage().data_ptr() for t in (*module.parameters(), *module.buffers())}
    kept = {}

    def record_saved_storage(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(record_saved_storage, lambda tensor: tensor):
        forward()
    return sum(size for size, _ in kept.values()) / 1e6


def test_dual_numbers_keep_less_for_the_backward_pass_than_plain_training() -> None:
    """MB of activations in float32. A sign is read off the activation that the next layer keeps: it
    costs nothing.
    """
    linear, plain_one, x = build_resnet18(2)
    found = {
        "plain": measure_kept_megabytes(plain_one, lambda: plain_one(x)),
        "jvp": measure_kept_megabytes(linear, lambda: sum(linear.expand_by_forward_mode(x))),
        "dual": measure_kept_megabytes(linear, lambda: linear.features(x)),
    }
    assert found == pytest.approx({"plain": 70.7 / 8, "jvp": 105.9 / 8, "dual": 35.8 / 8}, rel=0.05)


def count_operations(run):
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


@pytest.mark.parametrize(
    "way", ["expand_by_dual_numbers", pytest.param("jvp", marks=pytest.mark.campaign)]
)
def test_a_linear_forward_pass_costs_three_and_a_step_five_thirds_of_plain_ones(way) -> None:
    linear, plain_one, x = build_resnet18(1)
    forward = getattr(linear, way)
    with torch.no_grad():
        of_plain, of_linear = (
            count_operations(lambda: plain_one(x)),
            count_operations(lambda: forward(x)),
        )
    step_of_plain = count_operations(lambda: plain_one(x).sum().backward())
    step_of_linear = count_operations(lambda: sum(forward(x)).sum().backward())
    assert of_linear / of_plain == pytest.approx(3.0, rel=0.02)
    assert step_of_linear / step_of_plain == pytest.approx(5 / 3, rel=0.02)
    assert of_plain == pytest.approx(17.8e9 / 16, rel=0.02)
