"""A key of scope predict asks one alias of one model, so often, and nothing else of the whole
service.
"""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from starlette.testclient import TestClient

from api.app import create_app
from api.authentication.guard import OPEN_PATHS
from api.limits import predict_limits
from api.predict.concurrency import PredictConcurrencyLimiter
from core.database.session import Database
from core.database.tables import AccessKey, Model, PredictKeyBindingRow
from core.keys import predict_keys
from core.keys.predict_keys import DAY_S
from core.settings import Settings
from tests.api.conftest import SETTINGS, create_model, serve_api
from tests.api.routes.conftest import make_publisher

Headers = dict[str, str]
REFUSAL = (
    "it asks for predictions of the one model and alias that it was made for, and for nothing else"
)
PREDICT = "/v1/models/birds/versions/production/predict"
PNG = {"Content-Type": "image/png"}


class Answering:
    """Stands for the processes that decode and answer: says how many images came."""

    async def predict_and_encode_response(self, owner: str, question: Any, images: Any) -> bytes:
        return b'{"version": %d, "images": %d}' % (question.version, len(images.body))

    def close(self) -> None:
        pass


def get_database(client: TestClient) -> Database:
    found: Database = client.app.state.database  # type: ignore[attr-defined]
    return found


def forget_callers(client: TestClient) -> None:
    """Clear the cache of callers, so that every key is looked up again."""
    client.app.state.access._known.clear()  # type: ignore[attr-defined]


def count_keys(client: TestClient) -> int:
    with get_database(client).read() as session:
        return session.query(AccessKey).count()


def build_expiry(days: float = 30) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).isoformat()


def build_key_request(**changed: Any) -> dict[str, Any]:
    named = {
        "name": "page",
        "scope": "predict",
        "model": "birds",
        "alias": "production",
        "expires_at": build_expiry(),
    }
    return {key: value for key, value in {**named, **changed}.items() if value is not None}


def make_predict_key(client: TestClient, **changed: Any) -> Headers:
    made = client.post("/v1/keys", json=build_key_request(**changed))
    assert made.status_code == 201, made.text
    return {"Authorization": f"Bearer {made.json()['secret']}"}


def request_prediction(client: TestClient, headers: Headers, path: str = PREDICT) -> Any:
    return client.post(path, content=b"png", headers={**PNG, **headers})


@pytest.fixture(scope="module")
def birds(
    tmp_path_factory: pytest.TempPathFactory, prepare_folder: Callable[[Path], Path]
) -> Iterator[TestClient]:
    """A service for all tests of the file: the model birds has versions 1 and 2, of which 2 is in
    production.
    """
    folder = prepare_folder(tmp_path_factory.mktemp("birds"))
    with serve_api(SETTINGS.model_copy(update={"data_dir": folder})) as made:
        made.app.state.predictor = Answering()  # type: ignore[attr-defined]
        create_model(made, "birds")
        for _ in range(2):
            make_publisher(made, folder)("birds")
        create_model(made, "owls")
        assert made.put("/v1/models/birds/aliases/staging", json={"version": 1}).is_success
        other = made.post(
            "/v1/keys", json={"name": "n", "owner": "other", "scope": "write"}
        ).json()["secret"]
        theirs = {"name": "theirs", "scenario": "class", "architecture": "small-cnn"}
        made.post("/v1/models", json=theirs, headers={"Authorization": f"Bearer {other}"})
        yield made


