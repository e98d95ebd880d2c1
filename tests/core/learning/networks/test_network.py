"""Network: growth, depth groups and parts, for every family."""

from itertools import pairwise

import pytest
import torch
from torch.nn import functional

from core.learning.networks import (
    HeadSpec,
    ImageSpec,
    Network,
    build_network,
    list_backbone_tensor_dtypes_and_shapes,
)
from core.learning.networks import build_backbone_on_meta_device as on_meta
from core.learning.networks.network import use_eval_mode

MLP = {"name": "mlp", "hidden": [8]}


def test_logits_are_the_head_applied_to_the_features(architecture, make, images, generator) -> None:
    network = make(architecture).eval()
    network.add_task_classes(1, ["a", "b", "c"], "default", generator)
    state = network.state_dict()
    features = network.features(images)
    assert features.shape == (3, network.backbone.width)
    assert torch.equal(
        network(images), functional.linear(features, state["head.weight"], state["head.bias"])
    )


def test_the_layout_in_memory_does_not_change_the_answer(
    architecture, make, images, generator
) -> None:
    network = make(architecture).eval().double()
    network.add_task_classes(1, ["a", "b"], "default", generator)
    plain = network(images.double())
    network.to(memory_format=torch.channels_last)
    moved = network(images.double().contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(moved, plain, rtol=1e-9, atol=1e-12)


def test_growing_keeps_old_rows_bit_identical(make, generator) -> None:
    network = make(MLP)
    network.add_task_classes(1, ["b", "a"], "default", generator)
    old = {name: parameter.detach().clone() for name, parameter in network.head.named_parameters()}
    network.add_task_classes(2, ["c"], "default", generator)
    assert network.classes == ["b", "a", "c"]
    assert old and all(
        torch.equal(network.head.get_parameter(n)[:2], rows) for n, rows in old.items()
    )


def test_a_class_that_reappears_adds_no_row_and_draws_nothing(make, generator) -> None:
    network = make(MLP)
    network.add_task_classes(1, ["a", "b"], "default", generator)
    before, rows = generator.get_state(), network.head.weight.detach().clone()
    network.add_task_classes(2, ["b"], "default", generator)
    assert network.classes == ["a", "b"]
    assert torch.equal(network.head.weight, rows)
    assert torch.equal(generator.get_state(), before)


def test_eval_mode_ends_with_the_mode_that_each_module_had(make, generator) -> None:
    network = make(MLP)
    network.add_task_classes(1, ["a"], "default", generator)
    network.train()
    network.head.eval()
    modes = [module.training for module in network.modules()]
    with use_eval_mode(network), use_eval_mode(network):
        assert not any(module.training for module in network.modules())
    assert [module.training for module in network.modules()] == modes and True in modes


def test_zero_init_gives_zero_rows(make, generator) -> None:
    network = make(MLP)
    network.add_task_classes(1, ["a"], "default", generator)
    network.add_task_classes(2, ["b"], "zero", generator)
    assert network.head.weight[0].any() and not network.head.weight[1].any()


def test_default_init_is_uniform_within_one_over_root_width(make, generator) -> None:
    network = make({"name": "mlp", "hidden": [400]})
    network.add_task_classes(1, [str(i) for i in range(50)], "default", generator)
    weight = network.state_dict()["head.weight"]
    assert weight.abs().max() <= 0.05
    assert weight.std() == pytest.approx(0.05 / 3**0.5, rel=0.05)


def test_an_unknown_init_changes_nothing(make, generator) -> None:
    network = make(MLP, "task")
    with pytest.raises(ValueError, match="ones"):
        network.add_task_classes(1, ["a"], "ones", generator)
    assert network.head_classes == {}


def test_a_class_named_twice_is_refused(make, generator) -> None:
    with pytest.raises(ValueError, match="twice"):
        make(MLP).add_task_classes(1, ["a", "a"], "zero", generator)


def test_the_data_scenario_refuses_an_unknown_class(make, generator) -> None:
    network = make(MLP, "data")
    network.add_task_classes(1, ["a", "b"], "zero", generator)
    network.add_task_classes(2, ["a"], "zero", generator)
    with pytest.raises(ValueError, match="'c'"):
        network.add_task_classes(3, ["a", "c"], "zero", generator)


def test_each_task_has_a_head_of_its_own(make, images, generator) -> None:
    network = make(MLP, "task")
    network.add_task_classes(1, ["a", "b"], "default", generator)
    first = network(images, 1)
    network.add_task_classes(2, ["a", "b", "c"], "default", generator)
    assert torch.equal(network(images, 1), first)
    assert network(images, 2).shape == (3, 3)
    assert network.list_classes(2) == ["a", "b", "c"]


@pytest.mark.parametrize("task", [None, 9])
def test_a_task_without_a_head_is_refused(make, images, task: int | None) -> None:
    network = make(MLP, "task", heads=[{"task": 1, "classes": ["a"]}])
    with pytest.raises(ValueError, match="task"):
        network(images, task)


def test_depth_groups_hold_every_name_once(architecture, make) -> None:
    network = make(architecture, classes=["a", "b"])
    groups = network.list_tensor_names_by_depth()
    names = [name for group in groups for name in group]
    assert sorted(names) == sorted(network.state_dict())
    assert groups[0] == ["head.weight", "head.bias"]
    assert len(groups) <= 5


def test_trainable_names_grow_with_depth_up_to_everything(architecture, make) -> None:
    network = make(architecture, classes=["a", "b"])
    sets = [network.list_trainable_parameter_names(depth) for depth in range(1, 6)]
    assert sets[0] == {"head.weight", "head.bias"}
    assert all(small <= large for small, large in pairwise(sets))
    assert sets[-1] == {name for name, _ in network.named_parameters()}
    with pytest.raises(ValueError, match="depth"):
        network.list_trainable_parameter_names(6)


def test_stages_beyond_the_fourth_join_the_deepest_group(make) -> None:
    network = make({"name": "mlp", "hidden": [8] * 6}, classes=["a"])
    groups = network.list_tensor_names_by_depth()
    assert len(groups) == 5
    assert groups[1] == ["backbone.fc6.weight", "backbone.fc6.bias"]
    assert groups[4][::2] == [f"backbone.fc{i}.weight" for i in (1, 2, 3)]
    assert sum(name.startswith("backbone") for name in network.copy_parts_to_cpu()) == 6


# Parameters that may move at depths 1 to 5 with ten classes (in millions where rounded).
COUNTS = {
    "resnet18": [5_130, 8_398_858, 10_498_570, 11_024_138, 11_181_642],
    "vit_b_16": [7_690, 21.27e6, 42.54e6, 63.80e6, 85.81e6],
    "convnext_tiny": [7_690, 15.48e6, 26.59e6, 27.59e6, 27.83e6],
    "convnext_base": [10_250, 27.46e6, 85.41e6, 87.15e6, 87.58e6],
    "small-cnn": [1_290, 148_874, 222_730, 241_226, 241_546],
}
BLOCKS = {"resnet18": 9, "vit_b_16": 14, "convnext_tiny": 20, "convnext_base": 38, "small-cnn": 4}


@pytest.mark.parametrize("name", COUNTS)
def test_the_depths_hold_the_published_numbers_of_parameters(name: str) -> None:
    image = ImageSpec(28, 1) if name == "small-cnn" else ImageSpec(224, 3)
    network = Network(on_meta({"name": name}, image), "class", HeadSpec(tuple("0123456789")))
    sizes = {key: parameter.numel() for key, parameter in network.named_parameters()}
    counts = [
        sum(sizes[key] for key in network.list_trainable_parameter_names(depth))
        for depth in range(1, 6)
    ]
    published = [n if isinstance(n, int) else pytest.approx(n, abs=0.5e4) for n in COUNTS[name]]
    assert counts == published
    assert len(network.backbone.layer_prefixes) == BLOCKS[name]


def test_known_sizes_of_the_small_resnets() -> None:
    # He et al. 2015 count 0.27M for ResNet-20; the slim ResNet-18 with 100 classes has 1.1M.
    count = {}
    for name in ("resnet20", "slim-resnet18"):
        shapes = {
            key: shape
            for key, (_, shape) in list_backbone_tensor_dtypes_and_shapes(
                {"name": name}, ImageSpec(32, 3)
            ).items()
        }
        learned = [
            shape for key, shape in shapes.items() if not key.endswith(("mean", "var", "tracked"))
        ]
        count[name] = sum(torch.Size(shape).numel() for shape in learned)
    assert count["resnet20"] == pytest.approx(0.27e6, rel=0.02)
    assert count["slim-resnet18"] + 160 * 100 + 100 == pytest.approx(1.1e6, rel=0.02)


def test_parts_hold_every_tensor_once_in_standard_layout(architecture, make) -> None:
    network = make(architecture, classes=["a", "b"])
    network.to(memory_format=torch.channels_last)
    parts = network.copy_parts_to_cpu()
    names = [name for part in parts.values() for name in part]
    assert sorted(names) == sorted(network.state_dict())
    stages = len(network.backbone.stage_prefixes)
    assert list(parts) == [*(f"backbone.{i + 1}" for i in range(stages)), "head"]
    assert all(tensor.is_contiguous() for part in parts.values() for tensor in part.values())


def test_parts_do_not_follow_the_network(make) -> None:
    network = make(MLP, classes=["a"])
    part, weight = (
        network.copy_parts_to_cpu()["backbone.1"],
        network.get_parameter("backbone.fc1.weight"),
    )
    weight.data.add_(1)
    assert not torch.equal(part["backbone.fc1.weight"], weight)


def test_loaded_parts_give_back_the_same_bits(architecture, make, images, generator) -> None:
    network = make(architecture, seed=1)
    network.add_task_classes(1, ["a", "b"], "default", generator)
    network(images)  # moves running statistics
    other = make(architecture, seed=2, classes=["a", "b"])
    other.load_parts(network.copy_parts_to_cpu())
    assert torch.equal(other.eval()(images), network.eval()(images))
    assert all(torch.equal(other.state_dict()[name], t) for name, t in network.state_dict().items())


def test_loading_refuses_what_does_not_fit_and_names_it(make) -> None:
    network = make({"name": "resnet20", "width": 8}, classes=["a"])

    def load_changed_parts(change) -> str:
        parts = network.copy_parts_to_cpu()
        change(parts)
        with pytest.raises(ValueError) as caught:
            network.load_parts(parts)
        return str(caught.value)

    weight = "backbone.conv1.weight"
    assert "backbone.3" in load_changed_parts(lambda p: p.pop("backbone.3"))
    assert "head.7" in load_changed_parts(lambda p: p.update({"head.7": {}}))
    assert weight in load_changed_parts(lambda p: p["backbone.1"].pop(weight))
    assert "surprise" in load_changed_parts(lambda p: p["head"].update(surprise=torch.zeros(1)))
    assert weight in load_changed_parts(
        lambda p: p["backbone.1"].update({weight: torch.zeros(2, 3, 3, 4)})
    )
    assert weight in load_changed_parts(
        lambda p: p["backbone.1"].update({weight: p["backbone.1"][weight].double()})
    )


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_parts_of_frozen_stages_are_unchanged_by_training(make, images, generator, depth) -> None:
    network = make({"name": "slim-resnet18", "width": 8})
    network.add_task_classes(1, ["a", "b"], "default", generator)
    before = network.copy_parts_to_cpu()
    names = network.list_trainable_parameter_names(depth)
    optimizer = torch.optim.SGD(
        [p for name, p in network.named_parameters() if name in names], lr=0.1
    )
    functional.cross_entropy(network.eval()(images), torch.tensor([0, 1, 0])).backward()
    optimizer.step()
    after = network.copy_parts_to_cpu()
    same = [
        part
        for part, held in before.items()
        if all(torch.equal(t, after[part][n]) for n, t in held.items())
    ]
    assert same == [f"backbone.{i}" for i in range(1, 6 - depth)]


def test_an_uploaded_base_loads_by_name_and_its_classifier_is_ignored(make) -> None:
    network = make({"name": "resnet18"})
    state = make({"name": "resnet18"}, seed=5).backbone.state_dict()
    state = {name: tensor for name, tensor in state.items() if "num_batches_tracked" not in name}
    network.backbone.load_base_weights(
        {**state, "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
    )
    assert all(
        torch.equal(network.backbone.state_dict()[name], tensor) for name, tensor in state.items()
    )


def test_a_base_with_a_missing_or_unknown_tensor_is_refused(make) -> None:
    network = make({"name": "small-cnn"})
    state = network.backbone.state_dict()
    with pytest.raises(ValueError, match="surprise"):
        network.backbone.load_base_weights({**state, "surprise": torch.zeros(1)})
    del state["conv2.bias"]
    with pytest.raises(ValueError, match=r"conv2\.bias"):
        network.backbone.load_base_weights(state)


@pytest.mark.filterwarnings(
    "ignore:There is a performance drop"
)  # attention has no batching rule on CPU
@pytest.mark.parametrize(
    "architecture",
    [
        {"name": "small-cnn"},
        {"name": "slim-resnet18", "width": 8},
        {"name": "vit", "layers": 2, "heads": 2, "hidden": 16, "mlp": 24},
        pytest.param({"name": "convnext_tiny"}, marks=pytest.mark.campaign),
    ],
    ids=lambda architecture: architecture["name"],
)
def test_per_sample_gradients_by_vmap_equal_a_loop(architecture, make, images, generator) -> None:
    network = make(architecture).double().eval()
    network.add_task_classes(1, ["a", "b"], "default", generator)
    parameters = {name: p.detach() for name, p in network.named_parameters()}
    x, labels = images[:2].double(), torch.tensor([0, 1])

    def compute_sample_loss(values, x, y) -> torch.Tensor:
        return functional.cross_entropy(
            torch.func.functional_call(network, values, (x[None],)), y[None]
        )

    batched = torch.func.vmap(torch.func.grad(compute_sample_loss), in_dims=(None, 0, 0))(
        parameters, x, labels
    )
    for i in range(2):
        single = torch.func.grad(compute_sample_loss)(parameters, x[i], labels[i])
        for name, value in single.items():
            torch.testing.assert_close(batched[name][i], value, rtol=1e-7, atol=1e-10)


def test_an_unknown_scenario_is_refused(image: ImageSpec) -> None:
    with pytest.raises(ValueError, match="domain"):
        build_network({"name": "small-cnn"}, image, "domain")
