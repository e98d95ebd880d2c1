"""Choice between measured candidates, and the reason why each of the others was not chosen.

Candidates that pass the gate come first, then those of the best score. Scores within one standard
error of the best are equal: of those, the candidate with the fewest stored images is chosen, then
with the fewest bytes, then the fastest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from core.contract.jobs.trial import TrialMeasurements


@dataclass(frozen=True)
class MeasuredTrial:
    """A measured trial of a recipe: its number, its figures, and the seconds that it took."""

    number: int
    figures: TrialMeasurements
    seconds: float

    @property
    def tie_breaking_costs(self) -> tuple[int, int, float, int]:
        """Costs by which equally good trials are ordered, and the trial's number last."""
        return self.figures.images, self.figures.bytes, self.seconds, self.number


def choose_best_measured_trial(candidates: Sequence[MeasuredTrial]) -> MeasuredTrial:
    """Choose the best of one or more measured trials."""
    passing = [each for each in candidates if each.figures.passed] or list(candidates)
    scored = [each for each in passing if each.figures.score is not None]
    if not scored:
        # Nothing tells them apart but the order in which a person listed them.
        return min(passing, key=lambda each: each.number)
    best = max(scored, key=lambda each: (_get_trial_score_value(each), -each.number))
    bound = _get_trial_score_value(best) - _get_trial_standard_error(best)
    return min(
        (each for each in scored if _get_trial_score_value(each) >= bound),
        key=lambda each: each.tie_breaking_costs,
    )


def explain_why_trial_lost(loser: MeasuredTrial, winner: MeasuredTrial) -> str:
    """Explain in a sentence why a trial was not chosen and another one was."""
    figures, better = loser.figures, winner.figures
    if better.passed and not figures.passed:
        return f"Its version would be held by the gate: {figures.held}."
    if figures.score is None or better.score is None:
        return f"No image compares it with trial {winner.number}, which comes first in the list."
    gap = _get_trial_score_value(winner) - _get_trial_score_value(loser)
    if gap > 0 and _get_trial_score_value(loser) < _get_trial_score_value(
        winner
    ) - _get_trial_standard_error(winner):
        return (
            f"Its score is {gap:.1%} below that of trial {winner.number}, more than one standard "
            f"error ({_get_trial_standard_error(winner):.1%})."
        )
    for more, unit in (
        (figures.images - better.images, "images more are kept"),
        (figures.bytes - better.bytes, "bytes more are stored"),
    ):
        if more > 0:
            return f"It is as good within one standard error, but {more:,} {unit}."
    return "It is as good within one standard error, but takes longer."


def _get_trial_score_value(candidate: MeasuredTrial) -> float:
    score = candidate.figures.score
    assert score is not None, "only candidates with a score are compared"
    return float(score.value)


def _get_trial_standard_error(candidate: MeasuredTrial) -> float:
    score = candidate.figures.score
    assert score is not None, "only candidates with a score are compared"
    return float(score.error)
