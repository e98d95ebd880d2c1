"""`/openapi.json` names every field of every answer that a scenario brings forth."""

import pytest

from tests.before_after import reading, scenario
from tests.before_after.contract import watch_contract
from tests.before_after.player import Player
from tests.before_after.record import SETTINGS
from tools import service

ASIDE = (
    "/",
    "/v1/audit",
    "/v1/usage",
    "/v1/usage?by=owner",
    "/v1/models/derpp/metrics?from=1&to=2&tasks=1,2",
)


# test_lifecycle.py here and tests/before_after/test_upgrade.py do it with less
@pytest.mark.campaign
@pytest.mark.timeout(1800)
def test_no_answer_has_a_field_that_openapi_does_not_name(tmp_path):
    with service.run_temporary_service(tmp_path / "data", SETTINGS) as running:
        player = Player(running.url, running.key)
        unnamed = watch_contract(player.http)
        scenario.play_scenario(player)
        reading.read_everything(player, "at the end", whole=set())
        for path in ASIDE:
            player.ask("GET", path)
    assert sorted(unnamed) == []
    assert player.requests > 1000
