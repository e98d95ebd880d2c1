"""The recipes that a job compares, as a table."""

from __future__ import annotations

import json
from typing import Any

from perennial.cli.command import CommandContext, parse_json_option
from perennial.cli.output import Cell, print_text
from perennial.guard import quote_shell_word
from perennial.shapes import convert_to_json
from perennial.text import format_count_with_noun, make_text_one_line
from perennial.types import Trial, Trials

TRIAL_COLUMNS = (
    *("trial", "recipe", "state", "score", "accuracy", "forgetting"),
    *("seconds", "bytes", "images", "why it lost"),
)

RULE = (
    "Trials that pass the gate come first, and scores within one standard error of the best count as "
    "equal: of these, it keeps the fewest images and bytes."
)
"""The rule by which a trial is suggested."""


def parse_trials_option(text: str) -> Any:
    """Parse the value of `--trials`: "auto", or a JSON list of recipes."""
    return text if text == "auto" else parse_json_option(text)


def print_trials(shell: CommandContext, trials: Trials) -> None:
    """Print a table of a job's trials, and how to choose one if the job waits for that."""
    rows = [_build_trial_row(one, trials) for one in trials.items]
    shell.print_rows(trials, rows, "No trial.", TRIAL_COLUMNS)
    if shell.is_json:
        return
    if images := _describe_image_counts_of_trials(trials):
        print_text(images)
    if trials.chosen is not None:
        print_text(f"Trial {trials.chosen} is chosen.")
    elif trials.state == "choosing":
        job = quote_shell_word(trials.job)
        print_text(
            f"Trial {trials.best} is suggested. {RULE} Choose with: perennial jobs choose {job} "
            f"{trials.best}. Otherwise it is chosen at {trials.until}."
        )


def _describe_image_counts_of_trials(trials: Trials) -> str:
    """Describe how many images the trials' scores and accuracies rest on; empty if none is
    measured.
    """
    scored = max((one.score.images for one in trials.items if one.score is not None), default=0)
    held_out = max((one.held_out or 0 for one in trials.items), default=0)
    basis = (
        "that no trial learned"
        if trials.source == "selection"
        else "to learn from, each answered as if it had been left out"
    )
    sentences = [
        f"Scores rest on {format_count_with_noun(scored, 'image')} {basis}." if scored else "",
        f"Accuracy and forgetting rest on {format_count_with_noun(held_out, 'held-out image')}."
        if held_out
        else "",
    ]
    return " ".join(filter(None, sentences))


def _build_trial_row(trial: Trial, trials: Trials) -> tuple[Cell, ...]:
    score = trial.score
    is_chosen = trial.trial == trials.chosen
    return (
        trial.trial,
        make_text_one_line(json.dumps(convert_to_json(trial.recipe))),
        "chosen" if is_chosen else trial.state,
        None if score is None else f"{score.value:.1%} ± {score.standard_error:.1%}",
        _format_share(trial.acc),
        _format_share(trial.forgetting),
        trial.seconds,
        trial.bytes,
        trial.images,
        trial.why_lost,
    )


def _format_share(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"
