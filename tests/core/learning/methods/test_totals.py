"""Totals stand for the sums and features of all tasks, and are made of these again with the same
bits.
"""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from streams import Bench, Learned

from core.contract.manifest import PER_TASK, TOTALS
from core.learning.methods import analytic


def replace_by_totals(spec: dict[str, Any], parent: Learned) -> dict[str, Any]:
    """Replace what totals stand for in a spec by the totals that the parent's job has left."""
    parts = [part for part in spec["parent"]["parts"] if part["type"] not in PER_TASK]
    parts.append(
        {"name": TOTALS, "type": TOTALS, "path": str(parent.folder / parent.result["totals"])}
    )
    return {**spec, "parent": {**spec["parent"], "parts": parts}}


def digest_totals(learned: Learned) -> str:
    return hashlib.sha256(Path(learned.folder, learned.result["totals"]).read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("scenario", "method"),
    [
        ("class", {"name": "analytic", "projection": 100}),
        pytest.param("task", {"name": "analytic"}, marks=pytest.mark.campaign),
        ("data", {"name": "analytic", "keep": "sums", "projection": 7}),
        pytest.param("class", {"name": "analytic", "head": "ncm"}, marks=pytest.mark.campaign),
        pytest.param(
            "class",
            {"name": "analytic", "head": "ridge", "balanced": False},
            marks=pytest.mark.campaign,
        ),
    ],
)
def test_a_stream_of_updates_from_totals_has_the_bits_of_one_from_all_parts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, scenario: str, method: dict[str, Any]
) -> None:
    # Fewer examples of each class are drawn as classes are added.
    monkeypatch.setattr(analytic, "LEFT_OUT", 24)
    bench.scenario = scenario
    by_parts = bench.learn_tasks(3, method=method)
    by_totals = [by_parts[0]]
    for number in (2, 3):
        spec = replace_by_totals(bench.spec(number, by_totals[-1], method=method), by_totals[-1])
        by_totals.append(bench.learn(spec))
    for one, other in zip(by_parts[1:], by_totals[1:], strict=True):
        assert one.digests == other.digests
        assert digest_totals(one) == digest_totals(other)
    assert len(by_parts[2].digests) > 3


def test_totals_are_no_part_of_a_version(bench: Bench) -> None:
    learned = bench.learn_task(1, method="analytic")
    assert TOTALS not in {part["type"] for part in learned.result["parts"]}
    assert "totals" not in bench.learn_task(1, method="er").result