@pytest.mark.slow
def test_it_is_refused_by_every_route_but_its_own(birds: TestClient) -> None:
    key, document = make_predict_key(birds), birds.get("/openapi.json").json()["paths"]
    model = birds.get("/v1/models/birds").json()["id"]
    job = "job_" + "0" * 26
    values = {
        "model": "birds",
        "version": "production",
        "alias": "production",
        "job": job,
        "key": "key_1",
    }
    pages = {
        (method, route.path)
        for route in birds.app.routes  # type: ignore[attr-defined]
        for method in route.methods or ()
        if route.path.startswith("/ui")
    }
    routes = {
        (method.upper(), path) for path, methods in document.items() for method in methods
    } | pages
    refused = 0
    for method, path in sorted(routes):
        if path in OPEN_PATHS or path == PREDICT.replace("birds", "{model}").replace(
            "production", "{version}"
        ):
            continue
        url = path
        for name in [part.partition("}")[0] for part in path.split("{")[1:]]:
            url = url.replace(f"{{{name}}}", values.get(name, "1"))
        answer = birds.request(
            method, url, headers={**key, "Content-Type": "application/json"}, content=b"{}"
        )
        assert answer.status_code == 403, (method, url, answer.status_code)
        assert method == "HEAD" or REFUSAL in answer.text, (method, url)
        assert model not in answer.text
        refused += 1
    assert refused > 90, refused
    assert request_prediction(birds, key).status_code == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (PREDICT, 200),
        (f"{PREDICT}?top_k=3", 200),
        (f"{PREDICT}?version=1", 422),
        (f"{PREDICT}?alias=staging", 422),
        (PREDICT.replace("production", "2"), 403),  # the very version that production is on
        (PREDICT.replace("production", "1"), 403),
        (PREDICT.replace("production", "latest"), 403),
        (PREDICT.replace("production", "staging"), 403),
        (PREDICT.replace("production", "Production"), 403),
        (PREDICT.replace("production", "production%00"), 404),
        (PREDICT.replace("production", "..%2fproduction"), 404),
        (PREDICT.replace("birds", "owls"), 403),
        (PREDICT.replace("birds", "theirs"), 403),
        (PREDICT.replace("birds", "nothing"), 403),
        (PREDICT.replace("birds", "BIRDS"), 403),
    ],
)
def test_it_asks_its_alias_of_its_model_and_no_other(
    birds: TestClient, path: str, status: int
) -> None:
    answer = request_prediction(birds, make_predict_key(birds), path)
    assert answer.status_code == status, answer.text
    if status == 403:
        assert REFUSAL in answer.json()["detail"]


def test_it_asks_by_the_id_of_its_model_and_follows_the_alias(birds: TestClient) -> None:
    key = make_predict_key(birds, alias="staging")
    model = birds.get("/v1/models/birds").json()["id"]
    path = f"/v1/models/{model}/versions/staging/predict"
    assert request_prediction(birds, key, path).json() == {"version": 1, "images": 1}
    birds.put("/v1/models/birds/aliases/staging", json={"version": 2})
    assert request_prediction(birds, key, path).json()["version"] == 2
    birds.put("/v1/models/birds/aliases/staging", json={"version": 1})


def test_a_deleted_model_answers_no_more_nor_does_another_that_has_its_name(
    birds: TestClient,
) -> None:
    create_model(birds, "fleeting")
    key, path = make_predict_key(birds, model="fleeting"), PREDICT.replace("birds", "fleeting")
    assert request_prediction(birds, key, path).status_code == 409  # nothing was taught yet
    assert birds.delete("/v1/models/fleeting").status_code == 204
    assert request_prediction(birds, key, path).status_code == 404
    create_model(birds, "fleeting")
    forget_callers(birds)
    assert request_prediction(birds, key, path).status_code == 404


def test_it_ends_when_it_expires_and_when_it_is_revoked(birds: TestClient) -> None:
    ids, keys = [], []
    for _ in range(2):
        made = birds.post("/v1/keys", json=build_key_request()).json()
        ids.append(made["id"])
        keys.append({"Authorization": f"Bearer {made['secret']}"})
    assert birds.delete(f"/v1/keys/{ids[0]}").status_code == 204
    with get_database(birds).write() as session:
        session.execute(
            update(AccessKey).where(AccessKey.id == ids[1]).values(expires_at=time.time() - 1)
        )
    assert [request_prediction(birds, key).status_code for key in keys] == [401, 401]


def test_it_logs_nobody_in(birds: TestClient) -> None:
    secret = make_predict_key(birds)["Authorization"].removeprefix("Bearer ")
    answer = birds.post("/ui/login", data={"key": secret}, headers={"Origin": "http://testserver"})
    assert answer.status_code == 403 and "opens no page" in answer.text


