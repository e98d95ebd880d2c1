"""The order of candidates, and the reasons for it."""

from typing import Any

import pytest

from core.contract.jobs.trial import TrialMeasurements, TrialScore
from core.trials.trial_comparison import (
    MeasuredTrial,
    choose_best_measured_trial,
    explain_why_trial_lost,
)


def make_trial(
    number: int, value: float | None = 0.5, seconds: float = 1.0, **fields: Any
) -> MeasuredTrial:
    score = None
    if value is not None:
        score = TrialScore(source="selection", value=value, error=0.02, images=100)
    figures = {"passed": True, "bytes": 10, "images": 0, "score": score, **fields}
    return MeasuredTrial(number, TrialMeasurements(**figures), seconds)


ORDERS: dict[str, tuple[list[MeasuredTrial], int, str]] = {
    "the best score": (
        [make_trial(1, 0.5), make_trial(2, 0.6)],
        2,
        "Its score is 10.0% below that of trial 2, more than one standard error (2.0%).",
    ),
    "a candidate that passes the gate": (
        [make_trial(1, 0.9, passed=False, held="forgetting is 0.4"), make_trial(2, 0.5)],
        2,
        "Its version would be held by the gate: forgetting is 0.4.",
    ),
    "fewer images within a standard error": (
        [make_trial(1, 0.51, images=200), make_trial(2, 0.5, bytes=99)],
        2,
        "It is as good within one standard error, but 200 images more are kept.",
    ),
    "fewer bytes at the same images": (
        [make_trial(1, 0.51, bytes=1010), make_trial(2, 0.5, seconds=9.0)],
        2,
        "It is as good within one standard error, but 1,000 bytes more are stored.",
    ),
    "the faster one at last": (
        [make_trial(1, 0.5, seconds=2.0), make_trial(2, 0.5, seconds=1.0)],
        2,
        "It is as good within one standard error, but takes longer.",
    ),
    "the first one without any score": (
        [make_trial(1, None, images=5), make_trial(2, None)],
        1,
        "No image compares it with trial 1, which comes first in the list.",
    ),
}


@pytest.mark.parametrize("case", ORDERS)
def test_candidates_are_chosen_in_order_and_the_others_are_told_why(case: str) -> None:
    candidates, number, reason = ORDERS[case]
    winner = choose_best_measured_trial(candidates)
    assert winner.number == number
    assert choose_best_measured_trial(candidates[::-1]) == winner, (
        "the order of the list does not matter"
    )
    (loser,) = (each for each in candidates if each.number != number)
    assert explain_why_trial_lost(loser, winner) == reason


def test_a_gap_beyond_a_standard_error_is_not_a_tie() -> None:
    assert (
        choose_best_measured_trial([make_trial(1, 0.6, images=1000), make_trial(2, 0.57)]).number
        == 1
    )
