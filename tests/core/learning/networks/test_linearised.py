"""A linearised network: linear in what it learns, its gradients those of the network at its base,
and its parts.
"""

import copy

import pytest
import torch
from linear import (
    CLASSES,
    SMALL,
    build_linearised_network,
    compute_joint_relative_error,
    compute_relative_error,
    copy_plain_network,
    draw_displacement,
    draw_images,
    list_case_parameters,
    set_displacement,
)
from safetensors.torch import save_file

from core.contract.manifest import Manifest
from core.learning.evaluation import predicting
from core.learning.methods.squared_loss import compute_squared_errors
from core.learning.networks import HeadSpec, ImageSpec, Network, build_network
from core.learning.networks.families import rebuild_described_network
from core.learning.networks.linear.dual import MissingDualRuleError
from core.learning.networks.linear.linearised import LinearisedNetwork

Y = torch.tensor([2, 0, 1, 0])
QUICK = [case for case in SMALL if not case.startswith("resnet18")]


def compute_features_at(network, x, psi):
    """Return the features at a displacement, and reset the displacement to zero."""
    with torch.no_grad():
        set_displacement(network, psi)
        found = network.features(x)
        set_displacement(network, {name: torch.zeros_like(value) for name, value in psi.items()})
    return found


def compute_gradient(network, x, y, psi):
    """Return the gradient of the mean loss by the displacement."""
    set_displacement(network, psi)
    loss = compute_squared_errors(network(x), y, 15.0).mean()
    names, parameters = zip(*network.displacement.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def add_scaled(a, b, scale=1.0):
    return {name: a[name] + scale * b[name] for name in a}


@pytest.mark.parametrize("case", list_case_parameters(large_in_ci=True))
def test_the_value_is_the_networks_own_and_without_displacement_there_is_no_more(case) -> None:
    network, x = build_linearised_network(case), draw_images(case)
    with torch.no_grad():
        value, tangent = network.expand_by_forward_mode(x)
        difference = compute_relative_error(value, network.backbone(x))
        assert difference == 0 or (case == "vit" and difference < 1e-14)
        assert not tangent.any() and not network.expand_by_dual_numbers(x)[1].any()


@pytest.mark.parametrize("case", QUICK)
def test_features_are_affine_in_the_displacement(case) -> None:
    network, x = build_linearised_network(case), draw_images(case)
    a, b = draw_displacement(network, 4), draw_displacement(network, 5)
    zero = compute_features_at(network, x, add_scaled(a, a, -1))
    of_sum = compute_features_at(network, x, add_scaled(a, b)) - zero
    of_a, of_b = (
        compute_features_at(network, x, a) - zero,
        compute_features_at(network, x, b) - zero,
    )
    assert compute_relative_error(of_sum, of_a + of_b) <= 1e-13
    assert (
        compute_relative_error(
            compute_features_at(network, x, add_scaled(a, a, 2.0)) - zero, 3 * of_a
        )
        <= 1e-13
    )


@pytest.mark.parametrize("case", list_case_parameters())
def test_the_tangent_is_the_slope_of_the_nonlinear_network(case) -> None:
    network, x, h = build_linearised_network(case), draw_images(case), 1e-6
    psi = draw_displacement(network, 4)
    weights = {name: p.detach() for name, p in network.backbone.named_parameters()}

    def compute_moved_output(step):
        return torch.func.functional_call(network.backbone, add_scaled(weights, psi, step), (x,))

    with torch.no_grad():
        slope = (compute_moved_output(h) - compute_moved_output(-h)) / (2 * h)
        assert (
            compute_relative_error(
                compute_features_at(network, x, psi) - network.backbone(x), slope
            )
            <= 1e-7
        )


@pytest.mark.parametrize("case", list_case_parameters())
def test_the_pullback_is_the_adjoint_of_the_tangent(case) -> None:
    network, x = build_linearised_network(case), draw_images(case)
    a = draw_displacement(network, 4)
    set_displacement(network, a)
    tangent = network.expand_by_dual_numbers(x)[1].detach()
    u = torch.randn(tangent.shape, generator=torch.Generator().manual_seed(6), dtype=tangent.dtype)
    back = network.compute_vector_jacobian_product(x, u)
    other_way = sum(float((back[f"displacement.{name}"] * a[name]).sum()) for name in a)
    assert other_way == pytest.approx(float((tangent * u).sum()), rel=1e-12)


@pytest.mark.parametrize("case", list_case_parameters())
def test_the_displacements_gradient_is_backpropagation_through_the_base(case) -> None:
    network, x = build_linearised_network(case), draw_images(case)
    set_displacement(network, draw_displacement(network, 4))
    features = network.features(x)
    u = torch.randn(
        features.shape, generator=torch.Generator().manual_seed(6), dtype=features.dtype
    )
    names, parameters = zip(*network.displacement.named_parameters(), strict=True)
    grads = torch.autograd.grad((features * u).sum(), parameters)
    found = {f"displacement.{n}": g for n, g in zip(names, grads, strict=True)}
    base = copy.deepcopy(network.backbone).requires_grad_(True)
    own = torch.autograd.grad((base(x) * u).sum(), list(base.parameters()))
    wanted = {
        f"displacement.{n}": g for (n, _), g in zip(base.named_parameters(), own, strict=True)
    }
    assert compute_joint_relative_error(found, wanted) <= 1e-12
    assert (
        compute_joint_relative_error(network.compute_vector_jacobian_product(x, u), wanted) <= 1e-12
    )


@pytest.mark.parametrize("case", QUICK)
@pytest.mark.parametrize("fixed_head", [False, True])
def test_the_losss_hessian_by_the_displacement_is_the_same_everywhere(case, fixed_head) -> None:
    network, x = build_linearised_network(case, fixed_head=fixed_head), draw_images(case)
    y = Y[: len(x)]
    along, here, there = (draw_displacement(network, seed) for seed in (4, 5, 6))
    products = []
    for point in (here, there):
        before, after = (
            compute_gradient(network, x, y, point),
            compute_gradient(network, x, y, add_scaled(point, along)),
        )
        products.append(add_scaled(after, before, -1))
    assert compute_joint_relative_error(products[0], products[1]) <= 1e-11


def compute_whole_hessian(network, x, y):
    """Return the Hessian of the mean loss by all of (ψ, W, b)."""
    moving = [*network.displacement.parameters(), *network.head.parameters()]
    loss = compute_squared_errors(
        network.compute_expansion_logits(*network.expand_by_forward_mode(x)), y, 15.0
    ).mean()
    rows = []
    for g in torch.cat(
        [grad.flatten() for grad in torch.autograd.grad(loss, moving, create_graph=True)]
    ):
        row = torch.autograd.grad(g, moving, retain_graph=True, materialize_grads=True)
        rows.append(torch.cat([h.flatten() for h in row]))
    return torch.stack(rows)


@pytest.mark.parametrize(("fixed_head", "constant"), [(True, True), (False, False)])
def test_only_with_frozen_reading_rows_is_the_model_linear_in_all_it_learns(
    fixed_head, constant
) -> None:
    torch.manual_seed(0)
    own = build_network(
        {"name": "mlp", "hidden": [4, 3]}, ImageSpec(2, 1), "class", HeadSpec(CLASSES)
    )
    network = LinearisedNetwork(own.double(), slope=0.1, fixed_head=fixed_head, frozen=True).eval()
    if fixed_head:
        network.set_reference_rows("shared", torch.randn(3, 3, dtype=torch.float64))
    x, found = torch.randn(4, 1, 2, 2, dtype=torch.float64), []
    for _ in range(2):
        for parameter in (*network.displacement.parameters(), *network.head.parameters()):
            parameter.data.normal_()
        found.append(compute_whole_hessian(network, x, Y))
    difference = compute_relative_error(*found)
    assert (difference <= 1e-13) if constant else (difference > 0.1)


@pytest.mark.parametrize("fixed_head", [False, True])
def test_the_frozen_networks_logits_have_the_derivative_of_the_logits(fixed_head) -> None:
    network, x = (
        build_linearised_network("resnet20", fixed_head=fixed_head),
        draw_images("resnet20"),
    )
    psi = draw_displacement(network, 4)
    weights = {name: p.detach() for name, p in network.backbone.named_parameters()}
    rows = network.get_readout_rows().detach()
    set_displacement(network, psi)
    moved = network(x) - network.logits(network.backbone(x))
    own = torch.func.jvp(
        lambda p: torch.func.functional_call(network.backbone, p, (x,)) @ rows.T, (weights,), (psi,)
    )[1]
    assert compute_relative_error(moved, own) <= 1e-12


def test_a_backbone_without_a_rule_is_differentiated_by_torch(monkeypatch) -> None:
    network, x = build_linearised_network("mlp"), draw_images("mlp")
    set_displacement(network, draw_displacement(network, 4))
    wanted = network(x)

    def raise_missing_rule(self, x):
        raise MissingDualRuleError

    monkeypatch.setattr(LinearisedNetwork, "expand_by_dual_numbers", raise_missing_rule)
    assert compute_relative_error(network(x), wanted) <= 1e-14


def test_before_it_is_frozen_it_is_the_plain_network_with_leaky_activations() -> None:
    network = LinearisedNetwork(
        copy_plain_network("resnet20"), slope=0.0, fixed_head=False, frozen=False
    ).eval()
    assert torch.equal(
        network(draw_images("resnet20")), copy_plain_network("resnet20")(draw_images("resnet20"))
    )
    assert network.list_trainable_parameter_names(5) == {
        name for name, _ in network.named_parameters()
    }


# Depth, heads and parts.


def test_the_base_moves_at_no_depth() -> None:
    network = build_linearised_network("resnet20")
    beside = {n for n, _ in network.named_parameters() if not n.startswith("backbone.")}
    assert network.list_trainable_parameter_names(5) == beside


@pytest.mark.parametrize("case", list_case_parameters())
def test_each_depth_moves_the_displacement_of_what_it_moves_in_a_plain_network(case) -> None:
    linear, folded = build_linearised_network(case), copy_plain_network(case)
    weights = {name for name, _ in linear.backbone.named_parameters()}
    for depth in range(1, 6):
        of_plain, found = (
            {
                n.removeprefix(of)
                for n in network.list_trainable_parameter_names(depth)
                if n.startswith(of)
            }
            for network, of in ((folded, "backbone."), (linear, "displacement."))
        )
        assert of_plain & weights == found & of_plain
        assert all(name.endswith("bias") for name in found - of_plain)  # of folded norms
        assert {"head.weight", "head.bias"} <= linear.list_trainable_parameter_names(depth)


@pytest.mark.parametrize("fixed_head", [False, True])
def test_every_tensor_is_in_one_part(fixed_head) -> None:
    network = build_linearised_network("resnet20", fixed_head=fixed_head)
    names = [name for part in network.list_tensor_names_by_part().values() for name in part]
    assert sorted(names) == sorted(network.state_dict())


def test_growing_adds_zero_rows_and_moves_no_other() -> None:
    network, x = build_linearised_network("resnet20"), draw_images("resnet20")
    set_displacement(network, draw_displacement(network, 4))
    rows = network.head.weight.detach().clone()
    with torch.no_grad():
        before = network(x)
        network.add_task_classes(2, ["dog"], "zero", torch.Generator())
        after = network(x)
        assert torch.equal(network.head.weight[:3], rows) and not network.head.weight[3].any()
    torch.testing.assert_close(after[:, :3], before, rtol=1e-12, atol=1e-12)
    assert not after[:, 3].any()


def test_each_task_has_a_head_and_reference_rows_of_its_own() -> None:
    own = build_network({"name": "mlp", "hidden": [4]}, ImageSpec(2, 1), "task").double()
    network = LinearisedNetwork(own, slope=0.1, fixed_head=True, frozen=True).eval()
    for task in (1, 2):
        network.add_task_classes(
            task, ["a", "b", "c"][: task + 1], "default", torch.Generator().manual_seed(task)
        )
        network.set_reference_rows(str(task), network.get_learned_head_rows(task).detach().clone())
    set_displacement(network, draw_displacement(network, 4))
    x = torch.randn(3, 1, 2, 2, dtype=torch.float64)
    assert network(x, 1).shape == (3, 2) and network(x, 2).shape == (3, 3)
    assert {"reference.1", "reference.2", "head.1", "head.2"} <= set(
        network.list_tensor_names_by_part()
    )
    with pytest.raises(ValueError, match="set already"):
        network.set_reference_rows("1", torch.zeros(2, 4))


def test_the_data_scenario_has_fixed_rows() -> None:
    own = build_network(
        {"name": "mlp", "hidden": [4]}, ImageSpec(2, 1), "data", HeadSpec(("a", "b"))
    )
    network = LinearisedNetwork(own, slope=0.1, fixed_head=False, frozen=True)
    with pytest.raises(ValueError, match="'c'"):
        network.add_task_classes(2, ["c"], "zero", torch.Generator())


def store_network(network: Network, folder, case):
    """Store a network, and return its manifest and part files."""
    architecture, size, _ = SMALL[case]
    paths = {name: folder / f"{name}.safetensors" for name in network.list_tensor_names_by_part()}
    for name, tensors in network.copy_parts_to_cpu().items():
        save_file(tensors, paths[name])
    manifest = {"version": 1, "architecture": architecture, "image": {"size": size, "channels": 3}}
    manifest |= {
        "scenario": "class",
        "classes": network.classes,
        "network": network.describe_for_manifest(),
    }
    return Manifest.from_json(manifest), paths


@pytest.mark.parametrize("case", ["mlp", "resnet20", "vit"])
@pytest.mark.parametrize("fixed_head", [False, True])
def test_a_stored_network_answers_with_the_same_bits(case, fixed_head, tmp_path) -> None:
    network = build_linearised_network(case, fixed_head=fixed_head)
    set_displacement(network, draw_displacement(network, 4))
    network = network.float()
    again = predicting.load_version_network(*store_network(network, tmp_path, case))
    x = draw_images(case).float()
    with torch.no_grad():
        assert torch.equal(again(x), network(x))
    assert again.describe_for_manifest() == network.describe_for_manifest() and isinstance(
        again, LinearisedNetwork
    )


def test_the_base_is_stored_in_the_same_bytes_by_every_version() -> None:
    network = build_linearised_network("resnet20")
    before = network.copy_parts_to_cpu()
    set_displacement(network, draw_displacement(network, 4))
    after = network.copy_parts_to_cpu()
    same = [n for n in before if all(torch.equal(before[n][k], after[n][k]) for k in before[n])]
    assert same == ["backbone.1", "backbone.2", "backbone.3", "head"]


def test_a_base_of_another_version_is_refused(tmp_path) -> None:
    network = build_linearised_network("resnet20").float()
    manifest, paths = store_network(network, tmp_path, "resnet20")
    other = {
        name: tensor + 1e-6 for name, tensor in network.copy_parts_to_cpu()["backbone.2"].items()
    }
    save_file(other, paths["backbone.2"])
    with pytest.raises(ValueError, match="not the base that the displacement was learned on"):
        predicting.load_version_network(manifest, paths)


def test_another_slope_is_another_network(tmp_path) -> None:
    network, x = build_linearised_network("mlp").float(), draw_images("mlp").float()
    manifest, paths = store_network(network, tmp_path, "mlp")
    steeper = manifest.network.model_copy(update={"slope": 0.5})
    other = predicting.load_version_network(manifest.model_copy(update={"network": steeper}), paths)
    assert not torch.equal(other(x), network(x))


@pytest.mark.parametrize("field", ["slope", "fixed_head", "frozen", "references", "base"])
def test_a_description_that_lacks_a_field_is_refused(field) -> None:
    description = {
        k: v
        for k, v in build_linearised_network("mlp").describe_for_manifest().items()
        if k != field
    }
    with pytest.raises(ValueError, match=f"lacks '{field}'"):
        rebuild_described_network(copy_plain_network("mlp"), description)


def test_a_missing_part_is_refused() -> None:
    network = build_linearised_network("mlp")
    with pytest.raises(ValueError, match=r"displacement\.1 is missing"):
        network.load_parts(
            {name: p for name, p in network.copy_parts_to_cpu().items() if name != "displacement.1"}
        )


@pytest.mark.parametrize("frozen", [False, True])
def test_it_takes_the_shape_of_a_state_that_came_later(frozen) -> None:
    later = build_linearised_network("resnet20", fixed_head=True)
    network = LinearisedNetwork(
        copy_plain_network("resnet20"), slope=0.01, fixed_head=True, frozen=frozen
    )
    network.prepare_to_load_state_dict(set(later.state_dict()))
    network.load_state_dict(later.state_dict(), strict=True)
    assert torch.equal(network.eval()(draw_images("resnet20")), later(draw_images("resnet20")))
