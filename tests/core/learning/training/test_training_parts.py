"""The small pieces of training: augmentation, sampling, rates, optimizer state, files of
tensors.
"""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from core.contract.architecture import Normalisation
from core.learning.data.augment import Augmentation, draw_epoch_random_numbers
from core.learning.optimizers.build import NamedOptimizer, compute_learning_rate_factor
from core.learning.precision import InputNormaliser, choose_torch_device
from core.learning.problems.classification import CLASSIFICATION
from core.learning.recipe import OptimizerRecipe
from core.learning.state import MethodState, load_tensors, save_tensors

CPU = torch.device("cpu")


def test_a_table_depends_on_seed_task_and_epoch_alone() -> None:
    assert torch.equal(draw_epoch_random_numbers(1, 2, 3, 5), draw_epoch_random_numbers(1, 2, 3, 5))
    others = [
        draw_epoch_random_numbers(2, 2, 3, 5),
        draw_epoch_random_numbers(1, 3, 3, 5),
        draw_epoch_random_numbers(1, 2, 4, 5),
    ]
    assert not any(torch.equal(draw_epoch_random_numbers(1, 2, 3, 5), other) for other in others)


def test_a_shift_moves_pixels_by_whole_steps_and_repeats_the_edge() -> None:
    image = torch.arange(64, dtype=torch.uint8).reshape(1, 8, 8, 1)
    augment = Augmentation("shift", 8)
    still = augment(image, torch.tensor([0]), torch.tensor([[0.5, 0.5, 0.9]]))
    assert torch.equal(still, image)
    down = augment(image, torch.tensor([0]), torch.tensor([[0.99, 0.5, 0.9]]))
    assert torch.equal(down[0, :-1], image[0, 1:]) and torch.equal(down[0, -1], image[0, -1])


def test_a_flip_mirrors_half_of_the_images() -> None:
    images = torch.randint(0, 255, (4, 8, 8, 3), dtype=torch.uint8)
    table = torch.tensor([[0.5, 0.5, 0.1], [0.5, 0.5, 0.9]])
    out = Augmentation("flip", 8)(images, torch.tensor([3, 1]), table)
    assert torch.equal(out[0], images[3].flip(1)) and torch.equal(out[1], images[1])


def shift_and_flip_by_lookup(
    images: torch.Tensor, index: torch.Tensor, table: torch.Tensor, name: str
) -> torch.Tensor:
    """Look each pixel up by itself: what shifts and flips mean, and how they were made at first."""
    size = images.shape[1]
    shift = size // 8 if "shift" in name else 0
    offsets = (table[:, :2] * (2 * shift + 1)).floor().long() - shift
    line = torch.arange(size)
    rows, columns = ((line + offset[:, None]).clamp(0, size - 1) for offset in offsets.unbind(1))
    if "flip" in name:
        columns = torch.where(table[:, 2:3] < 0.5, columns.flip(1), columns)
    return images[index[:, None, None], rows[:, :, None], columns[:, None, :]]


@given(
    size=st.sampled_from([1, 7, 8, 9, 16, 28, 33, 64, 80, 130]),
    channels=st.sampled_from([1, 3]),
    name=st.sampled_from(["shift", "flip", "shift-flip"]),
    numbers=st.lists(
        st.tuples(*[st.floats(0, 1, exclude_max=True, width=32)] * 3), min_size=1, max_size=6
    ),
)
def test_shifts_and_flips_give_the_bytes_of_a_lookup_of_each_pixel(
    size: int, channels: int, name: str, numbers: list[tuple[float, float, float]]
) -> None:
    generator = torch.Generator().manual_seed(size)
    images = torch.randint(0, 256, (4, size, size, channels), generator=generator).to(torch.uint8)
    index = torch.arange(len(numbers)) * 3 % 4
    table = torch.tensor(numbers, dtype=torch.float64)
    moved = Augmentation(name, size)(images, index, table)
    assert (
        torch.equal(moved, shift_and_flip_by_lookup(images, index, table, name))
        and moved.is_contiguous()
    )


def test_auto_never_flips_and_none_changes_nothing() -> None:
    assert not Augmentation("auto", 32).flip and Augmentation("auto", 32).shift == 4
    assert not Augmentation("none", 32).changes_images


