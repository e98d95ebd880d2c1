"""Plain fine-tuning, which every method at strength zero must equal bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from core.learning.methods.method import Method, MethodHyper
from core.learning.methods.registration import register_method


@register_method
class FinetuneMethod(Method):
    """The method `finetune`: plain cross-entropy on the new batch, without protection from
    forgetting.
    """

    name = "finetune"
    description = "Trains on the new task only. The baseline that forgets."
    source = "The naive baseline of the continual-learning literature"
    scenario_warnings: ClassVar[Mapping[str, str]] = {
        "class": "plain fine-tuning forgets the old classes almost entirely"
    }
    neutral = MethodHyper()
    needs_classes = ""
    no_shards = ""
