"""From plans to runs: orders, recipes, keys."""

import numpy as np
import pytest

from bench.experiment import grid
from bench.experiment.grid import resolve_planned_method_recipe, split_classes_into_tasks
from bench.experiment.plan import PlanError
from core.ingest.dataset import memory_map_image_dataset

ONE = '[[methods]]\nname = "finetune"\n'


def test_order_0_is_the_source_and_order_k_a_permutation_seeded_by_1000_plus_k():
    classes = [5, 6, 7, 8, 9, 1]
    assert split_classes_into_tasks(classes, 2, 0, "d") == [[5, 6], [7, 8], [1, 9]]
    for k in range(1, 11):
        order = np.random.default_rng(1000 + k).permutation(6)
        expected = [sorted(classes[i] for i in order[at : at + 2]) for at in (0, 2, 4)]
        assert split_classes_into_tasks(classes, 2, k, "d") == expected


def test_the_permutation_of_ten_digits_does_not_change_with_numpy():
    assert split_classes_into_tasks(list(range(10)), 2, 1, "d") == [
        [1, 7],
        [5, 9],
        [4, 6],
        [0, 2],
        [3, 8],
    ]


def test_tasks_that_do_not_come_out_even_are_refused():
    with pytest.raises(PlanError, match="d has 10 classes, which 3 a task do not divide"):
        split_classes_into_tasks(list(range(10)), 3, 0, "d")


def test_the_first_task_may_be_larger_than_the_others():
    assert split_classes_into_tasks(list(range(8)), 2, 0, "x", 4) == [[0, 1, 2, 3], [4, 5], [6, 7]]
    assert split_classes_into_tasks([3, 1, 2], 2, 0, "x", 3) == [[1, 2, 3]]
    for first in (3, 9):
        with pytest.raises(
            PlanError, match=f"2 a task after a first task of {first} do not divide"
        ):
            split_classes_into_tasks(list(range(8)), 2, 0, "x", first)


def test_every_combination_is_a_run_and_repetitions_come_last(runs):
    extra = 'scenarios = ["task", "class"]\norders = 2\nseeds = [3, 4]\ndepths = [1, 5]\n'
    found = runs(extra + ONE + '[[methods]]\nname = "er"\nrecipe.method = "er"\ndepths = [2]\n')
    assert len({run.result_inputs_digest for run in found}) == len(found) == 2 * 2 * 2 * 3
    assert {(r.order, r.seed) for r in found[:6]} == {(0, 3)}
    assert {(r.method, r.depth) for r in found} == {("finetune", 1), ("finetune", 5), ("er", 2)}


def test_the_stages_of_a_run_hold_their_own_tasks_and_those_of_joint_the_union(runs):
    run, joint = runs("orders = 1\n" + ONE + '[[methods]]\nname = "joint"\njoint = true\n')
    assert [s.classes for s in run.stages] == [["0", "1"], ["2", "3"]]
    assert [s.classes for s in joint.stages] == [["0", "1"], ["0", "1", "2", "3"]]
    assert joint.stages[0].train == run.stages[0].train
    assert [s.test for s in joint.stages] == [s.test for s in run.stages]
    assert np.bincount(memory_map_image_dataset(joint.stages[1].train)[1]).tolist() == [
        12,
        12,
        12,
        12,
    ]


def test_the_union_is_the_same_file_whatever_the_order_of_its_tasks(runs):
    found = runs('orders = 3\n[[methods]]\nname = "joint"\njoint = true\n')
    assert len({run.stages[0].train for run in found}) > 1
    assert len({run.stages[-1].train for run in found}) == 1


def test_whatever_decides_a_run_changes_its_key(runs, monkeypatch):
    (run,) = runs(ONE)
    changed = {
        "recipe": runs(ONE + "recipe.epochs = 2"),
        "seed": runs("seeds = [1]\n" + ONE),
        "depth": runs("depths = [1]\n" + ONE),
        "network": runs('architecture = { name = "mlp", hidden = [9] }\n' + ONE),
        "scenario": runs('scenarios = ["task"]\n' + ONE),
        "device": runs(ONE, "cuda"),
        "joint": runs(ONE + "joint = true"),
        "images": runs('data = [{ name = "digits", path = "digits", classes = "0-3", '
            'classes_per_task = 2 }]\n' + ONE),
        "tasks": runs('data = [{ name = "digits", path = "digits", classes = "1-4", '
            'classes_per_task = 2, '
                      "train_per_class = 12, test_per_class = 20 }]\n" + ONE),
    }  # fmt: skip
    monkeypatch.setattr(grid, "compute_learning_code_digest", lambda: "other")
    changed["code"] = runs(ONE)
    keys = {name: other[0].result_inputs_digest for name, other in changed.items()}
    assert len({run.result_inputs_digest, *keys.values()}) == 1 + len(keys), keys


def test_names_in_a_plan_do_not_change_a_key(runs):
    assert (
        runs(ONE)[0].result_inputs_digest
        == runs('[[methods]]\nname = "renamed"\nreference = true')[0].result_inputs_digest
    )


def test_a_recipe_is_the_plans_then_the_methods_then_that_for_the_scenario(plan):
    made = plan("""
        [[methods]]
        name = "ewc"
        recipe = { method = { name = "ewc-online", gamma = 0.5 }, batch_size = 4 }
        task.method.lambda = 7
        class = { epochs = 3, method = { lambda = 9 } }
        """)
    task, class_ = (
        resolve_planned_method_recipe(made, made.methods[0], s, 2, 11) for s in ("task", "class")
    )
    assert (task.method["gamma"], task.method["lambda"], task.batch_size, task.epochs) == (
        0.5,
        7,
        4,
        1,
    )
    assert (class_.method["gamma"], class_.method["lambda"], class_.epochs) == (0.5, 9, 3)
    assert (task.depth, task.seed, task.optimizer.lr) == (2, 11, 0.05)


def test_a_method_that_names_none_is_fine_tuning(plan):
    made = plan(ONE)
    assert resolve_planned_method_recipe(made, made.methods[0], "class", 5, 0).method == {
        "name": "finetune"
    }


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (
            ONE + 'recipe.method = "nothing"',
            "finetune (class scenario, depth 5): recipe.method.name: unknown method",
        ),
        (ONE + "recipe.epochs = 0", "finetune (class scenario, depth 5): recipe.epochs: "),
        (
            'architecture = { name = "mpl" }\n' + ONE,
            "finetune: architecture: unknown architecture 'mpl'",
        ),
        (
            'architecture = { name = "convnext_tiny" }\n' + ONE,
            "convnext_tiny needs 16 pixels, images have 8",
        ),
        (
            ONE + 'recipe.method = "vpt"\ndepths = [1]',
            "finetune (class scenario, depth 1): recipe.method.name: vpt works on",
        ),
    ],
)
def test_what_cannot_run_is_named_before_it_is_tried(runs, extra, message):
    with pytest.raises(PlanError) as error:
        runs(extra)
    assert message in str(error.value)
