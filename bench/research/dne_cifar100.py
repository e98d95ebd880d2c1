r"""DNE on CIFAR-100 beside fine-tuning, iCaRL, der-net and joint learning: accuracy, time and
bytes.

    python -m bench.research.dne_cifar100 --data DIR [--protocol reduced|full] [--per-task N] \
        [--heads 1 2 4] [--device cuda]

A first task of half the classes, then `--per-task` classes at a time; one classifier, no task is
named. All methods train the architecture `dne`, except that der-net adds it whole for each task and
joint learning has all images at once. `full` is the protocol of Hu et al. 2023 (CVPR) with 200
epochs: 50 classes, then 10 (or 5, 25) at a time, 2,000 exemplars, their class order, six layers of
12 heads, RandAugment; it needs a GPU. `reduced` is for a CPU: 20 classes, 10 and then 2 at a time,
300 images of each, 400 exemplars, four layers of 6 heads of 16 channels.

Printed: LA and AA (accuracy on all classes so far: at the end, and averaged over the stream), D
(how far LA lies below joint learning), operations of an answer in G (2 per multiplication), images
per second and minutes of learning, MB that a version adds to the store, network and exemplars, and
the paper's figures beside the full protocol.

DIR holds `cifar100/` (zip archives of train/<class>/ and test/<class>/). Results go to --out, and
the same command goes on after an interruption, from the last snapshot of each run: it may be run in
pieces.
"""

import argparse
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from bench.experiment.conduct import run_experiment_plan
from bench.experiment.data import ExperimentDatasetCache
from bench.experiment.grid import ExperimentRun, expand_plan_to_runs
from bench.experiment.outcomes import RunOutcomeUnderProtocol, collect_run_outcomes
from bench.experiment.plan import ExperimentPlan
from bench.experiment.program import restart_with_job_environment_and_run_main
from bench.experiment.runs import ExperimentResultStore
from core.learning.networks import HeadSpec, ImageSpec, build_network
from core.learning.networks.der_net import DerNetwork
from core.learning.networks.dne.network import DneNetwork

Json = dict[str, Any]
ORDER = (
    87, 0, 52, 58, 44, 91, 68, 97, 51, 15, 94, 92, 10, 72, 49, 78, 61, 14, 8, 86, 84, 96, 18, 24, 32,
    45, 88, 11, 4, 67, 69, 66, 77, 47, 79, 93, 29, 50, 57, 83, 17, 81, 41, 12, 37, 59, 25, 20, 80, 73,
    1, 28, 6, 46, 62, 82, 53, 9, 31, 75, 38, 63, 33, 74, 27, 22, 36, 3, 16, 21, 60, 19, 70, 90, 89,
    43, 5, 42, 65, 76, 40, 30, 23, 85, 2, 95, 56, 48, 71, 64, 98, 13, 99, 7, 34, 55, 54, 26, 35, 39,
)  # fmt: skip
"""Of classes, in the paper's experiments (their first order)."""
NORMALISE = {"mean": [0.5071, 0.4867, 0.4408], "std": [0.2675, 0.2565, 0.2761]}
PAPER = {
    (5, "dne-1"): (69.10, 74.03, 7.02),
    (5, "dne-2"): (69.72, 74.27, 6.40),
    (5, "dne-4"): (69.43, 74.20, 6.69),
    (5, "joint"): (76.12, None, 0.0),
    (10, "dne-1"): (68.04, 73.68, 8.08),
    (10, "dne-2"): (69.73, 74.61, 6.39),
    (10, "dne-4"): (70.04, 74.86, 6.08),
    (10, "joint"): (76.12, None, 0.0),
    (25, "dne-1"): (67.61, 73.27, 8.51),
    (25, "dne-2"): (68.99, 73.91, 7.13),
    (25, "dne-4"): (71.47, 75.70, 4.65),
    (25, "joint"): (76.12, None, 0.0),
}
"""(classes per task, method): LA, AA and D of the paper's tables 1 and 2, after 500 epochs. Its
other rows are of other networks (ResNet-18)."""
COUNTED = 64
"""Images of the batch whose operations are counted: what is done once for a batch is shared by
them.
"""


@dataclass(frozen=True)
class DneExperimentSettings:
    """Sizes of the DNE experiment: images per class, epochs, warm-up steps."""

    classes: int
    per_task: int
    images: int | None
    exemplars: int
    architecture: Json
    epochs: int
    tuning_epochs: int
    batch_size: int
    lr: float
    warmup: int
    augment: str


PROTOCOLS = {
    "full": DneExperimentSettings(100, 10, None, 2000, {"name": "dne"}, 200, 20, 256, 2.5e-4, 100, "rand-augment"),
    "reduced": DneExperimentSettings(
        20, 2, 300, 400, {"name": "dne", "layers": 4, "head_dim": 16, "heads": 6}, 20, 8, 64, 2e-3, 50,
        "shift-flip"
    ),
}  # fmt: skip


