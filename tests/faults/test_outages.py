"""The short form of the outage campaign: the large service over relays that fail, and what its
onlookers object to.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import onlookers
import outages
import pytest
import running_site
from fault_proxy import FaultProxy
from outage_faults import SETTINGS, Fault, make_relay_faults, make_relayed_url
from sqlalchemy import make_url

SECONDS = {"database-silent": 10.0, "store-silent": 6.5, "store-cut": 3.0}
PROBLEM = {"content-type": "application/problem+json"}
MODEL = {**outages.BIG, "recipe": {**outages.BIG["recipe"], "epochs": 20}}


@pytest.fixture
def relays(postgres_url: str, redis_server: Any, s3: Any) -> Iterator[dict[str, FaultProxy]]:
    ports = {
        "database": make_url(postgres_url).port or 5432,
        "broker": redis_server.port,
        "store": s3.port,
    }
    with ExitStack() as stack:
        yield {part: stack.enter_context(closing(FaultProxy(port))) for part, port in ports.items()}


@pytest.mark.campaign
def test_an_outage_of_any_part_loses_nothing_and_is_told_in_time(
    tmp_path: Path, postgres_url: str, redis_server: Any, s3: Any, relays: dict[str, FaultProxy]
) -> None:
    database = make_url(postgres_url).set(port=relays["database"].port)
    store = s3.url(s3.bucket, "outages")  # a prefix of its own: what is left over is looked for
    environment = {
        **SETTINGS,
        **s3.environment(),
        "PERENNIAL_DATABASE_URL": database.render_as_string(hide_password=False),
        "PERENNIAL_BROKER_URL": make_relayed_url(
            redis_server.url, redis_server.port, relays["broker"]
        ),
        "PERENNIAL_STORE_URL": make_relayed_url(store, s3.port, relays["store"]),
    }
    down = {"broker": "down"}
    flushed = Fault("redis-flushed", "Redis killed", 3, redis_server.stop, redis_server.start, down)
    faults = [
        replace(f, seconds=SECONDS[f.name]) for f in make_relay_faults(relays) if f.name in SECONDS
    ]
    with running_site.run_site(tmp_path / "site", "large", environment) as site:
        campaign = outages.Outages(site, [*faults, flushed], lanes=1, model=MODEL)
        campaign.run()
    assert campaign.wrong == []
    told = {row.fault.name: {(a.kind, a.told) for a in row.answers} for row in campaign.rows}
    assert ("submit", "202") in told["redis-flushed"]
    # 6 s for the statement, 3 s for a new connection; one that held a connection already answers
    # later, with 200.
    given_up = {("read", "503"), ("predict", "503"), ("download", "503")}
    assert ("healthz", "200") in told["database-silent"] and given_up & told["database-silent"]
    assert ("predict", "503") in told["store-silent"] and ("read", "200") in told["store-silent"]


@pytest.mark.parametrize(
    ("status", "headers", "fine"),
    [
        (200, {}, True),
        (503, {**PROBLEM, "retry-after": "2"}, True),
        (507, {**PROBLEM, "retry-after": "60"}, True),
        (503, PROBLEM, False),
        (503, {"content-type": "text/html", "retry-after": "2"}, False),
        (500, {**PROBLEM, "retry-after": "2"}, False),
    ],
)
def test_onlookers_object_to_whatever_is_not_a_typed_answer(
    status: int, headers: dict[str, str], fine: bool
) -> None:
    seen = onlookers.Onlookers("http://127.0.0.1:1", "pk", "m", "job", "probe", b"")
    seen._judged("read", httpx2.Response(status, headers=headers))
    assert (seen.wrong == []) is fine
