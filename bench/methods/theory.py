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


def _replay(draws: int) -> Number:
    def number(hyper: Mapping[str, Any], batch: int, task: int) -> float:
        size = batch if hyper["replay_batch"] is None else hyper["replay_batch"]
        return 1 + draws * size / batch

    return number


def _return_one(hyper: Mapping[str, Any], batch: int, task: int) -> float:
    return 1.0


def _teacher(hyper: Mapping[str, Any], batch: int, task: int) -> float:
    return 4 / 3


def _vpt(hyper: Mapping[str, Any], batch: int, task: int) -> float:
    return 1 + hyper["prompts"] / TOKENS


def _icarl(hyper: Mapping[str, Any], batch: int, task: int) -> float:
    return 2 * 4 / 3  # as many exemplars as new images in each batch, where there are as many


def _der_pp(hyper: Mapping[str, Any], batch: int, task: int) -> float:
    return _replay(1 if hyper["draws"] == "shared" else 2)(hyper, batch, task)


def _gem(hyper: Mapping[str, Any], batch: int, task: int) -> float:
    looked_at = min(hyper["memory"], hyper["memory_batch"] or hyper["memory"])
    return 1 + (task - 1) * looked_at / batch


def _a_gem(hyper: Mapping[str, Any], batch: int, task: int) -> float:
    return 1 + hyper["reference_batch"] / batch


def _dlcft(hyper: Mapping[str, Any], batch: int, task: int) -> float:
    return 5 / 3  # in the class scenario also as many stored images as new ones: twice that


FORMULAS: dict[str, tuple[str, Number]] = {
    "finetune": ("1", _return_one),
    "l2-sp": ("1 + a pass over d", _return_one),
    "ewc": ("1 + a pass over d", _return_one),
    "ewc-online": ("1 + a pass over d", _return_one),
    "mas": ("1 + a pass over d", _return_one),
    "si": ("1 + 3 passes over d", _return_one),
    "lwf": ("1 + teacher's forward", _teacher),
    "dlcft": ("5/3 + o w (o + w) per layer", _dlcft),
    "icarl": ("at most 2 (1 + teacher)", _icarl),
    "vpt": ("1 + p / tokens", _vpt),
    "er": ("1 + B_r / B", _replay(1)),
    "der": ("1 + B_r / B", _replay(1)),
    "der++": ("1 + draws · B_r / B", _der_pp),
    "gem": ("1 + (t - 1) m / B", _gem),
    "a-gem": ("1 + m_ref / B", _a_gem),
}


def format_expected(name: str, hyper: Mapping[str, Any], batch: int, task: int) -> tuple[str, str]:
    """Return the expected relative cost and its formula as text; "-" for a method without a
    formula.
    """
    if name not in FORMULAS:
        return "-", "-"
    text, number = FORMULAS[name]
    return f"{number(hyper, batch, task):.2f}", text
