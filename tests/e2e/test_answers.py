"""`/openapi.json` names every field of every answer that a scenario brings forth."""

import httpx2
import pytest

from tests.before_after import reading, scenario
from tests.before_after.player import Player
from tests.before_after.record import SETTINGS
from tests.openapi import Contract
from tools import service

ASIDE = (
    "/",
    "/v1/audit",
    "/v1/usage",
    "/v1/usage?by=owner",
    "/v1/models/derpp/metrics?from=1&to=2&tasks=1,2",
)


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        pytest.param("short", 300, marks=pytest.mark.slow),
        pytest.param("full", 1000, marks=pytest.mark.campaign),
    ],
)
@pytest.mark.timeout(900)
def test_no_answer_has_a_field_that_openapi_does_not_name(tmp_path, name, requests):
    with service.running(tmp_path / "data", SETTINGS) as running:
        player = Player(running.url, running.key)
        contract = Contract(player.http.get("/openapi.json").json())
        unnamed: set[str] = set()

        def compare(response: httpx2.Response) -> None:
            response.read()
            unnamed.update(contract.faults(response))

        player.http.event_hooks["response"].append(compare)
        scenario.PLAYS[name](player)
        reading.read_all(player, "at the end", whole=set())
        for path in ASIDE:
            player.ask("GET", path)
    assert sorted(unnamed) == []
    assert player.requests > requests
