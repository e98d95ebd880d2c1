"""Sentences of the service with commands in the place of requests."""

import pytest

from perennial.words import by_commands


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("with POST /v1/models/a/tasks/2/relearn (soon).", "with `perennial tasks relearn a 2` (soon)."),
        ("POST /v1/models/a/aliases/production/follow lets it.", "`perennial follow a` lets it."),
        ("POST /v1/jobs/job_1/retry, once more", "`perennial jobs retry job_1 --recipe '{}'`, once more"),
        ("DELETE /v1/models/a.", "`perennial models rm a`."),
        (
            'once more: POST /v1/models {"name": "a b", "base": {"model": "x", "version": 2}}.',
            'once more:\n  perennial models create \'a b\' --base \'{"model": "x", "version": 2}\'',
        ),
    ],
)
def test_a_request_is_told_as_the_command_that_makes_it(said: str, told: str) -> None:
    assert by_commands(said) == told


@pytest.mark.parametrize(
    "said", ["PUT /v1/models/a/aliases/production", "POST /v1/models {…}", "No request."]
)
def test_what_there_is_no_command_for_stays_as_it_is(said: str) -> None:
    assert by_commands(said) == said
