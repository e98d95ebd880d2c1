"""A real service whose worker is killed around a delivery: what was committed is told, under one id; and no
job waits."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import receiver as receivers
from receiver import Receiver
from sqlalchemy import func, select, update

from core.db.session import Database
from core.db.tables import Webhook
from tests.rest import Rest
from tools import digits, service

pytestmark = pytest.mark.slow

MODEL = {
    "scenario": "class",
    "architecture": {"name": "mlp", "hidden": [16]},
    "recipe": {"epochs": 1, "seed": 0},
}


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of armed points of death."""
    return tmp_path_factory.mktemp("points")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, points: Path) -> Iterator[service.Service]:
    settings = {
        "PERENNIAL_THREADS": "1",
        "PERENNIAL_LEASE_S": "3",
        "PERENNIAL_KILL_POINTS": str(points),
        "PERENNIAL_WEBHOOK_ALLOW": "127.0.0.0/8",
    }
    with service.running(tmp_path_factory.mktemp("service"), settings) as found:
        yield found


@pytest.fixture
def client(running: service.Service) -> Rest:
    return Rest(running.url, running.key)


@pytest.fixture
def db(running: service.Service) -> Iterator[Database]:
    found = Database(f"sqlite:///{running.data_dir / 'perennial.db'}")
    yield found
    found.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receivers.running() as made:
        yield made


def until(true: Callable[[], Any], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def hook_of(client: Rest, receiver: Receiver, *events: str) -> dict[str, Any]:
    said = {"url": f"{receiver.url}/", "events": list(events)}
    return client.call("POST", "/v1/webhooks", json=said).json()  # type: ignore[no-any-return]


def end_leases(db: Database) -> None:
    """As if the lease of a dead worker had run out."""
    with db.write() as session:
        session.execute(update(Webhook).values(lease_until=1.0))


def test_a_worker_killed_after_the_publish_and_before_any_delivery_leaves_them_to_the_next(
    client: Rest, receiver: Receiver, points: Path
) -> None:
    client.models.create("killed", **MODEL)
    hook = hook_of(client, receiver, "version.published", "job.succeeded")
    (points / "publish-committed").touch()
    job = client.submit("killed", digits.archives()[0][1]).id
    until(lambda: not (points / "publish-committed").exists())
    assert client.wait(job).state == "succeeded"
    told = [one.verified(hook["secret"]) for one in receiver.wait(2, seconds=60)]
    until(lambda: client.get(f"/v1/webhooks/{hook['id']}")["pending"] == 0)
    assert [one["type"] for one in told] == ["version.published", "job.succeeded"]
    client.call("DELETE", f"/v1/webhooks/{hook['id']}")


@pytest.mark.parametrize(("point", "before"), [("delivery-claimed", 0), ("delivery-sent", 1)])
def test_a_worker_killed_around_a_delivery_sends_it_again_under_its_id(
    client: Rest, receiver: Receiver, points: Path, db: Database, point: str, before: int
) -> None:
    client.models.create(point, **MODEL)
    hook = hook_of(client, receiver, "alias.moved")
    (points / point).touch()
    client.call("PUT", f"/v1/models/{point}/aliases/mine", json={"version": 0})
    until(lambda: not (points / point).exists())
    time.sleep(3)
    assert len(receiver.seen) == before, "while the dead worker's lease lasts, nobody sends"
    end_leases(db)
    arrived = receiver.wait(before + 1)
    assert len({one.headers["webhook-id"] for one in arrived}) == 1
    assert arrived[-1].verified(hook["secret"])["data"]["alias"] == "mine"
    until(lambda: (client.get(f"/v1/webhooks/{hook['id']}")["last"] or {}).get("state") == "delivered")
    assert len(receiver.seen) == before + 1
    client.call("DELETE", f"/v1/webhooks/{hook['id']}")


def test_a_slow_receiver_delays_no_job(client: Rest, receiver: Receiver, db: Database) -> None:
    client.models.create("patient", **MODEL)
    hook = hook_of(client, receiver, "alias.moved")
    receiver.delay_s = 13.0
    for number in range(12):
        client.call("PUT", f"/v1/models/patient/aliases/a{number}", json={"version": 0})
    until(lambda: receiver.seen)
    job = client.submit("patient", digits.archives()[0][1]).id
    assert client.wait(job).state == "succeeded"
    with db.read() as session:
        held = session.scalar(
            select(func.count()).where(Webhook.id == hook["id"], Webhook.lease_until.is_not(None))
        )
    assert held == 1, "the receiver was slow all the time"
    assert client.get(f"/v1/webhooks/{hook['id']}")["pending"] > 5
    client.call("DELETE", f"/v1/webhooks/{hook['id']}")
