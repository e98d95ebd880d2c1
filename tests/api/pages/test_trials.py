"""The trials of a job on its page, and the choice of one of them."""

from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from core.keys.keys import ADMIN_OWNER
from tests.api.choosing import make_choosing_job
from tests.api.conftest import KeyOf, Make

Text = Callable[[str], str]


def test_a_person_chooses_on_the_page_of_the_job(
    client: TestClient, archive: Make, text: Text, request: pytest.FixtureRequest
) -> None:
    job = make_choosing_job(client, archive, "to-choose")
    browser = request.getfixturevalue("logged_in")
    page = text(browser.get(f"/ui/jobs/{job}").text)
    assert "by its score, trial 2 is the best" in page
    assert "90.0 % ± 1.0 %" in page
    chosen = browser.post(f"/ui/jobs/{job}/choose", data={"trial": "1"})
    assert chosen.status_code == 303, chosen.text
    page = text(browser.get(f"/ui/jobs/{job}").text)
    assert "Choose trial" not in page and "1 of 2" not in page
    again = browser.post(f"/ui/jobs/{job}/choose", data={"trial": "2"})
    assert again.status_code == 409 and "Trial 1 is chosen already" in text(again.text)


def test_trials_are_read_and_chosen_by_those_who_may(
    client: TestClient, archive: Make, key_of: KeyOf
) -> None:
    job = make_choosing_job(client, archive, "to-choose")
    reader, stranger = key_of(ADMIN_OWNER, "read"), key_of("stranger", "write")
    table = client.get(f"/v1/jobs/{job}/trials", headers=reader).json()
    assert (table["best"], table["chosen"], table["state"]) == (2, None, "choosing")
    assert client.get(f"/v1/jobs/{job}/trials", headers=stranger).status_code == 404
    path, body = f"/v1/jobs/{job}/choose", {"trial": 1}
    assert client.post(path, json=body, headers=reader).status_code == 403
    assert client.post(path, json=body, headers=stranger).status_code == 404
    table = client.post(path, json=body).json()
    assert (table["chosen"], table["state"]) == (1, "queued")
    assert table["items"][1]["why_lost"] is not None
