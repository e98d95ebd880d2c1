"""Dense network expansion: the experts of the network, their mixing, and its invariants."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from bench.methods.dne_cost import compute_dne_attention_by_formula
from core.learning.networks import HeadSpec, ImageSpec, build_backbone_on_meta_device, build_network
from core.learning.networks.dne.chain import (
    ExpertChainOutputs,
    draw_drop_path_masks,
    run_expert_chain,
    run_next_expert_of_chain,
)
from core.learning.networks.dne.expert import DneExpert, ExpertSizes, initialise_expert_module
from core.learning.networks.dne.network import DneNetwork
from core.learning.networks.dne.packed import PackedExperts
from core.learning.networks.dne.spatial import PatchGridAttention, compute_offsets_between_patches
from core.learning.networks.dne.task_attention import TaskAttention
from core.learning.networks.families import rebuild_described_network
from core.learning.networks.init import initialise_weights

SMALL = {"name": "dne", "layers": 2, "head_dim": 8, "heads": 3, "patch": 2}
FULL = ExpertSizes(layers=6, head_dim=32, expansion=4, channels=3, patch=4, grid=8, gated=True)
IMAGE = ImageSpec(8, 3)


def make_generator(seed=0):
    return torch.Generator().manual_seed(seed)


def grow_network(experts=(), classes=("a", "b"), attention="gpsa", dtype=torch.float32, by=0.2):
    """Grow a network expert by expert, two classes each.

    Args:
        by: how far parameters are from where they start.
    """
    plain = build_network(
        {**SMALL, "attention": attention}, IMAGE, "class", HeadSpec(tuple(classes))
    )
    found = DneNetwork(plain)
    stir_parameters(found.head, 1)
    for task, heads in enumerate(experts, 2):
        found.set_size_of_next_expert(heads)
        found.add_task_classes(task, [f"{task}{x}" for x in "ab"], "default", make_generator(task))
        stir_parameters(found, task, by)
    return found.to(dtype).eval()


def stir_parameters(module, seed, by=0.2):
    """Move every parameter a little away from where it starts, as training does."""
    g = make_generator(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(by * torch.randn(parameter.shape, generator=g).to(parameter.dtype))


def draw_images(n=4, dtype=torch.float32, seed=0):
    return torch.randn(n, 3, 8, 8, generator=make_generator(seed)).to(dtype)


# Sizes.


@pytest.mark.parametrize(
    ("heads", "earlier", "count"), [(1, 12, 889_573), (2, 13, 1_068_158), (4, 15, 1_572_784)]
)
def test_a_later_expert_has_the_published_number_of_parameters(heads, earlier, count) -> None:
    """The reference has one λ for all heads, and no norm of the feature.

    It also has a bias for each position, which cancels.
    """
    with torch.device("meta"):
        expert = DneExpert(heads, earlier, FULL)
    ours = sum(p.numel() for p in expert.parameters())
    lambdas, norm, biases = 2 * 6 * (heads - 1), 2 * expert.width, 5 * heads
    assert ours - lambdas - norm + biases == count


def test_the_first_expert_has_the_published_number_of_parameters() -> None:
    backbone = build_backbone_on_meta_device({"name": "dne"}, ImageSpec(32, 3))
    ours = sum(p.numel() for p in backbone.parameters())
    assert ours - 2 * 384 + 5 * 12 == 10_683_948
    assert (backbone.width, backbone.sizes.grid) == (384, 8)


def compute_flops_by_formula(t, k):
    """Return the FLOPs of one image (2 per multiplication and addition) of expert t, with keys
    projected.
    """
    own, before = (12, 0) if t == 1 else (k, 12 + k * (t - 2))
    d, h, c, gamma = 32 * own, before + own, 32, 4
    mix = 2 * gamma * d**2
    if t > 1:
        mix = (
            (own + h) * (1 + gamma**2) * c**2 + 2 * h * gamma * c**2 + 2 * own * h * (1 + gamma) * c
        )
    attention = 5 * (64 * 4 * d**2 + 2 * 64**2 * d + 64**2 * 3 * own)
    return 2 * (attention + 2 * d**2 * 65 + 2 * d**2 + 2 * 65 * d + 48 * 64 * d + 321 * mix)


@pytest.mark.slow
@pytest.mark.parametrize(
    "k", [pytest.param(k, marks=() if k == 1 else pytest.mark.campaign) for k in (1, 2, 4)]
)
def test_counted_operations_are_those_of_the_formula(k, monkeypatch) -> None:
    """Keys are projected, as in the formula.

    The gate's product S v is 64² d for each layer, which the formula leaves out.
    """
    monkeypatch.setattr(TaskAttention, "forward", compute_dne_attention_by_formula)
    experts = [DneExpert(12, 0, FULL), *(DneExpert(k, 12 + k * t, FULL) for t in range(5))]
    for t, expert in enumerate(experts):
        initialise_weights(expert, initialise_expert_module, make_generator(t))
    x = torch.randn(1, 3, 32, 32, generator=make_generator())
    with torch.no_grad(), nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        counts = []
        for t in range(1, 7):
            with FlopCounterMode(display=False) as counter:
                run_expert_chain(experts[:t], x)
            counts.append(counter.get_total_flops())
    gate = [2 * 5 * 64**2 * 32 * (12 if t == 1 else k) for t in range(1, 7)]
    for t in range(1, 7):
        wanted = sum(compute_flops_by_formula(i, k) for i in range(1, t + 1))
        assert counts[t - 1] - sum(gate[:t]) == pytest.approx(wanted, rel=0.01)


# Attention between patches.


def test_gated_attention_is_the_mixture_of_its_two_attentions() -> None:
    attention = PatchGridAttention(2, 4, 3).double()
    stir_parameters(attention, 0, 1.0)
    y = torch.randn(2, 9, 8, generator=make_generator(), dtype=torch.float64)
    q, k, v = attention.compute_qkv(y)
    at = [(j % 3, j // 3) for j in range(9)]
    heads = []
    for h in range(2):
        content = (q[:, h] @ k[:, h].mT / 2).softmax(-1)
        away = torch.tensor([[[b[0] - a[0], b[1] - a[1]] for b in at] for a in at]).double()
        delta = torch.cat([away, away.square().sum(-1, keepdim=True)], -1)
        position = (delta @ attention.position[h]).softmax(-1)
        gate = attention.gate[h].sigmoid()
        heads.append(((1 - gate) * content + gate * position) @ v[:, h])
    wanted = attention.out(torch.cat(heads, -1))
    torch.testing.assert_close(attention(y), wanted, rtol=1e-12, atol=1e-12)


def test_the_first_nine_heads_start_by_looking_at_one_patch_each() -> None:
    backbone = build_network({"name": "dne"}, ImageSpec(32, 3), "class").backbone
    attention = backbone.expert.layers[0].attention
    middle = 3 * 8 + 4
    seen = attention.compute_positional_attention()[:9, middle].argmax(-1)
    away = [(int(p) % 8 - 4, int(p) // 8 - 3) for p in seen]
    assert away == [(h2, h1) for h2 in (-1, 0, 1) for h1 in (-1, 0, 1)]
    assert torch.equal(attention.value.weight, torch.eye(384))
    assert compute_offsets_between_patches(8, attention.gate)[:, middle, middle].tolist() == [
        0,
        0,
        0,
    ]


@pytest.mark.parametrize("attention", ["mhsa", "gpsa"])
def test_a_block_of_one_expert_is_torchs_encoder_layer(attention) -> None:
    own = grow_network(attention=attention, dtype=torch.float64).backbone.expert.layers[0]
    spatial, inner, outer = own.attention, own.mixing.inner, own.mixing.outer
    if attention == "gpsa":
        nn.init.constant_(spatial.gate, -1e3)
    theirs = nn.TransformerEncoderLayer(24, 3, 96, 0.0, "gelu", batch_first=True, norm_first=True)
    theirs = theirs.double().eval()
    projections = torch.cat([spatial.query.weight, spatial.key.weight, spatial.value.weight])
    theirs.self_attn.in_proj_weight.data.copy_(projections)
    theirs.self_attn.in_proj_bias.data.zero_()
    theirs.self_attn.out_proj.load_state_dict(spatial.out.state_dict())
    pairs = {"norm1": own.norm1, "norm2": own.norm2, "linear1": inner, "linear2": outer}
    for name, of in pairs.items():
        theirs.get_submodule(name).load_state_dict(of.state_dict())
    r = torch.randn(2, 16, 24, generator=make_generator(), dtype=torch.float64)
    s = own.attend_between_patches(r, None)
    normed = own.norm2(s)
    hidden = own.map_to_hidden_channels(normed, [normed])
    torch.testing.assert_close(
        own.compute_layer_output(s, hidden, [hidden]), theirs(r), rtol=1e-10, atol=1e-10
    )


# Attention between heads.


def build_task_attention(own=2):
    sources, inner, out = 5, 3, 4
    found = TaskAttention(own, sources, inner, out).double()
    for parameter in found.parameters():
        g = make_generator(parameter.numel())
        parameter.data.copy_(torch.randn(parameter.shape, generator=g, dtype=torch.float64))
    x = torch.randn(2, 6, sources, inner, generator=make_generator(1), dtype=torch.float64)
    return found, x[..., -own:, :], x


def test_with_even_attention_it_is_one_linear_map_of_all_heads() -> None:
    found, z, x = build_task_attention()
    found.query.data.zero_()
    found.scale.data.fill_(5.0)
    wanted = functional.linear(x.flatten(-2), torch.cat(list(found.value), 1), found.bias.sum(0))
    out = found(z, x)
    for head in range(2):
        torch.testing.assert_close(out[..., head, :], wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("own", [1, 2])
def test_what_is_saved_changes_neither_outputs_nor_gradients(own) -> None:
    found, z, x = build_task_attention(own)
    upstream = torch.randn(2, 6, own, 4, generator=make_generator(2), dtype=torch.float64)
    grads = []
    for way in (TaskAttention.forward, compute_dne_attention_by_formula):
        out = way(found, z, x)
        grads.append(
            (out.detach(), *torch.autograd.grad((out * upstream).sum(), list(found.parameters())))
        )
    for ours, wanted in zip(*grads, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-10, atol=1e-10)


def test_the_order_of_sources_does_not_matter_with_their_values() -> None:
    found, z, x = build_task_attention()
    order = torch.tensor([3, 0, 4, 1, 2])
    other = copy.deepcopy(found)
    other.value.data.copy_(found.value[order])
    other.bias.data.copy_(found.bias[order])
    torch.testing.assert_close(other(z, x[..., order, :]), found(z, x), rtol=1e-10, atol=1e-10)


def test_attention_between_heads_sums_to_one_over_all_of_them() -> None:
    found, z, x = build_task_attention()
    weights = found.compute_attention(z, x)
    assert weights.shape == (2, 6, 2, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 6, 2, dtype=torch.float64))


# The chain.


def test_an_expert_that_is_added_and_changed_leaves_every_bit_of_the_older_ones() -> None:
    net, x = grow_network((1, 2)), draw_images()
    with torch.no_grad():
        before = run_expert_chain(net.list_experts(), x)
        net.set_size_of_next_expert(2)
        net.add_task_classes(4, ["x"], "default", make_generator(9))
        stir_parameters(net.experts[-1], 5)
        after = run_expert_chain(net.list_experts(), x)
    for kind in ("heads", "hidden"):
        earlier, later = getattr(before, kind), getattr(after, kind)
        assert len(later) == len(earlier) + 1
        for old, new in zip(earlier, later, strict=False):
            assert all(torch.equal(a, b) for a, b in zip(old, new, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(before.features, after.features, strict=False))


def test_the_newest_expert_alone_gives_what_the_whole_chain_does() -> None:
    net, x = grow_network((1, 2)), draw_images()
    with torch.no_grad():
        assert torch.equal(
            net.compute_newest_features(net.compute_older_features(x), x),
            run_expert_chain(net.list_experts(), x).features[-1],
        )


def test_only_the_newest_expert_and_the_classifier_get_gradients() -> None:
    net, x = grow_network((2, 1)), draw_images()
    old = net.compute_older_features(x)
    assert not any(f.requires_grad for f in old.features)
    logits = net.logits(torch.cat([*old.features, net.compute_newest_features(old, x)], 1))
    functional.cross_entropy(logits, torch.tensor([0, 1, 2, 5])).backward()
    moved = {name for name, p in net.named_parameters() if p.grad is not None}
    assert moved == {n for n, _ in net.named_parameters() if n.startswith(("experts.1.", "head."))}
    assert all(p.grad.any() for name, p in net.named_parameters() if name in moved)


def test_task_attention_does_not_mix_patches() -> None:
    """With attention between patches silenced, a change in one patch stays there, up to the last
    layer.
    """
    net = grow_network((2,), dtype=torch.float64)
    for module in net.modules():
        if isinstance(module, PatchGridAttention):
            nn.init.zeros_(module.out.weight)
    x = draw_images(1, torch.float64)
    other = x.clone()
    other[..., :2, 2:4] += 1  # patch 1 of the first row
    with torch.no_grad():
        a, b = (run_expert_chain(net.list_experts(), of).hidden[1][0] for of in (x, other))
    assert (a != b).any(-1).nonzero()[:, 1].unique().tolist() == [1]


def test_an_expert_reads_the_ones_before_it() -> None:
    net, x = grow_network((1,)), draw_images()
    with torch.no_grad():
        before = run_expert_chain(net.list_experts(), x).features
        stir_parameters(net.backbone.expert.layers[0].mixing, 8)
        after = run_expert_chain(net.list_experts(), x).features
    assert not torch.equal(before[1], after[1])


def test_branches_are_dropped_more_often_in_later_layers_and_kept_in_the_mean() -> None:
    found = draw_drop_path_masks(6, 0.5, 4000, make_generator())
    assert found.shape == (6, 2, 4000) and (found[0] == 1).all()
    rates = (found == 0).float().mean((1, 2))
    torch.testing.assert_close(rates, torch.linspace(0, 0.5, 6), atol=0.02, rtol=0)
    torch.testing.assert_close(found.mean((1, 2)), torch.ones(6), atol=0.03, rtol=0)


def test_a_dropped_branch_leaves_its_input() -> None:
    net, x = grow_network((1,)), draw_images()
    expert, old = net.list_experts()[-1], net.compute_older_features(x).intermediates
    nothing = torch.zeros(2, 2, len(x))
    with torch.no_grad():
        found = run_next_expert_of_chain(expert, old, x, nothing).features[-1]
        assert torch.equal(found, expert.norm(expert.token[0].expand(len(x), -1)))
        kept, plain = (
            run_next_expert_of_chain(expert, old, x, drops).features[-1]
            for drops in (nothing + 1, None)
        )
        assert torch.equal(kept, plain)


# The packed pass.

MIXTURES = [
    (),
    (1,),
    (1, 1, 1),
    (2, 4, 1),
    (4, 4, 2, 2),
    (3, 3, 1),
]  # after a first expert of 3 heads


def collect_tensors(found):
    """Return the normalised and hidden heads of every expert and layer, and the features."""
    return [t for of in (*found.heads, *found.hidden, found.features) for t in of]


@pytest.mark.parametrize(
    ("dtype", "by", "tolerance"), [(torch.float64, 0.2, 1e-10), (torch.float32, 0.1, 1e-5)]
)
@pytest.mark.parametrize("attention", ["gpsa", "mhsa"])
@pytest.mark.parametrize("heads", MIXTURES)
def test_a_packed_pass_is_the_formula_of_the_chain(heads, attention, dtype, by, tolerance) -> None:
    """In float32, the weights stay nearer to their initial values.

    Far away, the chain itself differs from float64 by more than this tolerance.
    """
    net, x = grow_network(heads, attention=attention, dtype=dtype, by=by), draw_images(dtype=dtype)
    with torch.no_grad():
        wanted, found = (
            run_expert_chain(net.list_experts(), x),
            PackedExperts(net.list_experts()).run_packed_chain(x),
        )
    torch.testing.assert_close(
        collect_tensors(found), collect_tensors(wanted), rtol=tolerance, atol=tolerance
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "k", [pytest.param(k, marks=() if k == 2 else pytest.mark.campaign) for k in (1, 2, 4)]
)
def test_a_packed_pass_reads_in_bfloat16_what_the_chain_does(k) -> None:
    """The length of the difference is compared.

    Single channels of the chain itself differ by 2e-2 from float32.
    """
    experts = [DneExpert(12, 0, FULL), *(DneExpert(k, 12 + k * t, FULL) for t in range(3))]
    for t, expert in enumerate(experts):
        initialise_weights(expert, initialise_expert_module, make_generator(t))
    x = torch.randn(2, 3, 32, 32, generator=make_generator())
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        wanted, found = run_expert_chain(experts, x), PackedExperts(experts).run_packed_chain(x)
    for a, b in zip(collect_tensors(found), collect_tensors(wanted), strict=True):
        assert (a - b).norm() <= 2e-2 * b.norm()


@pytest.mark.parametrize("heads", [(1, 2, 4, 1), (2, 2, 2), (3, 4, 4)])
def test_the_newest_expert_has_the_same_gradients_after_a_packed_pass(heads) -> None:
    net, x = grow_network(heads, by=0.1), draw_images()
    grads = []
    for packed in (None, net.pack_older_experts()):
        newest = net.compute_newest_features(net.compute_older_features(x, packed), x)
        loss = (newest * torch.randn(newest.shape, generator=make_generator(1))).mean()
        grads.append(torch.autograd.grad(loss, list(net.list_experts()[-1].parameters())))
    torch.testing.assert_close(*grads, rtol=1e-5, atol=1e-5)


class Operations(TorchDispatchMode):
    """A counter of operations that are not views."""

    count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.count += not operation.is_view
        return operation(*args, **(kwargs or {}))


def test_a_packed_pass_has_as_many_operations_for_any_number_of_equal_experts() -> None:
    counts = []
    for experts in (2, 5):
        packed = PackedExperts(grow_network((1,) * experts).list_experts())
        with Operations() as operations:
            packed.run_packed_chain(draw_images())
        counts.append(operations.count)
    assert counts[0] == counts[1]


def test_what_is_packed_does_not_see_later_changes_of_experts() -> None:
    net, x = grow_network((1, 2)), draw_images()
    packed = net.pack_older_experts()
    before = packed.run_packed_chain(x).features
    stir_parameters(net, 7)
    assert all(
        torch.equal(a, b) for a, b in zip(before, packed.run_packed_chain(x).features, strict=True)
    )


# The classifier.


def test_old_logits_start_as_the_same_bits_and_new_columns_as_zeros() -> None:
    net, x = grow_network((1,)), draw_images()
    with torch.no_grad():
        before = net(x)
        net.set_size_of_next_expert(2)
        net.add_task_classes(3, ["x", "y"], "default", make_generator(3))
        after = net(x)
    assert torch.equal(after[:, :4], before)
    assert not net.head.weight[:4, -16:].any() and net.head.weight[4:].any()


def test_one_pass_answers_for_every_version_of_a_chain_bit_by_bit() -> None:
    net, x = grow_network((1,)), draw_images()
    kept = copy.deepcopy(net)
    with torch.no_grad():
        net.set_size_of_next_expert(2)
        net.add_task_classes(3, ["x"], "default", make_generator(3))
        stir_parameters(net.experts[-1], 1)
        old, new = net.compute_logits_of_several_versions(x, [kept.head, net.head])
        assert torch.equal(old, kept(x)) and torch.equal(new, net(x))


# Building and parts.


def test_a_network_is_rebuilt_from_its_parts_bit_by_bit() -> None:
    net, x = grow_network((2, 1)), draw_images()
    plain = build_network(SMALL, IMAGE, "class", HeadSpec(tuple(net.classes)), seed=5)
    again = rebuild_described_network(plain, net.describe_for_manifest())
    again.load_parts(net.copy_parts_to_cpu())
    with torch.no_grad():
        assert torch.equal(again.eval()(x), net(x))
    assert set(net.copy_parts_to_cpu()) == {
        "backbone.1",
        "backbone.2",
        "head",
        "expert.2",
        "expert.3",
    }


def test_the_newest_expert_moves_and_older_ones_never() -> None:
    net = grow_network((2, 1))
    heads = {"head.weight", "head.bias"}
    assert net.list_trainable_parameter_names(1) == heads
    newest = {n for n, _ in net.named_parameters() if n.startswith(("experts.1.", "auxiliary."))}
    assert (
        net.list_trainable_parameter_names(5)
        == net.list_trainable_parameter_names(2)
        == heads | newest
    )
    assert any(
        n.startswith("backbone.expert.") for n in grow_network().list_trainable_parameter_names(5)
    )


def test_an_experts_weights_are_a_function_of_the_seed() -> None:
    first, second = grow_network((2,)), grow_network((2,))
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)
    )
    inner = DneNetwork(build_network(SMALL, IMAGE, "class", HeadSpec(("a",))))
    inner.set_size_of_next_expert(2)
    inner.add_task_classes(2, ["b"], "zero", make_generator())
    mixing = inner.experts[0].layers[0].mixing.inner
    assert (
        mixing.scale.tolist() == [3.0, 3.0]
        and not mixing.bias.any()
        and 0 < mixing.value.std() < 0.03
    )


def test_experts_are_for_their_own_architecture_and_one_classifier() -> None:
    with pytest.raises(ValueError, match="experts are added to the architecture dne, not to Mlp"):
        DneNetwork(build_network({"name": "mlp"}, IMAGE, "class"))
    with pytest.raises(ValueError, match="the task scenario has a head for each task"):
        DneNetwork(build_network(SMALL, IMAGE, "task"))


def test_float64_follows_a_network_through_growth() -> None:
    net = grow_network(dtype=torch.float64)
    net.set_size_of_next_expert(1)
    net.add_task_classes(2, ["x"], "default", make_generator())
    assert {p.dtype for p in net.parameters()} == {torch.float64}
    x = draw_images(dtype=torch.float64)
    assert (
        isinstance(net.compute_older_features(x).intermediates, ExpertChainOutputs)
        and net(x).sum().isfinite()
    )
