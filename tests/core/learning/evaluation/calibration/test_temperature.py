"""The temperature beside a slow search, and where a version's is from."""

import math

import pytest
import torch
from torch.nn import functional

from core.contract.manifest import Temperature
from core.learning.data.dataset import Dataset
from core.learning.evaluation.calibration.held_out import (
    HeldOutLogits,
    choose_stride_of_images_with_stored_logits,
    concatenate_task_logits,
)
from core.learning.evaluation.calibration.temperature import (
    choose_softmax_temperature_and_source,
    fit_softmax_temperature,
)
from core.learning.evaluation.evaluate import compute_task_logits
from core.learning.precision import InputNormaliser

NONE = torch.zeros(0, dtype=torch.int64)


def draw_logits(
    n: int, classes: int, scale: float, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw logits of a classifier whose right temperature is `scale`: classes are drawn from
    softmax(logits / scale).
    """
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return scale * logits, torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)


@pytest.mark.parametrize("scale", [0.05, 1.0, 40.0])
def test_it_is_the_least_of_a_slow_search(scale: float) -> None:
    logits, targets = draw_logits(2000, 7, scale)
    n, hit = len(targets), functional.one_hot(targets, 7).double()
    smooth = ((n + 1) * hit + (1 - hit) / 6) / (n + 2)
    grid = torch.linspace(0.9, 1.1, 801, dtype=torch.float64) * scale
    losses = torch.stack([functional.cross_entropy(logits / value, smooth) for value in grid])
    assert fit_softmax_temperature(logits, targets) == pytest.approx(
        float(grid[losses.argmin()]), rel=5e-4
    )
    assert fit_softmax_temperature(logits, targets) == pytest.approx(scale, rel=0.1)


def test_twice_the_logits_give_the_same_probabilities() -> None:
    logits, targets = draw_logits(200, 4, 1.0)
    once, twice = (
        fit_softmax_temperature(logits, targets),
        fit_softmax_temperature(2 * logits, targets),
    )
    assert twice == pytest.approx(2 * once, rel=1e-9)


@pytest.mark.parametrize("start", [1e-9, 0.5, 3.0, 1e9])
def test_the_search_ends_at_the_same_temperature_from_any_start(start: float) -> None:
    logits, targets = draw_logits(300, 5, 3.0)
    expected = fit_softmax_temperature(logits, targets)
    assert fit_softmax_temperature(logits, targets, start) == pytest.approx(expected, rel=1e-8)


def test_the_order_of_images_and_classes_changes_nothing() -> None:
    logits, targets = draw_logits(300, 5, 3.0)
    order, columns = torch.randperm(300), torch.tensor([3, 1, 4, 0, 2])
    moved = logits[order][:, columns], columns.argsort()[targets[order]]
    assert fit_softmax_temperature(*moved) == pytest.approx(
        fit_softmax_temperature(logits, targets), rel=1e-9
    )


def test_images_that_are_all_right_do_not_make_it_certain() -> None:
    logits = torch.tensor([[9.0, 0.0, 0.0]]).repeat(40, 1)
    probability = (
        logits / fit_softmax_temperature(logits, torch.zeros(40, dtype=torch.int64))
    ).softmax(1)[0, 0]
    assert float(probability) == pytest.approx(41 / 42, abs=1e-6)


def test_impossible_classes_and_broken_rows_are_left_out() -> None:
    logits, targets = draw_logits(300, 4, 2.0)
    wide = torch.full((303, 6), -torch.inf, dtype=torch.float64)
    wide[:300, :4] = logits
    wide[300], wide[301, :2] = (
        torch.nan,
        0.0,
    )  # NaN; a row whose own class is impossible; a row of one class
    wide[302, 5] = 1.0
    targets = torch.cat([targets, torch.tensor([0, 4, 5])])
    assert fit_softmax_temperature(wide, targets) == pytest.approx(
        fit_softmax_temperature(logits, targets[:300]), rel=1e-9
    )


def test_rows_count_if_their_class_and_another_are_possible() -> None:
    draw = torch.Generator().manual_seed(0)
    logits, targets = draw_logits(400, 3, 2.0)
    for value in (-math.inf, math.inf, math.nan):
        logits[torch.rand(logits.shape, generator=draw) < 0.1] = value
    usable = [
        row
        for row, (values, target) in enumerate(zip(logits.tolist(), targets.tolist(), strict=True))
        if not any(value == math.inf or math.isnan(value) for value in values)
        and math.isfinite(values[target])
        and sum(map(math.isfinite, values)) > 1
    ]
    assert 0 < len(usable) < 400
    assert fit_softmax_temperature(logits, targets) == fit_softmax_temperature(
        logits[usable], targets[usable]
    )


@pytest.mark.parametrize(
    ("logits", "targets"),
    [
        (torch.zeros(0, 3), NONE),
        (torch.randn(40, 1), torch.zeros(40, dtype=torch.int64)),
        (torch.ones(40, 3), torch.zeros(40, dtype=torch.int64)),
    ],
    ids=["no images", "one class", "equal logits"],
)
def test_it_is_one_where_nothing_can_be_fitted(logits: torch.Tensor, targets: torch.Tensor) -> None:
    assert fit_softmax_temperature(logits, targets) == 1


PARENT = Temperature(value=3.0, source="held-out", images=90)


@pytest.mark.parametrize(
    ("held_out", "left_out", "parent", "source", "images"),
    [
        (30, 50, PARENT, "held-out", 30),
        (29, 50, PARENT, "left-out", 50),
        (29, 29, PARENT, "parent", None),
        (0, None, PARENT, "parent", None),
        (29, None, Temperature(value=1.0, source="none"), "none", None),
        (0, None, None, "none", None),
    ],
)
def test_the_best_source_that_there_is(held_out, left_out, parent, source, images) -> None:
    scores, targets = draw_logits(100, 3, 5.0)
    logits = HeldOutLogits(scores[:held_out].float(), targets[:held_out])
    chosen = choose_softmax_temperature_and_source(
        logits,
        lambda: None if left_out is None else (scores[:left_out], targets[:left_out]),
        parent,
    )
    assert (chosen.source, chosen.images) == (source, images)
    wanted = {"held-out": held_out, "left-out": left_out}.get(source)
    value = {"parent": 3.0, "none": 1.0}.get(source) or fit_softmax_temperature(
        scores[:wanted], targets[:wanted]
    )
    assert chosen.value == pytest.approx(value, rel=1e-5)


def test_tasks_with_heads_of_their_own_are_joined() -> None:
    one = HeldOutLogits(torch.tensor([[1.0, 2.0]]), torch.tensor([1]))
    two = HeldOutLogits(torch.tensor([[3.0, 4.0, 5.0]]), torch.tensor([2]))
    both = concatenate_task_logits({1: one, 2: two})
    assert both.values.tolist() == [[1.0, 2.0, -torch.inf], [3.0, 4.0, 5.0]]
    assert both.targets.tolist() == [1, 2]
    assert concatenate_task_logits({}).values.shape == (0, 0)


@pytest.mark.parametrize(("most", "stride"), [(70, 1), (69, 2), (20, 4)])
def test_of_more_logits_than_fit_every_second_is_taken(most: int, stride: int) -> None:
    assert choose_stride_of_images_with_stored_logits([(10, 3), (20, 2)], most) == stride


def test_a_job_gives_its_version_the_temperature_of_all_held_out_images(bench) -> None:
    bench.n_held_out = 20
    first, second = bench.learn_tasks(2, method="finetune")
    assert first.result["temperature"] == {"value": 1.0, "source": "none"}
    told = second.result["temperature"]
    assert (told["source"], told["images"]) == ("held-out", 40)
    network, method = second.deployed()
    parts = {
        task: Dataset.read_dataset_file(bench.dataset(task, "held_out"), bench.task_classes(task))
        for task in (1, 2)
    }
    inputs = InputNormaliser(None, 1, torch.device("cpu"))
    logits = {
        task: compute_task_logits(network, data, task, method.predict_logits, inputs)
        for task, data in parts.items()
    }
    both = concatenate_task_logits(logits)
    assert told["value"] == pytest.approx(
        fit_softmax_temperature(both.values, both.targets), rel=1e-6
    )
    for task, of_task in logits.items():
        kept = second.answers["new", task]["probabilities"]
        wanted = (of_task.values / told["value"]).softmax(1).amax(1)
        assert torch.allclose(kept.float(), wanted, atol=1e-3)
    third = bench.learn_task(1, second, method="finetune", epochs=1)
    parents = third.answers["parent", 1]["probabilities"]
    assert torch.allclose(
        parents.float(), (logits[1].values / told["value"]).softmax(1).amax(1), atol=1e-3
    )


def test_of_too_many_logits_some_are_fitted_to_and_all_images_are_answered(
    bench, monkeypatch
) -> None:
    bench.n_held_out = 200
    whole = bench.learn_task(1, method="finetune")
    monkeypatch.setattr(
        "core.learning.evaluation.evaluator.choose_stride_of_images_with_stored_logits",
        lambda sizes: 2,
    )
    some = bench.learn_task(1, method="finetune")
    assert (whole.result["temperature"]["images"], some.result["temperature"]["images"]) == (
        200,
        100,
    )
    assert some.result["results"] == whole.result["results"]
    assert some.result["temperature"]["value"] != whole.result["temperature"]["value"]
