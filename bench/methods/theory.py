"""Expected costs of a step of each method, in steps of plain fine-tuning: formulas to measure
against.

Costs count forward and backward passes over images; one forward pass is a third of a step. Passes
over the parameters alone (penalties) are named and count nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any

Number = Callable[[Mapping[str, Any], int, int], float]
"""Of the method's hyper-parameters, the batch size and the number of the task."""


TOKENS = 65
"""Of the small vision transformer: 8 x 8 patches of a 32-pixel image, and the class token."""


def _make_replay_cost_formula(draws: int) -> Number:
    def compute_replay_cost(hyper: Mapping[str, Any], batch: int, task: int) -> float:
        size = batch if hyper["replay_batch"] is None else hyper["replay_batch"]
        return 1 + draws * size / batch

    return compute_replay_cost


def _get_plain_cost(hyper: Mapping[str, Any], batch: int, task: int) -> float:
    return 1.0


def _compute_teacher_cost(hyper: Mapping[str, Any], batch: int, task: int) -> float:
    return 4 / 3


def _compute_vpt_cost(hyper: Mapping[str, Any], batch: int, task: int) -> float:
    return 1 + float(hyper["prompts"]) / TOKENS


def _compute_icarl_cost(hyper: Mapping[str, Any], batch: int, task: int) -> float:
    return 2 * 4 / 3  # as many exemplars as new images in each batch, where there are as many


def _compute_der_pp_cost(hyper: Mapping[str, Any], batch: int, task: int) -> float:
    return _make_replay_cost_formula(1 if hyper["draws"] == "shared" else 2)(hyper, batch, task)


def _compute_gem_cost(hyper: Mapping[str, Any], batch: int, task: int) -> float:
    looked_at = float(min(hyper["memory"], hyper["memory_batch"] or hyper["memory"]))
    return 1 + (task - 1) * looked_at / batch


def _compute_a_gem_cost(hyper: Mapping[str, Any], batch: int, task: int) -> float:
    return 1 + float(hyper["reference_batch"]) / batch


def _compute_dlcft_cost(hyper: Mapping[str, Any], batch: int, task: int) -> float:
    return 5 / 3  # in the class scenario also as many stored images as new ones: twice that


FORMULAS: dict[str, tuple[str, Number]] = {
    "finetune": ("1", _get_plain_cost),
    "l2-sp": ("1 + a pass over d", _get_plain_cost),
    "ewc": ("1 + a pass over d", _get_plain_cost),
    "ewc-online": ("1 + a pass over d", _get_plain_cost),
    "mas": ("1 + a pass over d", _get_plain_cost),
    "si": ("1 + 3 passes over d", _get_plain_cost),
    "lwf": ("1 + teacher's forward", _compute_teacher_cost),
    "dlcft": ("5/3 + o w (o + w) per layer", _compute_dlcft_cost),
    "icarl": ("at most 2 (1 + teacher)", _compute_icarl_cost),
    "vpt": ("1 + p / tokens", _compute_vpt_cost),
    "er": ("1 + B_r / B", _make_replay_cost_formula(1)),
    "der": ("1 + B_r / B", _make_replay_cost_formula(1)),
    "der++": ("1 + draws · B_r / B", _compute_der_pp_cost),
    "gem": ("1 + (t - 1) m / B", _compute_gem_cost),
    "a-gem": ("1 + m_ref / B", _compute_a_gem_cost),
}


def format_expected_cost(
    name: str, hyper: Mapping[str, Any], batch: int, task: int
) -> tuple[str, str]:
    """Format the expected training cost of a method, with its formula, relative to fine-tuning."""
    if name not in FORMULAS:
        return "-", "-"
    text, number = FORMULAS[name]
    return f"{number(hyper, batch, task):.2f}", text
