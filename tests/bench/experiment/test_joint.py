"""The joint upper bound: what it equals, and what it does not depend on."""

import shutil
from pathlib import Path

import pytest
import torch
from experiments import FINETUNE_AND_JOINT, learn_run, learn_runs
from safetensors.torch import load_file
from torch.nn import functional

from bench.experiment import runs as runs_module
from bench.experiment.figures import draw_experiment_figures
from bench.experiment.grid import split_classes_into_tasks
from bench.experiment.joint import JointHeadsHyper, JointHeadsMethod
from bench.experiment.outcomes import collect_run_outcomes
from bench.experiment.runs import ExperimentResultStore
from bench.experiment.tables import render_experiment_summary
from core.learning.state import MethodState

ORDERS = 2
"""Order 1 has the tasks of order 0 the other way round."""


@pytest.fixture
def learned(runs, tmp_path, monkeypatch):
    """(method, order) → the tensors of the network after each stage, for a plan with these
    lines.
    """
    kept = []
    original = runs_module.run_job_and_evaluate

    def learn_and_keep_tensors(spec, *arguments):
        facts = original(spec, *arguments)
        parts = Path(spec["out"]) / "result" / "parts"
        files = [p for p in parts.iterdir() if p.name.startswith(("backbone", "head"))]
        kept.append({name: t for file in sorted(files) for name, t in load_file(file).items()})
        return facts

    monkeypatch.setattr(runs_module, "run_job_and_evaluate", learn_and_keep_tensors)

    def learn_all_runs(extra):
        found = {}
        for one in runs(extra):
            kept.clear()
            store = ExperimentResultStore(tmp_path / "out")
            learn_run(one, store)
            shutil.rmtree(store.get_unfinished_folder(one.result_inputs_digest))
            found[one.method, one.order] = list(kept)
        return found

    return learn_all_runs


def collect_values_by_role(tensors):
    """Return the values by role, in one order for a network with a head per task and for one with
    a single head.
    """
    heads = [t for name, t in sorted(tensors.items()) if name.startswith("head")]
    return [t for name, t in sorted(tensors.items()) if name.startswith("backbone")] + heads


@pytest.mark.parametrize(
    "extra", ['scenarios = ["task"]\n', "", "recipe = { train_ce = 'masked' }\n"]
)
def test_the_first_stage_is_full_fine_tuning_bit_for_bit(learned, extra):
    found = learned(extra + FINETUNE_AND_JOINT)
    ours, theirs = (
        collect_values_by_role(found["joint", 0][0]),
        collect_values_by_role(found["finetune", 0][0]),
    )
    assert len(ours) == len(theirs) == 4
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert not torch.equal(
        collect_values_by_role(found["joint", 0][1])[0],
        collect_values_by_role(found["finetune", 0][1])[0],
    )


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_the_last_stage_does_not_depend_on_the_order_of_the_tasks(learned, scenario):
    found = learned(
        f'scenarios = ["{scenario}"]\norders = {ORDERS}\n[[methods]]\nname = "joint"\njoint = '
        f"true\n"
    )
    tasks = {
        order: split_classes_into_tasks([0, 1, 2, 3], 2, order, "digits") for order in range(ORDERS)
    }
    turned = next(order for order in tasks if tasks[order] == tasks[0][::-1])
    ours, theirs = found["joint", 0], found["joint", turned]
    assert not torch.equal(collect_values_by_role(ours[0])[0], collect_values_by_role(theirs[0])[0])
    assert all(
        torch.equal(a, b)
        for a, b in zip(
            collect_values_by_role(ours[1]), collect_values_by_role(theirs[1]), strict=True
        )
    )


def test_every_image_competes_within_its_task_only():
    logits = torch.randn(
        6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    ).float()
    y = torch.tensor([0, 1, 2, 3, 1, 2])
    method = JointHeadsMethod(JointHeadsHyper(groups=[["a", "c"], ["d", "b"]]), MethodState())
    network = type(
        "Net", (), {"classes": ["a", "b", "c", "d"], "__call__": lambda self, x, task: logits}
    )()
    ctx = type("Ctx", (), {"network": network, "cache": {}, "device": torch.device("cpu")})()
    batch = type("Batch", (), {"x": None, "y": y, "task": None})()
    loss = method.compute_loss_terms(ctx, batch)["task"]
    rivals = {0: [0, 2], 2: [0, 2], 1: [1, 3], 3: [1, 3]}
    alone = [
        functional.cross_entropy(
            logits[i, rivals[int(c)]][None], torch.tensor([rivals[int(c)].index(int(c))])
        )
        for i, c in enumerate(y)
    ]
    assert float(loss) == pytest.approx(float(torch.stack(alone).mean()), abs=1e-6)


def test_the_gap_of_joint_to_itself_is_zero(runs, tmp_path):
    found, store = runs(FINETUNE_AND_JOINT), ExperimentResultStore(tmp_path / "out")
    learn_runs(found, store)
    outcomes, failed = collect_run_outcomes(found, store)
    assert not failed
    gaps = {(o.run.method, o.readout): o.figures["gap_to_joint"] for o in outcomes}
    last = {(o.run.method, o.readout): o.figures["last"] for o in outcomes}
    assert gaps["joint", "class"] == gaps["joint", "task"] == 0
    assert gaps["finetune", "class"] == pytest.approx(
        last["joint", "class"] - last["finetune", "class"]
    )


@pytest.mark.campaign  # the tests above have its stages
@pytest.mark.slow
def test_at_the_last_stage_alone_it_is_what_it_is_at_the_last_of_all(plan, runs, tmp_path):
    methods = FINETUNE_AND_JOINT + '\n[[methods]]\nname = "at-once"\njoint = "last"\n'
    made, store = runs(methods), ExperimentResultStore(tmp_path / "out")
    for _ in range(2):  # the second time nothing is left to learn
        learn_runs(made, store)
    outcomes, _ = collect_run_outcomes(made, store)
    found = {o.run.method: o for o in outcomes if o.readout == "class"}
    assert found["at-once"].figures["last"] == found["joint"].figures["last"]
    assert found["at-once"].by_stage == [None, found["joint"].by_stage[1]]
    assert found["at-once"].figures["average_incremental"] is None
    assert (
        render_experiment_summary(plan(methods), made, [], store, outcomes, []).count("at-once")
        >= 2
    )
    assert draw_experiment_figures(outcomes, tmp_path / "figures")
