"""The sum of OLOR's shares over a task: against its own steps, asked for, reported, and
warned of.
"""

from __future__ import annotations

import pytest
import torch
from recipes import resolve_patch
from torch import nn

from core.learning.optimizers.build import NamedOptimizer
from core.learning.optimizers.olor import AnchoredParameter
from core.learning.optimizers.rollback import TrainingStageDepthAndSteps, resolve_olor_settings
from core.learning.recipe import Recipe


def resolve_olor_recipe(olor: dict[str, object], **optimizer: object) -> Recipe:
    return resolve_patch(
        {"method": "finetune", "optimizer": {"lr": 0.1, "olor": olor, **optimizer}}
    )


def measure_remaining_distance(of: Recipe, iota: float, steps: int) -> float:
    """Return the remainder of a weight's distance from its anchor after these steps with zero
    gradients.
    """
    parameter = nn.Parameter(torch.ones(1, dtype=torch.float64))
    anchor = torch.zeros(1, dtype=torch.float64)
    optimizer = NamedOptimizer(
        of.optimizer, {"backbone.w": parameter}, steps, [AnchoredParameter(parameter, anchor, iota)]
    )
    for step in range(steps):
        optimizer.set_learning_rates_for_step(step)
        parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    return parameter.item()


@pytest.mark.parametrize(
    "optimizer",
    [{"schedule": "cosine"}, {"schedule": "constant"}, {"schedule": "cosine", "warmup_steps": 30}],
)
@pytest.mark.parametrize("wanted", [0.5, 3.0])
def test_what_the_steps_roll_back_is_the_sum_that_was_asked_for(optimizer, wanted) -> None:
    """With many small shares the way that is left is exp(-sum)."""
    asked = resolve_olor_recipe({"iota1": 0.9, "iota_total": wanted}, **optimizer)
    found = resolve_olor_settings(asked, [TrainingStageDepthAndSteps(5, 4000)])
    assert found is not None and found.iota_total is None and found.iota1 < 0.01
    assert measure_remaining_distance(asked, found.iota1, 4000) == pytest.approx(
        torch.tensor(-wanted).exp().item(), rel=0.01
    )


def test_a_stage_that_leaves_the_backbone_alone_takes_no_part_in_the_sum() -> None:
    asked = resolve_olor_recipe({"iota_total": 6.0}, schedule="constant")
    stages = [
        TrainingStageDepthAndSteps(1, 1000),
        TrainingStageDepthAndSteps(3, 40),
        TrainingStageDepthAndSteps(5, 20),
    ]
    assert resolve_olor_settings(asked, stages).iota1 == pytest.approx(0.1)
    assert resolve_olor_settings(asked, stages[:1]).iota1 == pytest.approx(
        0.006
    )  # rows of the head may be held


def test_a_recipe_without_a_sum_keeps_its_share_per_step() -> None:
    asked = resolve_olor_recipe({"iota1": 0.25})
    assert resolve_olor_settings(asked, [TrainingStageDepthAndSteps(5, 7)]) == asked.optimizer.olor
    assert resolve_olor_settings(resolve_patch({}), [TrainingStageDepthAndSteps(5, 7)]) is None


def learn_with_olor(bench, olor, **more):
    optimizer = {"lr": 0.02, "schedule": "constant", "olor": olor}
    return bench.learn_task(1, method="finetune", optimizer=optimizer, **more)


def test_the_sum_and_the_share_per_step_that_make_it_give_the_same_bits(bench) -> None:
    bench.n, size = 16, {"batch_size": 4, "epochs": 2}
    total, share = (
        learn_with_olor(bench, {"iota_total": 4.0}, **size),
        learn_with_olor(bench, {"iota1": 0.5}, **size),
    )
    assert total.network_digests == share.network_digests
    assert total.result["rollback"] == share.result["rollback"] == {"first": 4.0, "mean": 4.0}


def test_the_sum_is_reported_by_the_first_layer_and_in_the_mean(bench) -> None:
    bench.architecture, bench.n = {"name": "mlp", "hidden": [6, 6, 6]}, 16
    found = learn_with_olor(bench, {"iota1": 0.5, "gamma": 1.0}, batch_size=4, epochs=2)
    wanted = {"first": 4.0, "mean": pytest.approx((4.0 + 2.0 + 0.0) / 3)}
    assert found.result["rollback"] == wanted
    (metric,) = [event for event in found.events if event.get("name") == "rollback"]
    assert {"first": metric["value"], **metric["data"]} == wanted


def test_shares_beyond_one_count_as_one(bench) -> None:
    bench.n = 16
    found = learn_with_olor(bench, {"iota_total": 80.0}, batch_size=4, epochs=2)
    assert found.result["rollback"]["first"] == 8.0
    assert found.warns("limited to the range")


@pytest.mark.parametrize(("total", "warned"), [(2.9, True), (3.1, False)])
def test_a_sum_below_three_is_warned_of_with_what_to_set(bench, total, warned) -> None:
    found = learn_with_olor(bench, {"iota_total": total})
    told = [text for text in found.result["warnings"] if "optimizer.olor.iota_total" in text]
    assert bool(told) is warned


def test_nothing_is_reported_without_olor_or_where_it_holds_no_layer(bench) -> None:
    assert "rollback" not in learn_with_olor(bench, None).result
    assert "rollback" not in learn_with_olor(bench, {"iota1": 0.5}, depth=1).result
    assert "rollback" not in learn_with_olor(bench, {"iota1": 0.0}).result
