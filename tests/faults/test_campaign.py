"""The short form of the crash campaign: both sizes of the service, killed again and again, lose
nothing.
"""

from pathlib import Path
from typing import Any

import campaign
import edit_campaign
import pytest
import running_site

pytestmark = pytest.mark.campaign


def test_the_small_size_ends_as_if_nothing_had_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_site.run_site(tmp_path / "site", "small", {}) as site:
        made = campaign.Campaign(site, kills=16, lanes=3, seed=1)
        report = made.run()
    assert report.kills.total() >= 16 and len(report.kills) >= 10
    assert len(report.mended) >= 2, "no model was held and rolled back while processes were killed"
    # What it looks for it finds: a part is missing in every model but the undisturbed one.
    original = running_site.list_versions_with_parts

    def list_versions_without_part(db: Any, model: str) -> list[Any]:
        found = original(db, model)
        return found if model == "undisturbed" else [*found[:-1], (found[-1][0], found[-1][1][1:])]

    monkeypatch.setattr(running_site, "list_versions_with_parts", list_versions_without_part)
    with pytest.raises(running_site.Broken, match="differs from the undisturbed one"):
        running_site.check_invariants(site, report.models, report.jobs, mended=report.mended)


def test_edited_models_end_as_if_nothing_had_been(tmp_path: Path) -> None:
    with running_site.run_site(tmp_path / "site", "small", {}) as site:
        report = edit_campaign.EditCampaign(site, kills=16, lanes=2, seed=1).run()
    assert report.kills.total() >= 16 and report.compared > 0
    assert any(point.startswith("edit-") for point in report.kills)


@pytest.mark.services
def test_the_large_size_ends_as_if_nothing_had_been(
    tmp_path: Path, postgres_url: str, redis_url: str, s3: Any
) -> None:
    environment = {
        **s3.environment(),
        "PERENNIAL_DATABASE_URL": postgres_url,
        "PERENNIAL_BROKER_URL": redis_url,
    }
    with running_site.run_site(tmp_path / "site", "large", environment) as site:
        report = campaign.Campaign(site, kills=8, lanes=2, seed=2).run()
    assert report.kills.total() >= 8 and report.restarts.total() > 0