def build_experiment_plan(
    protocol: DneExperimentSettings, per_task: int, heads: list[int], seeds: list[int]
) -> ExperimentPlan:
    """Build the plan of the DNE experiment on CIFAR-100. Raises PlanError."""
    exemplar_setting = {"exemplars": protocol.exemplars}
    expanding = {**exemplar_setting, "tuning_epochs": protocol.tuning_epochs}
    methods: dict[str, Json] = {
        "der-net": {"name": "der-net", **expanding},
        "icarl": {"name": "icarl", **exemplar_setting},
        **{f"dne-{k}": {"name": "dne", "heads": k, **expanding} for k in heads},
        "finetune": {"name": "finetune"},
    }
    optimizer = {
        "name": "adamw", "lr": protocol.lr, "weight_decay": 1e-6, "warmup_steps": protocol.warmup,
    }  # fmt: skip
    content = {
        "name": "dne-cifar100",
        "description": f"{protocol.classes} classes of CIFAR-100, half first, then {per_task} at a "
        f"time.",
        "architecture": protocol.architecture,
        "scenarios": ["class"],
        "seeds": seeds,
        "recipe": {
            "epochs": protocol.epochs,
            "batch_size": protocol.batch_size,
            "augment": protocol.augment,
            "head": {"init": "default"},
            "optimizer": optimizer,
        },
        "data": [
            {
                "name": "cifar100",
                "path": "cifar100",
                "classes": ",".join(map(str, ORDER[: protocol.classes])),
                "first_task": protocol.classes // 2,
                "classes_per_task": per_task,
                **({"train_per_class": protocol.images} if protocol.images else {}),
                "normalise": NORMALISE,
            }
        ],
        "methods": [
            *({"name": name, "recipe": {"method": method}} for name, method in methods.items()),
            {"name": "joint", "joint": "last"},
        ],
    }
    return ExperimentPlan.model_validate_json(json.dumps(content))


def count_flops_of_prediction(method: str, architecture: Json, tasks: int, classes: int) -> float:
    """Count the floating-point operations of one prediction by the last version, in G."""
    names = tuple(map(str, range(classes)))
    network = build_network(architecture, ImageSpec(32, 3), "class", HeadSpec(names))
    if method.startswith("dne-"):
        network = DneNetwork(network, [int(method.removeprefix("dne-"))] * (tasks - 1))
    elif method == "der-net":
        network = DerNetwork(network, [1] * (tasks - 1))
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        network.eval()(torch.zeros(COUNTED, 3, 32, 32))
    return float(counter.get_total_flops()) / COUNTED / 1e9


def render_results_table(
    outcomes: list[RunOutcomeUnderProtocol], architecture: Json, per_task: int, full: bool
) -> str:
    """Render a Markdown table of final accuracies with a row per run."""
    paper = ["paper's LA", "AA", "D"] if full else []
    head = [
        "method",
        "seed",
        "LA %",
        "AA %",
        "D",
        "Gop",
        "images/s",
        "minutes",
        "network MB",
        "exemplars MB",
    ]
    lines = [f"| {' | '.join(head + paper)} |", f"|---|{'---:|' * (len(head) + len(paper) - 1)}"]
    for outcome in outcomes:
        run, stages = outcome.run, outcome.record["stages"]
        figures = [
            outcome.figures[name] for name in ("last", "average_incremental", "gap_to_joint")
        ]
        seconds = sum(stage["seconds"] for stage in stages)
        later = stages[1:] or stages
        new = sum(stage["new_bytes"] - stage["new_state_bytes"] for stage in later) / len(later)
        cells = [
            *(_format_number(None if value is None else 100 * value) for value in figures),
            _format_number(
                count_flops_of_prediction(
                    run.method, architecture, len(run.stages), len(_list_run_classes(run))
                ),
                3,
            ),
            f"{sum(stage['images'] for stage in stages) / seconds:,.0f}",
            f"{seconds / 60:.1f}",
            _format_number(new / 1e6, 3),
            _format_number(stages[-1]["state_bytes"] / 1e6, 3),
        ]
        paper_figures = PAPER.get((per_task, run.method), (None, None, None))
        cells += [_format_number(value) for value in paper_figures] if full else []
        lines.append(f"| {' | '.join([run.method, str(run.seed), *cells])} |")
    return "\n".join(lines)


def _list_run_classes(run: ExperimentRun) -> set[str]:
    return {name for stage in run.stages for name in stage.test.classes}


def _format_number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def main() -> int:
    """Run the DNE experiment on CIFAR-100, and return its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--out", type=Path, help="default experiments/dne-cifar100-<protocol>-<per task>"
    )
    parser.add_argument("--protocol", choices=list(PROTOCOLS), default="reduced")
    parser.add_argument(
        "--per-task", type=int, help="classes of later tasks (default: 10 full, 2 reduced)"
    )
    parser.add_argument("--heads", type=int, nargs="+", default=[1], help="of a new expert")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="runs at once"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    protocol = PROTOCOLS[options.protocol]
    per_task = options.per_task or protocol.per_task
    out = options.out or Path("experiments") / f"dne-cifar100-{options.protocol}-{per_task}"
    plan = build_experiment_plan(protocol, per_task, options.heads, options.seeds)
    status = run_experiment_plan(plan, options.data, out, options.jobs, options.device)
    _, runs = expand_plan_to_runs(
        plan, ExperimentDatasetCache(options.data, out / "data"), options.device
    )
    outcomes, _ = collect_run_outcomes(runs, ExperimentResultStore(out))
    class_outcomes = [outcome for outcome in outcomes if outcome.readout == "class"]
    print(
        render_results_table(
            class_outcomes, protocol.architecture, per_task, options.protocol == "full"
        )
    )
    return status


if __name__ == "__main__":
    restart_with_job_environment_and_run_main("bench.research.dne_cifar100", main)