def test_without_its_row_it_opens_nothing(birds: TestClient) -> None:
    made = birds.post("/v1/keys", json=build_key_request()).json()
    with get_database(birds).write() as session:
        session.delete(session.get_one(PredictKeyBindingRow, made["id"]))
    assert (
        request_prediction(birds, {"Authorization": f"Bearer {made['secret']}"}).status_code == 403
    )


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"model": None}, "model"),
        ({"alias": None}, "alias"),
        ({"model": "nothing"}, "model"),
        ({"owner": "nobody"}, "owner"),
        ({"owner": "other"}, "model"),
        ({"alias": "canary"}, "alias"),
        ({"alias": "2"}, "alias"),
        ({"expires_at": None}, "expires_at"),
        ({"expires_at": build_expiry(367)}, "expires_at"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ({"requests_per_s": 0}, "requests_per_s"),
        ({"requests_per_s": 101}, "requests_per_s"),
        ({"images_per_day": 0}, "images_per_day"),
        ({"images_per_day": 1_000_001}, "images_per_day"),
        ({"scope": "read"}, "model"),
        ({"scope": "write", "model": None, "alias": None, "images_per_day": 5}, "images_per_day"),
    ],
)
def test_a_key_that_cannot_be_is_refused_and_the_field_named(
    birds: TestClient, changed: dict[str, Any], field: str
) -> None:
    before = count_keys(birds)
    answer = birds.post("/v1/keys", json=build_key_request(**changed))
    assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == field, answer.text
    assert count_keys(birds) == before


