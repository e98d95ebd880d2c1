"""Recipes by name, each a patch of the defaults."""

from __future__ import annotations

from typing import Any

_OLOR = {"iota1": 0.01, "iota2": 0.0, "gamma": 2.0}
PRESETS: dict[str, dict[str, Any]] = {
    # For models that start from random weights: see each method's `from_random`.
    "from-random": {},
    # Only the head is trained; the whole backbone stays in eval mode.
    "linear-probe": {"method": {"name": "finetune"}, "depth": 1},
    # OLOR with the rates at which its authors fine-tune ConvNeXt and ViT.
    "olor-sgd": {"optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9, "olor": _OLOR}},
    "olor-adam": {"optimizer": {"name": "adam", "lr": 0.0001, "olor": _OLOR}},
    # FAST: in the first step a zero head gives the backbone no gradient. The head's larger rate
    # lets it catch up. Adam's second step is as long as any other: take lr 0.0001, head_lr 0.001,
    # warmup_steps 10 or more.
    "fast": {
        "method": {"name": "finetune"},
        "optimizer": {
            "name": "sgd",
            "lr": 0.001,
            "head_lr": 0.01,
            "momentum": 0.9,
            "schedule": "constant",
        },
        "head": {"init": "zero"},
        "sampler": "stratified",
        "validation": 0.05,
        "anytime": True,
    },
}
