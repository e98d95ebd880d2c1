"""Prompt tokens in a vision transformer: where they go in, how they start, and how they
are stored.
"""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from core.learning.networks import (
    HeadSpec,
    ImageSpec,
    Network,
    build_backbone_on_meta_device,
    build_network,
)
from core.learning.networks.families import rebuild_described_network
from core.learning.networks.prompts import PromptedNetwork

P, PATCHES = 3, 16
IMAGE = ImageSpec(16, 3)
ARCHITECTURE = {"name": "vit", "layers": 3, "heads": 2, "hidden": 8, "mlp": 12, "patch": 4}
CLASSES = ["ant", "bee"]


def build_plain_network(scenario: str = "class") -> Network:
    return build_network(ARCHITECTURE, IMAGE, scenario, seed=3)


def build_prompted_network(
    prompts: int = P,
    deep: bool = True,
    scenario: str = "class",
    per_task: bool = False,
    seed: int = 1,
) -> PromptedNetwork:
    network = PromptedNetwork(
        build_plain_network(scenario), prompts, deep, () if per_task else None
    )
    network.add_task_classes(1, CLASSES, "default", torch.Generator().manual_seed(seed))
    return network.double().eval()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(
        5, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )


def record_block_tokens(network: PromptedNetwork, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Return what enters every block and what leaves it."""
    seen: list[tuple[Tensor, Tensor]] = []
    layers = network.backbone.encoder.layers
    hooks = [
        layer.register_forward_hook(lambda _, into, out: seen.append((into[0], out)))
        for layer in layers
    ]
    with torch.no_grad():
        network.features(x)
    for hook in hooks:
        hook.remove()
    return [into for into, _ in seen], [out for _, out in seen]


def compute_features_by_hand(
    network: PromptedNetwork, x: Tensor, prompts: Sequence[Tensor]
) -> Tensor:
    """Compute features image by image and token by token."""
    backbone, features = network.backbone, []
    positions = backbone.encoder.pos_embedding[0]
    for image in x:
        patches = backbone.conv_proj(image[None])[0].flatten(1).T
        cls = backbone.class_token[0, 0] + positions[0]
        rows = [patch + position for patch, position in zip(patches, positions[1:], strict=True)]
        carried: list[Tensor] = []
        for block, layer in enumerate(backbone.encoder.layers):
            tokens = list(prompts[block]) if block < len(prompts) else carried
            out = layer(torch.stack([cls, *tokens, *rows])[None])[0]
            cls, carried, rows = (
                out[0],
                list(out[1 : 1 + len(tokens)]),
                list(out[1 + len(tokens) :]),
            )
        features.append(backbone.encoder.ln(cls))
    return torch.stack(features)


@pytest.mark.parametrize("deep", [False, True])
def test_features_equal_those_computed_token_by_token(x: Tensor, deep: bool) -> None:
    """Every block sees the class token, prompts and patches."""
    network = build_prompted_network(deep=deep)
    torch.testing.assert_close(
        network.features(x), compute_features_by_hand(network, x, list(network.prompts["shared"]))
    )
    into, out = record_block_tokens(network, x)
    assert [t.shape[1] for t in (*into, *out)] == [1 + P + PATCHES] * 6


def test_deep_prompts_replace_what_the_last_block_made_of_its_own(x: Tensor) -> None:
    network = build_prompted_network(deep=True)
    into, out = record_block_tokens(network, x)
    for block, prompts in enumerate(network.prompts["shared"]):
        assert torch.equal(into[block][:, 1 : 1 + P], prompts.expand(len(x), -1, -1))
    for before, after in zip(out, into[1:], strict=False):
        assert torch.equal(before[:, 0], after[:, 0])
        assert torch.equal(before[:, 1 + P :], after[:, 1 + P :])


def test_shallow_prompts_are_carried_through_the_blocks(x: Tensor) -> None:
    network = build_prompted_network(deep=False)
    into, out = record_block_tokens(network, x)
    assert network.prompts["shared"].shape == (1, P, 8)
    assert torch.equal(into[0][:, 1 : 1 + P], network.prompts["shared"][0].expand(len(x), -1, -1))
    assert all(torch.equal(before, after) for before, after in zip(out, into[1:], strict=False))


@pytest.mark.parametrize("changed", [0, 1, 2])
def test_prompts_of_a_block_act_from_that_block_on(x: Tensor, changed: int) -> None:
    network = build_prompted_network()
    _, before = record_block_tokens(network, x)
    network.prompts["shared"].data[changed] += 1
    _, after = record_block_tokens(network, x)
    assert [torch.equal(a, b) for a, b in zip(before, after, strict=True)] == [
        b < changed for b in range(3)
    ]


@pytest.mark.parametrize(("deep", "count"), [(False, 7_680), (True, 92_160)])
def test_ten_prompts_in_a_base_sized_transformer(deep: bool, count: int) -> None:
    backbone = build_backbone_on_meta_device({"name": "vit_b_16"}, ImageSpec(224, 3))
    network = PromptedNetwork(Network(backbone, "class"), 10, deep)
    network.add_task_classes(1, CLASSES, "zero", torch.Generator())
    assert network.prompt_init_bound == 0.0625
    assert network.prompts["shared"].numel() == count
    into, _ = record_block_tokens(network, torch.empty(1, 3, 224, 224, device="meta"))
    assert [t.shape[1] for t in into] == [1 + 10 + 196] * 12


def test_prompts_start_uniform_within_their_bound() -> None:
    values = build_prompted_network(prompts=1000).prompts["shared"].detach()
    bound = math.sqrt(6 / (3 * 4**2 + 8))
    assert 0.99 * bound < float(values.abs().max()) <= bound
    assert float(values.std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)


def test_prompts_are_drawn_from_the_given_generator_once_and_after_the_head() -> None:
    network, again, other = (
        build_prompted_network(),
        build_prompted_network(),
        build_prompted_network(seed=2),
    )
    assert torch.equal(network.prompts["shared"], again.prompts["shared"])
    assert not torch.equal(network.prompts["shared"], other.prompts["shared"])
    alone = build_plain_network()
    alone.add_task_classes(1, CLASSES, "default", torch.Generator().manual_seed(1))
    assert alone.head is not None and network.head is not None
    assert torch.equal(alone.head.weight.double(), network.head.weight)
    before = network.prompts["shared"].clone()
    network.add_task_classes(2, ["cat"], "default", torch.Generator().manual_seed(5))
    assert torch.equal(network.prompts["shared"], before)


@pytest.mark.parametrize("grad", [False, True])
def test_no_prompts_give_the_bits_of_the_plain_network(grad: bool) -> None:
    images = torch.randn(4, 3, 16, 16)
    network = build_prompted_network(prompts=0).float()
    backbone = build_plain_network().backbone.eval()
    for parameter in (*backbone.parameters(), *network.backbone.parameters()):
        parameter.requires_grad_(False)
    with torch.set_grad_enabled(grad):
        assert torch.equal(network.features(images), backbone(images))


def test_a_prompt_set_per_task_is_chosen_by_the_task(x: Tensor) -> None:
    network = build_prompted_network(scenario="task", per_task=True)
    first = network.features(x, 1)
    network.add_task_classes(2, ["cat"], "default", torch.Generator().manual_seed(9))
    assert list(network.prompts) == ["1", "2"]
    assert torch.equal(network.features(x, 1), first)
    assert not torch.equal(network.features(x, 2), first)
    torch.testing.assert_close(
        network.features(x, 2), compute_features_by_hand(network, x, list(network.prompts["2"]))
    )


def test_features_for_a_task_without_prompts_are_the_backbones(x: Tensor) -> None:
    network = build_prompted_network(scenario="task", per_task=True)
    own = network.backbone(x)
    assert torch.equal(network.features(x, 7), own) and torch.equal(network.features(x), own)
    with pytest.raises(ValueError, match="no head for task 7"):
        network(x, 7)


@pytest.mark.parametrize("per_task", [False, True])
def test_a_network_comes_back_from_description_and_parts(x: Tensor, per_task: bool) -> None:
    network = build_prompted_network(scenario="task", per_task=per_task, deep=per_task).float()
    network.add_task_classes(2, ["cat"], "default", torch.Generator().manual_seed(9))
    tasks = [1, 2] if per_task else None
    assert network.describe_for_manifest() == {
        "family": "vpt",
        "prompts": P,
        "deep": per_task,
        "tasks": tasks,
    }
    heads = HeadSpec(tasks=((1, tuple(CLASSES)), (2, ("cat",))))
    empty = build_network(ARCHITECTURE, IMAGE, "task", heads, seed=9)
    again = rebuild_described_network(empty, network.describe_for_manifest())
    again.load_parts(network.copy_parts_to_cpu())
    assert again.state_dict().keys() == network.state_dict().keys()
    assert torch.equal(again.eval()(x.float(), 2), network(x.float(), 2))


def test_prompts_are_parts_of_their_own_beside_those_of_a_plain_network() -> None:
    network = build_prompted_network(scenario="task", per_task=True)
    ours, theirs = (
        set(network.copy_parts_to_cpu()),
        {f"backbone.{i}" for i in (1, 2, 3)} | {"head.1"},
    )
    assert ours - theirs == {"prompts.1"} and theirs <= ours
    assert set(build_prompted_network().copy_parts_to_cpu()) - set(
        build_plain_network().copy_parts_to_cpu()
    ) == {"prompts"}


def test_loading_is_strict_about_prompts() -> None:
    network = build_prompted_network().float()
    parts = network.copy_parts_to_cpu()
    with pytest.raises(ValueError, match="prompts is missing"):
        network.load_parts({name: part for name, part in parts.items() if name != "prompts"})
    plain_one = build_network(ARCHITECTURE, IMAGE, "class", HeadSpec(tuple(CLASSES)))
    with pytest.raises(ValueError, match=r"prompts\.shared has shape"):
        rebuild_described_network(
            plain_one, {**network.describe_for_manifest(), "prompts": 4}
        ).load_parts(parts)


def test_what_cannot_be_rebuilt_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown network family 'adapters'"):
        rebuild_described_network(build_plain_network(), {"family": "adapters"})
    with pytest.raises(ValueError, match="lacks 'deep'"):
        rebuild_described_network(
            build_plain_network(), {"family": "vpt", "prompts": 1, "tasks": None}
        )
    with pytest.raises(ValueError, match="vision transformer, not Mlp"):
        PromptedNetwork(build_network({"name": "mlp"}, IMAGE, "class"), 1, True)
    network = build_plain_network()
    assert (
        rebuild_described_network(network, None) is network
        and network.describe_for_manifest() is None
    )


def test_depth_one_moves_prompts_and_heads_only() -> None:
    assert build_prompted_network().list_trainable_parameter_names(1) == {
        "head.weight",
        "head.bias",
        "prompts.shared",
    }
