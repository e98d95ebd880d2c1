"""The short form of the crash campaign: both sizes of the service, killed again and again, lose nothing."""

from pathlib import Path
from typing import Any

import campaign
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_the_small_size_ends_as_if_nothing_had_been(tmp_path: Path) -> None:
    with campaign.site(tmp_path / "site", "small", {}) as site:
        report = campaign.Campaign(site, kills=20, lanes=3, seed=1).run()
    assert report.kills.total() >= 20 and len(report.kills) >= 10


@pytest.mark.services
def test_the_large_size_ends_as_if_nothing_had_been(
    tmp_path: Path, postgres_url: str, redis_url: str, s3: Any
) -> None:
    environment = {
        **s3.environment(),
        "PERENNIAL_DATABASE_URL": postgres_url,
        "PERENNIAL_BROKER_URL": redis_url,
    }
    with campaign.site(tmp_path / "site", "large", environment) as site:
        report = campaign.Campaign(site, kills=10, lanes=3, seed=2).run()
    assert report.kills.total() >= 10 and report.restarts.total() > 0


def test_a_version_with_other_bytes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the campaign looks for it finds: a part is exchanged in one model's version."""
    original = campaign._versions

    def changed(db: Any, model: str) -> list[Any]:
        found = original(db, model)
        return found if model == "undisturbed" else [*found[:-1], (found[-1][0], found[-1][1][1:])]

    monkeypatch.setattr(campaign, "_versions", changed)
    with (
        campaign.site(tmp_path / "site", "small", {}) as site,
        pytest.raises(campaign.Broken, match="differs from the undisturbed one"),
    ):
        campaign.Campaign(site, kills=1, lanes=1, seed=3).run()