def test_a_validation_split_is_stratified_and_leaves_a_training_image_per_class() -> None:
    labels = torch.tensor([0] * 10 + [1] * 10 + [2])
    train, held = CLASSIFICATION.split_training_and_validation_rows(labels, 0.5, torch.rand(21))
    assert torch.bincount(labels[held], minlength=3).tolist() == [5, 5, 0]
    assert sorted(torch.cat([train, held]).tolist()) == list(range(21))


def test_rates_warm_up_linearly_then_fall_to_zero_by_cosine() -> None:
    recipe = OptimizerRecipe(warmup_steps=4)
    assert [compute_learning_rate_factor(recipe, s, 12) for s in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert compute_learning_rate_factor(recipe, 4, 12) == 1.0 and compute_learning_rate_factor(
        recipe, 8, 12
    ) == pytest.approx(0.5)
    assert 0 < compute_learning_rate_factor(recipe, 11, 12) < 0.05
    assert compute_learning_rate_factor(OptimizerRecipe(schedule="constant"), 11, 12) == 1.0


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_optimizer_state_restored_by_name_goes_on_to_the_same_bits(name) -> None:
    """In channels_last too, where a fused kernel would mix up state of another memory layout."""

    def make_convolution():
        torch.manual_seed(0)
        return nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)

    def run_optimizer_steps(net, optimizer, seeds):
        for seed in seeds:
            torch.manual_seed(seed)
            optimizer.set_learning_rates_for_step(seed)
            net.zero_grad()
            net(torch.randn(2, 3, 5, 5)).square().sum().backward()
            optimizer.step()

    recipe = OptimizerRecipe(name=name, lr=0.01, weight_decay=0.1)
    whole, halves = make_convolution(), make_convolution()
    run_optimizer_steps(whole, NamedOptimizer(recipe, dict(whole.named_parameters()), 6), range(6))
    first = NamedOptimizer(recipe, dict(halves.named_parameters()), 6)
    run_optimizer_steps(halves, first, range(3))
    second = NamedOptimizer(recipe, dict(halves.named_parameters()), 6)
    second.load_state(
        {
            key: t.clone(memory_format=torch.contiguous_format)
            for key, t in first.iterate_optimizer_state()
        }
    )
    run_optimizer_steps(halves, second, range(3, 6))
    for a, b in zip(whole.parameters(), halves.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_a_parameter_that_gets_its_first_gradient_later_than_others_moves(name) -> None:
    """As the head of an old task does, when replay draws none of its items at first."""
    early, late = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = NamedOptimizer(
        OptimizerRecipe(name=name, lr=0.1), {"early": early, "late": late}, 2
    )
    early.grad = torch.ones(2)
    optimizer.step()
    assert late.tolist() == [1, 1]
    late.grad = torch.ones(2)
    optimizer.step()
    assert late.tolist() == pytest.approx([0.9, 0.9])


def test_plain_sgd_has_the_bits_of_the_stock_optimizer() -> None:
    torch.manual_seed(0)
    ours, stock = (nn.Parameter(torch.linspace(-1, 1, 99)) for _ in range(2))
    recipe = OptimizerRecipe(lr=0.1, weight_decay=0.01, schedule="constant")
    optimizer = NamedOptimizer(recipe, {"head.weight": ours}, 5)
    reference = torch.optim.SGD([stock], 0.1, momentum=0.9, weight_decay=0.01, fused=True)
    for _ in range(5):
        ours.grad = torch.randn(99)
        stock.grad = ours.grad.clone()
        optimizer.step()
        reference.step()
        assert torch.equal(ours, stock)


def test_dampening_makes_momentum_a_moving_average_from_the_first_step_on() -> None:
    weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    recipe = OptimizerRecipe(lr=1.0, momentum=0.75, dampening=0.75, schedule="constant")
    optimizer = NamedOptimizer(recipe, {"head.weight": weight}, 2)
    average = position = 0.0
    for gradient in (4.0, -2.0, 1.0):
        weight.grad = torch.full_like(weight, gradient)
        optimizer.step()
        average = 0.75 * average + 0.25 * gradient
        position -= average
        assert weight.item() == pytest.approx(position)


def test_carried_state_of_a_head_that_grew_starts_at_zero_in_new_rows() -> None:
    weight = nn.Parameter(torch.zeros(3, 2))
    optimizer = NamedOptimizer(OptimizerRecipe(), {"head.weight": weight}, 1)
    optimizer.load_state(
        {"head.weight|momentum_buffer": torch.ones(2, 2), "gone|momentum_buffer": torch.ones(1)}
    )
    held = dict(optimizer.iterate_optimizer_state())["head.weight|momentum_buffer"]
    assert held.tolist() == [[1, 1], [1, 1], [0, 0]]


SGD, STILL, ADAM = {"momentum": 0.9}, {"momentum": 0.0}, {"name": "adam"}


@pytest.mark.parametrize(
    ("before", "after", "taken"),
    [
        (SGD, ADAM, False),
        (ADAM, SGD, False),
        (SGD, STILL, False),
        (ADAM, {"name": "adamw"}, True),
        (STILL, ADAM, None),
    ],
)
def test_carried_state_of_another_optimizer_is_left_out_and_said_so(before, after, taken) -> None:
    """Half a state of its own makes Adam fail, as it only fills in what it has nothing of."""

    def step_from_state(recipe, state, gradient):
        said: list[str] = []
        weight = nn.Parameter(torch.ones(2))
        optimizer = NamedOptimizer(
            OptimizerRecipe.model_validate(recipe), {"head.weight": weight}, 1, warn=said.append
        )
        optimizer.load_state(state)
        weight.grad = torch.tensor(gradient)
        optimizer.step()
        return weight, dict(optimizer.iterate_optimizer_state()), said

    _, carried, _ = step_from_state(before, {}, [1.0, 2.0])
    fresh, own, _ = step_from_state(after, {}, [3.0, -1.0])
    ours, held, said = step_from_state(after, carried, [3.0, -1.0])
    assert len(said) == (taken is False)
    assert held.keys() == own.keys()
    assert torch.equal(ours, fresh) is not bool(taken)


@pytest.mark.parametrize("normalise", [None, {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7]}])
def test_inputs_are_scaled_per_channel(normalise) -> None:
    images = torch.randint(0, 256, (2, 4, 4, 3), dtype=torch.uint8)
    mean = torch.tensor(normalise["mean"] if normalise else [0.5] * 3)
    std = torch.tensor(normalise["std"] if normalise else [0.25] * 3)
    wanted = ((images.float() / 255 - mean) / std).permute(0, 3, 1, 2)
    assert torch.allclose(
        InputNormaliser(normalise and Normalisation.from_json(normalise), 3, CPU)(images),
        wanted,
        atol=1e-5,
    )


