"""Streams of new images of the same classes: how they are cut, and how they are read out."""

import numpy as np
import pytest
from experiments import FINETUNE_AND_JOINT, learn_runs

from bench.experiment.outcomes import collect_run_outcomes
from bench.experiment.plan import PlanError
from bench.experiment.runs import ExperimentResultStore
from core.ingest.dataset import memory_map_image_dataset

COUNTS = "train_per_class = 13, test_per_class = 20"
SPLITS = f"""
scenarios = ["data"]
data = [{{ name = "digits", path = "digits", classes = "0-2", splits = 4, {COUNTS} }}]
"""


def read_stage_images(stage):
    pixels, labels = memory_map_image_dataset(stage.train)
    return {
        (image.tobytes(), int(label)) for image, label in zip(pixels, labels, strict=True)
    }, labels


def test_each_class_is_shared_out_over_the_tasks(runs):
    run, joint = runs(SPLITS + FINETUNE_AND_JOINT)
    shares, counts = zip(*(read_stage_images(stage) for stage in run.stages), strict=True)
    assert [np.bincount(labels).tolist() for labels in counts] == [
        [4] * 3,
        [3] * 3,
        [3] * 3,
        [3] * 3,
    ]
    everything, _ = read_stage_images(joint.stages[0])
    assert set().union(*shares) == everything
    assert sum(len(share) for share in shares) == len(everything)
    assert len({stage.test.file for stage in (*run.stages, *joint.stages)}) == 1


def test_learning_all_at_once_is_one_run_however_the_images_are_split(runs):
    second = f'{{ name = "two", path = "digits", classes = "0-2", splits = 2, {COUNTS} }}'
    two = SPLITS.replace("}]", f"}}, {second}]")
    joint = [run for run in runs(two + FINETUNE_AND_JOINT) if run.joint]
    assert [run.data for run in joint] == ["digits", "two"]
    assert joint[0].result_inputs_digest == joint[1].result_inputs_digest


def test_a_data_set_may_be_for_some_seeds_only(runs, plan):
    some = SPLITS.replace("splits = 4", "splits = 4, seeds = [1]")
    assert [
        run.seed for run in runs("seeds = [0, 1]\n" + some + '[[methods]]\nname = "finetune"\n')
    ] == [1]
    with pytest.raises(PlanError, match="data: digits names seeds that are not the plan's"):
        plan(some + '[[methods]]\nname = "finetune"\n')


def test_an_order_shares_them_out_again(runs):
    first, second = runs("orders = 2\n" + SPLITS + '[[methods]]\nname = "finetune"\n')
    assert first.result_inputs_digest != second.result_inputs_digest
    assert read_stage_images(first.stages[0])[0] != read_stage_images(second.stages[0])[0]


def test_more_tasks_than_images_of_a_class_are_refused(runs):
    with pytest.raises(PlanError, match="a class has 13 training images, too few for 14 splits"):
        runs(SPLITS.replace("splits = 4", "splits = 14") + FINETUNE_AND_JOINT)


def test_it_is_read_out_on_one_test_set_and_compared_with_learning_all_at_once(runs, tmp_path):
    found = runs(SPLITS + FINETUNE_AND_JOINT)
    store = ExperimentResultStore(tmp_path / "out")
    learn_runs(found, store)
    (plain, joint), failed = collect_run_outcomes(found, store)
    assert not failed
    assert plain.readout == "data"
    assert len(plain.by_stage) == 4
    assert len(joint.by_stage) == 1
    assert plain.figures["last"] == plain.by_stage[-1] == plain.matrix[3][0]
    assert plain.figures["gap_to_joint"] == pytest.approx(joint.by_stage[0] - plain.by_stage[-1])
    assert plain.figures["forgetting"] is None
