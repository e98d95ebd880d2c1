"""Sentences of the API on a page: they name its buttons in place of requests."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

from api.pages.parts.wording import replace_requests_by_button_labels
from core.lineage import wording


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            "Learn it (POST /v1/models/m/tasks/1/relearn), or wait.",
            "Learn it (“Learn task 1 again…”), or wait.",
        ),
        (
            "Learn it with POST /v1/models/m/tasks/1/relearn.",
            "Learn it with “Learn task 1 again…”.",
        ),
        (f"This job waits. {wording.SETTLED_BY}", "This job waits."),
        (
            "None. PUT /v1/models/m/aliases/production can put it on version 1 or 2.",
            "None. “Promote…” can put it on version 1 or 2.",
        ),
        (
            'Or as it is: POST /v1/jobs/job_1/retry with {"recipe": {"method": {"name": "ewc"}}}.',
            "Or as it is: “Learn it again…”.",
        ),
        (
            f"Mend that, and {wording.describe_fetch_retry_request('job_1')}. Batches wait.",
            "Mend that, and bring them again with “Try again”. Batches wait.",
        ),
        (
            "Put it there, and send POST /v1/jobs/job_1/retry.",
            "Put it there, and send “Try again”.",
        ),
        ("Retry its job: POST /v1/jobs/job_1/retry", "Retry its job: “Try again”"),
        ("POST /v1/models/b/rebase/finish puts a back there.", "“Put a back…” puts a back there."),
        ("send it with ?conflicts=keep.", "send it with “conflicts: keep”."),
        (
            "It looks like cat. Look at them: report.data.suspects of the task, and pictures on "
            "its page.",
            "It looks like cat. Look at them, on the page of the task.",
        ),
    ],
)
def test_a_sentence_names_the_button_in_place_of_the_request(told: str, said: str) -> None:
    assert replace_requests_by_button_labels(told) == said


@pytest.mark.parametrize(
    ("head", "moves"), [(2, ""), (3, "moves it to version 3, the newest, and ")]
)
def test_a_pinned_model_is_told_of_its_button(head: int, moves: str) -> None:
    model: Any = SimpleNamespace(name="birds", head=head)
    button = f" “Let production follow” {moves}lets it follow later ones."
    assert replace_requests_by_button_labels(wording.explain_pinned_production(model, 2)).endswith(
        button
    )
    assert not re.search(
        "/v1/", replace_requests_by_button_labels(wording.explain_pinned_production(model, 2))
    )