def test_a_device_that_is_missing_is_an_error_and_auto_never_is() -> None:
    assert choose_torch_device("auto").type in ("cpu", "cuda")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="CUDA"):
            choose_torch_device("cuda")


def test_tensor_files_carry_no_metadata_and_equal_tensors_give_equal_bytes(tmp_path) -> None:
    base = torch.arange(12.0)
    save_tensors({"b": base[2:5], "a": base.reshape(3, 4).t()}, tmp_path / "one")
    save_tensors({"a": base.reshape(3, 4).t().clone(), "b": base[2:5].clone()}, tmp_path / "two")
    data = (tmp_path / "one").read_bytes()
    assert data == (tmp_path / "two").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert sorted(header) == ["a", "b"]
    assert torch.equal(load_tensors(tmp_path / "one")["a"], base.reshape(3, 4).t())


def test_a_state_rebuilt_from_its_parts_is_the_same_and_draws_on() -> None:
    state = MethodState()
    state["own"].tensors["x"] = torch.ones(2)
    state["own"].json["n"] = 3
    generator = state["own"].get_random_generator("g", 7)
    torch.rand(3, generator=generator)
    copy = MethodState()
    copy.replace_content(state.collect_tensors_by_type(), state.collect_json_by_type(), CPU)
    assert copy["own"].json == {"n": 3} and torch.equal(copy["own"].tensors["x"], torch.ones(2))
    again = copy["own"].get_random_generator("g", 0)
    assert torch.equal(torch.rand(3, generator=generator), torch.rand(3, generator=again))


def test_a_type_of_state_that_is_not_known_is_refused() -> None:
    with pytest.raises(KeyError, match="unknown type"):
        MethodState()["cache"]