def test_it_belongs_to_its_models_owner_and_says_what_it_may_and_has_sent(
    birds: TestClient,
) -> None:
    made = birds.post(
        "/v1/keys", json=build_key_request(model="theirs", owner="other", images_per_day=7)
    ).json()
    assert made["owner"] == "other" and made["bound"].pop("model_id").startswith("mdl_")
    limits = {"requests_per_s": 5.0, "images_per_day": 7, "images_today": 0}
    assert made["bound"] == {"model": "theirs", "alias": "production", **limits}
    with get_database(birds).write() as session:
        values = {"day": int(get_database(birds).now(session) // DAY_S), "images": 3}
        session.execute(
            update(PredictKeyBindingRow)
            .where(PredictKeyBindingRow.key_id == made["id"])
            .values(values)
        )
    listed = birds.get("/v1/keys?limit=200").json()["items"]
    assert listed[0]["bound"] is None and listed[-1]["bound"]["images_today"] == 3
    trail = birds.get("/v1/audit?order=desc&limit=1").json()["items"][0]
    assert trail["action"] == "key.create" and trail["data"]["alias"] == "production"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The database's clock as keys are counted by, at noon of a day; and how the API remembers
    refusals.
    """
    now = [(time.time() // DAY_S + 0.5) * DAY_S]
    monkeypatch.setattr(Database, "now", lambda *_: now[0])
    monkeypatch.setattr(predict_limits, "monotonic", lambda: now[0])
    return now


def collect_prediction_statuses(client: TestClient, key: Headers, count: int) -> list[int]:
    return [request_prediction(client, key).status_code for _ in range(count)]


def test_two_seconds_worth_of_requests_at_once_then_so_many_a_second(
    birds: TestClient, clock: list[float]
) -> None:
    key = make_predict_key(birds, requests_per_s=2)
    assert collect_prediction_statuses(birds, key, 6) == [200] * 4 + [429] * 2
    refused = request_prediction(birds, key)
    assert (
        refused.headers["retry-after"] == "1" and "2 requests a second" in refused.json()["detail"]
    )
    clock[0] += 1
    assert collect_prediction_statuses(birds, key, 3) == [200] * 2 + [429]
    clock[0] += 1000
    assert collect_prediction_statuses(birds, key, 5) == [200] * 4 + [429]
    clock[0] -= 400 * DAY_S  # a clock that is set back locks nobody out
    birds.app.state.predict_limits._refused.clear()  # type: ignore[attr-defined]
    assert collect_prediction_statuses(birds, key, 1) == [200]


def test_less_than_a_request_in_two_seconds(birds: TestClient, clock: list[float]) -> None:
    key = make_predict_key(birds, requests_per_s=0.1)
    assert collect_prediction_statuses(birds, key, 2) == [200, 429]
    assert request_prediction(birds, key).headers["retry-after"] == "10"
    clock[0] += 10
    assert collect_prediction_statuses(birds, key, 2) == [200, 429]


def send_images(client: TestClient, key: Headers, images: int) -> Any:
    files = [("file", (f"{number}.png", b"x", "image/png")) for number in range(images)]
    return client.post(PREDICT, files=files, headers=key)


def test_images_of_a_day_are_counted_until_midnight_utc(
    birds: TestClient, clock: list[float]
) -> None:
    key = make_predict_key(birds, requests_per_s=100, images_per_day=5)
    assert [send_images(birds, key, count).status_code for count in (3, 3)] == [
        200,
        429,
    ]  # the second has taken one
    assert collect_prediction_statuses(birds, key, 2) == [200, 429]
    refused = request_prediction(birds, key)
    assert refused.headers["retry-after"] == str(DAY_S // 2)
    assert "may send 5 images a day, and has sent 5" in refused.json()["detail"]
    clock[0] += DAY_S / 2 - 1
    assert collect_prediction_statuses(birds, key, 1) == [429]
    clock[0] += 1
    assert send_images(birds, key, 5).status_code == 200


def test_what_it_has_taken_is_counted_for_all_processes_and_across_restarts(
    birds: TestClient, clock: list[float]
) -> None:
    key = make_predict_key(birds, requests_per_s=100, images_per_day=3)
    assert collect_prediction_statuses(birds, key, 1) == [200]
    for expected in ([200], [200, 429]):  # one process beside it, and the same later
        with TestClient(create_app(birds.app.state.settings)) as other:  # type: ignore[attr-defined]
            other.app.state.predictor = Answering()  # type: ignore[attr-defined]
            assert collect_prediction_statuses(other, key, len(expected)) == expected
    assert collect_prediction_statuses(birds, key, 1) == [429]


def test_a_key_that_has_nothing_left_costs_the_database_nothing(
    birds: TestClient, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = make_predict_key(birds, images_per_day=1)
    assert collect_prediction_statuses(birds, key, 2) == [200, 429]
    monkeypatch.setattr(
        predict_keys,
        "charge_predict_key_daily_images",
        lambda *_, **__: pytest.fail("the database was asked"),
    )
    assert collect_prediction_statuses(birds, key, 3) == [429] * 3


def test_it_takes_nothing_of_its_owners_rate_and_half_of_its_places(
    settings: Settings, tmp_path: Any
) -> None:
    settings.max_requests_per_s = 0.01
    settings.predict_owner_requests, settings.predict_owner_bytes = 3, 80
    with serve_api(settings) as client:
        client.app.state.predictor = Answering()  # type: ignore[attr-defined]
        client.app.state.rate.capacity = 5  # type: ignore[attr-defined]
        create_model(client, "birds")
        make_publisher(client, tmp_path)("birds")
        key = make_predict_key(client)
        key_id = client.get("/v1/keys").json()["items"][-1]["id"]
        assert collect_prediction_statuses(client, key, 4) == [200] * 4
        line: PredictConcurrencyLimiter = client.app.state.predict_limiter  # type: ignore[attr-defined]
        with get_database(client).read() as session:
            owner = session.get_one(AccessKey, key_id).owner_id
        place = line.acquire_predict_slot(owner, key_id)
        assert (
            request_prediction(client, key).status_code == 429
            and "This key has 1 predictions" in request_prediction(client, key).text
        )
        place.release_predict_slot()
        assert not line.requests and not line.bytes and not line.key_requests and not line.key_bytes
        assert client.post(PREDICT, content=b"x" * 41, headers={**PNG, **key}).status_code == 413
        assert client.post(PREDICT, content=b"x" * 41, headers=PNG).status_code == 200
        assert not line.requests and not line.bytes and not line.key_requests and not line.key_bytes


def test_the_keys_of_a_model_follow_its_name_to_the_one_that_takes_its_place(
    birds: TestClient,
) -> None:
    made = birds.post("/v1/keys", json=build_key_request(model="owls")).json()
    with get_database(birds).write() as session:
        birds_row, owls = (
            session.query(Model).filter_by(name=name).one() for name in ("birds", "owls")
        )
        predict_keys.rebind_predict_keys_to_model(session, owls, birds_row)
    assert (
        request_prediction(birds, {"Authorization": f"Bearer {made['secret']}"}).status_code == 200
    )


@pytest.mark.parametrize("sent", [[[[1]]], {"images": [[[1]]]}])
def test_it_sends_no_nested_arrays(birds: TestClient, sent: Any) -> None:
    answer = birds.post(PREDICT, json=sent, headers=make_predict_key(birds))
    assert answer.status_code == 422 and "not nested arrays" in answer.json()["detail"]
